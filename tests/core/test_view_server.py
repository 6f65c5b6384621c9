from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from rlgym_llm.commands.view import main
from rlgym_llm.errors import UserError
from rlgym_llm.view.server import ViewServer

RLGYM = "from rlgym_llm.cli import main; raise SystemExit(main())"
ROW = {"prompt": "2+3?", "completion": "</script>\0 5", "answer": "5"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n" * 3)
    return path


@pytest.fixture
def server(path: Path) -> Iterator[ViewServer]:
    with ViewServer(path) as server:
        server.browser.index.wait()
        yield server


def ask(
    server: ViewServer, path: str, *, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """One request below the address with the token, unless the path begins with a slash."""
    url = urlsplit(server.url)
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    try:
        where = path if path.startswith("/") else url.path + path
        connection.request(method, where, headers={} if host is None else {"Host": host})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def ask_json(server: ViewServer, path: str) -> tuple[int, Any]:
    status, _, data = ask(server, path)
    return status, json.loads(data)


def test_the_page_and_its_parts_are_there(server: ViewServer) -> None:
    for name, kind in (
        ("", "text/html"),
        ("page.js", "text/javascript"),
        ("page.css", "text/css"),
        ("look.css", "text/css"),
    ):
        status, headers, data = ask(server, name)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert len(data) > 500
        assert b"http://" not in data
        assert b"https://" not in data


def test_nothing_foreign_may_run_in_it(server: ViewServer) -> None:
    _, headers, page = ask(server, "")
    rules = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"style=" not in page  # inline style would need a looser policy
    assert b"<script>" not in page


def test_answers_are_ascii_json(server: ViewServer) -> None:
    status, row = ask_json(server, "api/row?row=1")
    assert (status, row["parts"][1]["head"]) == (200, "</script>[U+0000] 5")
    assert ask(server, "api/rows")[2].isascii()
    status, found = ask_json(server, "api/rows?text=script&sort=-row&start=1")
    assert (status, [row["row"] for row in found["rows"]]) == (200, [1, 0])
    assert ask_json(server, "api/siblings?row=0")[1]["num_siblings"] == 3
    assert ask_json(server, "api/about")[1]["statuses"] == {"unscored": 3}


def test_without_the_token_there_is_nothing(server: ViewServer) -> None:
    for path in ("/", "/api/rows", "/wrong/api/rows", f"/{server.token[:-1]}/", "/%00/"):
        status, _, data = ask(server, path)
        assert status == 404
        assert b"token" in data


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost:8000", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("192.168.0.7:1", True),
        ("evil.example", False),
        ("localhost.evil.example:80", False),
        ("127.0.0.1.evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_pages_of_other_names_cannot_ask(server: ViewServer, host: str, is_known: bool) -> None:
    assert ask(server, "api/about", host=host)[0] == (200 if is_known else 403)


@pytest.mark.parametrize(
    ("question", "status", "wrong"),
    [
        ("api/row?row=7", 404, "there is no row 7"),
        ("api/row?row=-1", 400, "row is no number"),
        ("api/row", 400, "row is no number"),
        ("api/rows?min_reward=much", 400, "min_reward is no number"),
        ("api/rows?component=mth", 400, "unknown component 'mth'"),
        ("api/rows?start=1e9", 400, "start is no number"),
    ],
)
def test_wrong_questions_are_answered_by_what_is_wrong(
    server: ViewServer, question: str, status: int, wrong: str
) -> None:
    found, answer = ask_json(server, question)
    assert found == status
    assert wrong in answer["error"]


@pytest.mark.parametrize(
    "other", ["about", "api/", "api/nothing", "../rows.jsonl", "..%2frows.jsonl", "server.py"]
)
def test_there_are_no_other_paths(server: ViewServer, other: str) -> None:
    assert ask(server, other)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_only_reads(server: ViewServer, method: str) -> None:
    assert ask(server, "api/about", method=method)[0] == 501


def test_closing_ends_its_threads(path: Path) -> None:
    before = threading.active_count()
    server = ViewServer(path)
    with server:
        assert ask(server, "")[0] == 200
    server.close()
    assert threading.active_count() == before
    with pytest.raises(OSError, match="refused"):
        ask(server, "")


def test_a_taken_port_is_an_error(server: ViewServer, path: Path) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1 port {port}"):
        ViewServer(path, port=port)
    with pytest.raises(UserError, match="ports are from 0 to 65535"):
        main([str(path), "--port", "70000"])


def test_the_command_serves_until_it_is_interrupted(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RLGYM, "view", str(path), "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = next(word for word in process.stdout.readline().split() if "http" in word)
        with urlopen(url + "api/about", timeout=30) as reply:
            assert json.load(reply)["name"] == "rows.jsonl"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read().strip() == ""
