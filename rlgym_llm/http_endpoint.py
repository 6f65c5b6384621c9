"""JSON to and from a model server: retries, deadlines, and a key that is never shown."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import os
import random
import time
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from rlgym_llm.errors import UserError, one_line
from rlgym_llm.secrets_mask import MASK

if TYPE_CHECKING:
    import httpx2
    import tenacity

__all__ = [
    "Endpoint",
    "EndpointError",
    "EndpointTimeoutError",
    "check_url",
    "run",
]

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may pass: too many requests, and a server that is starting or overloaded."""
_MAX_WAIT_S = 60.0
_MAX_BODY_CHARS = 300

_T = TypeVar("_T")


class EndpointError(RuntimeError):
    """The server gave no usable reply; ``status`` is its HTTP status, None without one."""

    def __init__(
        self, message: str, *, status: int | None = None, was_reached: bool = True
    ) -> None:
        super().__init__(message)
        self.status = status
        self.was_reached = was_reached
        """False where nobody listens: what was asked is then not at fault."""


class EndpointTimeoutError(EndpointError):
    """Every attempt ran out of time."""


class _PassingError(EndpointError):
    """One attempt failed in a way that the next may not."""

    retry_after: float | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A client and what keeps it: a generator that its loop closes when the loop itself ends."""

    client: httpx2.AsyncClient
    keeper: AsyncGenerator[httpx2.AsyncClient, None]


class Endpoint:
    """One address that answers with JSON, to JSON sent by POST or to a plain GET.

    ``retries`` further attempts follow a refused or broken connection, an attempt longer than
    ``request_timeout_s`` seconds, and the statuses 408, 425, 429, 500, 502, 503, 504 and 529.
    Between them it waits as long as ``Retry-After`` says, or else up to ``backoff_s * 2**n``
    seconds, at most 60. ``api_key_env`` names the environment variable that holds the key, which
    goes out as ``Authorization: Bearer`` and into no message.

    Raises UserError where the variable is not set or a package is missing.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_env: str | None = None,
        retries: int = 4,
        request_timeout_s: float = 60.0,
        backoff_s: float = 0.5,
    ) -> None:
        try:
            import httpx2  # noqa: F401
            import tenacity  # noqa: F401
        except ImportError as missing:
            raise UserError(
                f"a model server is asked through the package {missing.name!r}, which is not "
                "installed; pip install 'rlgym-llm[endpoint]'"
            ) from missing
        self.url = url
        self._key = _read_key(api_key_env)
        self._retries = retries
        self._request_timeout_s = request_timeout_s
        self._backoff_s = backoff_s
        # Its own: jitter must not move anybody's global generator.
        self._jitter = random.Random()
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}

    async def post(self, payload: Any) -> Any:
        """The reply to ``payload``, decoded. Raises EndpointError, or its timeout, at the last."""
        return await self._ask(payload)

    async def get(self) -> Any:
        """What stands at the address, decoded. Raises as `post` does."""
        return await self._ask(None)

    async def _ask(self, payload: Any) -> Any:
        import tenacity

        client = await self._client()
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._retries + 1),
            wait=self._wait,
            retry=tenacity.retry_if_exception_type(_PassingError),
            reraise=True,
        )
        try:
            return await retrying(self._attempt, client, payload)
        except _PassingError as last:
            kind = EndpointTimeoutError if last.timed_out else EndpointError
            attempts = self._retries + 1
            raise kind(
                f"{last} ({attempts} attempts)", status=last.status, was_reached=last.was_reached
            ) from None

    def close(self) -> None:
        """Lets the connections go: at once, or with the loop that this is called from."""
        own = _running_loop()
        for loop, held in list(self._held.items()):
            if loop is not own and loop.is_running():
                with contextlib.suppress(RuntimeError, TimeoutError):
                    asyncio.run_coroutine_threadsafe(held.keeper.aclose(), loop).result(5)
        self._held.clear()

    async def aclose(self) -> None:
        """Lets the connections go and waits until those of the running loop are gone."""
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held.keeper.aclose()
        self.close()

    async def _client(self) -> httpx2.AsyncClient:
        """The client of the running loop: connections live and die with their loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            for other in [other for other in list(self._held) if other.is_closed()]:
                self._held.pop(other, None)  # another thread may have been here first
            keeper = self._keep()
            held = self._held[loop] = _Held(client=await anext(keeper), keeper=keeper)
        return held.client

    async def _keep(self) -> AsyncGenerator[httpx2.AsyncClient, None]:
        import httpx2

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        try:
            async with httpx2.AsyncClient(headers=headers, timeout=None, limits=limits) as client:
                yield client
        finally:
            # A closed connection lets go of its socket in the loop's next rounds, if there are any.
            for _ in range(3):
                await asyncio.sleep(0)

    async def _attempt(self, client: httpx2.AsyncClient, payload: Any) -> Any:
        import httpx2

        try:
            async with asyncio.timeout(self._request_timeout_s):
                method = "GET" if payload is None else "POST"
                response = await client.request(method, self.url, json=payload)
        except TimeoutError:
            error = _PassingError(f"{self.url} gave no reply in {self._request_timeout_s:g} s")
            error.timed_out = True
            raise error from None
        except httpx2.RequestError as failure:
            reason = self._shown(str(failure)) or type(failure).__name__
            if isinstance(failure, httpx2.ConnectError):
                message = f"{self.url} cannot be reached: {reason}"
                raise _PassingError(message, was_reached=False) from None
            raise _PassingError(f"{self.url} broke off: {reason}") from None
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            return response.json()
        except ValueError:
            shown = self._shown(response.text)
            raise EndpointError(f"{self.url} did not answer in JSON: {shown}", status=200) from None

    def _refusal(self, response: httpx2.Response) -> EndpointError:
        status = response.status_code
        message = f"{self.url} answered {status}: {self._shown(response.text)}"
        if status not in _RETRIED:
            return EndpointError(message, status=status)
        error = _PassingError(message, status=status)
        error.retry_after = _seconds(response.headers.get("retry-after"))
        return error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = getattr(failure, "retry_after", None)
        if asked is not None:
            return float(min(asked, _MAX_WAIT_S))
        longest: float = min(self._backoff_s * 2 ** (state.attempt_number - 1), _MAX_WAIT_S)
        return self._jitter.uniform(longest / 2, longest)

    def _shown(self, text: str) -> str:
        """The text on one line, cut, and without the key that a server may echo."""
        if self._key:
            text = text.replace(self._key, MASK)
        return one_line(text, _MAX_BODY_CHARS)


def check_url(option: str, url: str) -> None:
    """Raises UserError unless ``url`` is an http address without a password in it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that do not close
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"{option} {url!r} is no address; write it like http://localhost:8000/v1")
    if parts.username or parts.password:
        raise UserError(
            f"{option} carries a name or password; name a variable in api_key_env instead"
        )


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The coroutine's result, from code that cannot await: in a notebook's running loop too.

    >>> run(asyncio.sleep(0, "done"))
    'done'
    """
    if _running_loop() is None:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"api_key_env names the environment variable {variable}, which is not set")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"the environment variable {variable} holds characters that no key has")
    return key


def _seconds(retry_after: str | None) -> float | None:
    """What ``Retry-After`` asks for: a number of seconds or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
