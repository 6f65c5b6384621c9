"""Fixtures that every test may use: the labelled cases, loaded by id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is no property of the code: benchmarks measure time, tests do not.
settings.register_profile("rlgym", deadline=None)
settings.load_profile("rlgym")

ROOT = Path(__file__).parents[1]
DATA_VARIABLE = "RLGYM_LLM_TEST_DATA"


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of the labelled cases; the test is skipped, by name, where it is not given."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        pytest.skip(f"{DATA_VARIABLE} is not set")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def bug_report(test_data: Path) -> Callable[[str], dict[str, Any]]:
    """Looks up one public bug report, ``{input, right, ...}``, by its id."""
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    cases = {case["id"]: case for case in map(json.loads, lines)}
    return cases.__getitem__


@pytest.fixture(scope="session")
def claims_held() -> Callable[[str], list[str]]:
    """Runs a benchmark on a real package, in an environment made on the first run: what held."""
    peers = os.environ.get("RLGYM_LLM_PEERS", str(ROOT / ".venv-peers"))

    def run(script: str) -> list[str]:
        command = [sys.executable, str(ROOT / "benchmarks" / script), "--peers", peers]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("ok  ")]

    return run


@pytest.fixture
def serve() -> Callable[..., AbstractContextManager[str]]:
    """Opens a real HTTP server in threads of this process, ``with serve(handle) as url``.

    ``handle(method, path, headers, body)`` gives status, body (text, or JSON data) and, if need be,
    headers; ``on_connect`` hears the address of each client.
    """

    @contextmanager
    def opened(
        handle: Callable[..., Any], *, on_connect: Callable[[Any], object] | None = None
    ) -> Iterator[str]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                if on_connect is not None:
                    on_connect(self.client_address)
                super().setup()

            def do_GET(self) -> None:
                self.reply()

            def do_POST(self) -> None:
                self.reply()

            def reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer, *more = handle(self.command, self.path, dict(self.headers), body)
                text = answer if isinstance(answer, str) else json.dumps(answer)
                try:
                    self.send_response(status)
                    for name, value in (more[0] if more else {}).items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text.encode())))
                    self.end_headers()
                    self.wfile.write(text.encode())
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up on us

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    return opened
