"""A real browser: the machine's own chromium, driven by playwright; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

BROWSER_VARIABLE = "RLGYM_LLM_BROWSER"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: drives a real browser")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser; the tests are skipped, by name, where there is none.

    Closed with its module: playwright's event loop runs in this thread until then, and
    `asyncio.run` in the tests of other folders would be refused.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    program = os.environ.get(BROWSER_VARIABLE) or next(
        filter(None, map(shutil.which, BROWSERS)), ""
    )
    if not program:
        pytest.skip(f"no browser: install chromium, or name one in {BROWSER_VARIABLE}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"],  # it opens our own pages only, in CI as root
        )
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (400, "dark")], ids=["wide-light", "narrow-dark"])
def look(request: pytest.FixtureRequest) -> tuple[int, str]:
    """A width in pixels and a colour scheme."""
    found: tuple[int, str] = request.param
    return found


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; at the end nothing was complained of, asked, or fetched elsewhere."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_one(
        url: str, width: int = 1280, scheme: str = "light", forgives: str | None = None
    ) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                complaints.append(f"console: {message.text}")
                if forgives is None or forgives not in message.text
                else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
        start = url.rsplit("/", 1)[0]
        page.on(
            "request",
            lambda request: (
                complaints.append(f"request: {request.url}")
                if not request.url.startswith((start, "data:"))
                else None
            ),
        )
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def hostile_texts() -> tuple[str, ...]:
    """Completions that would like to be more than text; each would change the page's title."""
    return (
        "</pre></script><script>document.title='owned'</script> 5",
        "<img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">",
        "'\"><iframe srcdoc='<script>parent.document.title=`owned`</script>'></iframe>",
        "a\0b\u202egnp.exe\ud800 {{ 7*7 }}",
        "x" * 1_000_000,
    )
