"""The page and its answers over HTTP, for one person on one machine."""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from rlgym_llm.errors import UserError
from rlgym_llm.view.browser import RowBrowser
from rlgym_llm.view.row_query import RowQuery

__all__ = ["ViewServer"]

_FILES: Final = {
    "": ("page.html", "text/html"),
    "look.css": ("look.css", "text/css"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
_HEADERS: Final = {
    # Rows hold what anybody's model wrote: nothing in them can run, load or be sent anywhere.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ViewServer:
    """Serves one file's rows under a secret address; a context manager that closes all of it.

    Only requests whose Host is an address, ``localhost`` or ``host`` itself are answered, so that
    no web page can reach it under a name of its own (DNS rebinding), and only below the random
    token in `url`. Port 0 takes a free one. Raises UserError where the port cannot be had.

    >>> server = ViewServer("scored.jsonl")                        # doctest: +SKIP
    >>> with server: server.url                                    # doctest: +SKIP
    'http://127.0.0.1:46101/pJ2vbZJ1sGqB6d3YyQmWkw/'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        mapping: Mapping[str, str] | None = None,
        score_column: str = "rlgym",
    ) -> None:
        self.browser = RowBrowser(path, mapping=mapping, score_column=score_column)
        self.host = host
        self.token = secrets.token_urlsafe(16)
        try:
            self._server = _Server((host, port), self)
        except OSError as error:
            self.browser.close()
            what = error.strerror or error
            raise UserError(f"cannot listen on {host} port {port}: {what}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="rlgym view", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._server.server_address[1]}/{self.token}/"

    def start(self) -> None:
        """Begins to answer, in threads."""
        self._thread.start()

    def wait(self) -> None:
        """Returns when it is closed."""
        self._thread.join()

    def close(self) -> None:
        """Ends it; safe to call twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.browser.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def is_known_host(self, header: str | None) -> bool:
        """Whether a request with this ``Host`` header is meant for us."""
        try:
            name = urlsplit(f"//{header or ''}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.host.lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def answer(self, path: str, fields: Mapping[str, str]) -> dict[str, Any] | None:
        """The JSON of one question below ``api/``; None for an unknown one.

        Raises UserError and LookupError.
        """
        questions: dict[str, Callable[[], dict[str, Any]]] = {
            "about": self.browser.about,
            "rows": lambda: self._page(dict(fields)),
            "row": lambda: self.browser.row(
                _number(fields, "row"), is_whole=fields.get("whole") == "1"
            ),
            "siblings": lambda: self.browser.siblings(_number(fields, "row")),
        }
        question = questions.get(path)
        return None if question is None else question()

    def _page(self, fields: dict[str, str]) -> dict[str, Any]:
        start = _number(fields, "start", 0)
        fields.pop("start", None)
        return self.browser.page(RowQuery.parse(fields), start)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], view: ViewServer) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.view = view
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is nobody's concern."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "rlgym"
    sys_version = ""

    def do_GET(self) -> None:
        view = self.server.view
        if not view.is_known_host(self.headers.get("Host")):
            self._say(HTTPStatus.FORBIDDEN, "this page answers to its own address only")
            return
        url = urlsplit(self.path)
        _, token, path = (*url.path.split("/", 2), "", "")[:3]
        if not secrets.compare_digest(token.encode(), view.token.encode()):
            self._say(HTTPStatus.NOT_FOUND, "not found: the address that was printed has a token")
        elif path in _FILES:
            name, kind = _FILES[path]
            page = resources.files("rlgym_llm.view").joinpath(name).read_bytes()
            self._send(HTTPStatus.OK, page, kind)
        else:
            self._answer(path, dict(parse_qsl(url.query, keep_blank_values=True)))

    def _answer(self, path: str, fields: dict[str, str]) -> None:
        found: dict[str, Any] | None
        status = HTTPStatus.OK
        try:
            found = self.server.view.answer(path.removeprefix("api/"), fields)
        except UserError as error:
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except LookupError as error:
            status, found = HTTPStatus.NOT_FOUND, {"error": str(error)}
        if found is None or not path.startswith("api/"):
            self._say(HTTPStatus.NOT_FOUND, "not found")
            return
        data = json.dumps(found, allow_nan=False).encode()  # ASCII: escapes carry the rest
        self._send(status, data, "application/json")

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{text}\n".encode(), "text/plain")

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence: the terminal belongs to whoever started it."""


def _number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise UserError(f"{name} is no number: {text!r}")
    return int(text)
