"""A reward that changes its directory ends no run, however relative the paths are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOES = """
import os
os.chdir("/")

def goes(completion):
    os.chdir("/")
    if completion == "die":
        os._exit(3)
    return float(len(completion))

def goes_and_removes(completion):
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    return float(len(completion))
"""


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
@pytest.mark.parametrize("name", ["goes", "goes_and_removes"])
def test_scoring_finishes_where_it_was_started(tmp_path: Path, backend: str, name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "goes.py").write_text(GOES)
    texts = ["x" * (n % 5 + 1) for n in range(60)]
    if name == "goes":
        texts[20] = "die"  # what took its place is built from the same paths
    rows = [{"id": n, "prompt": "q", "completion": text} for n, text in enumerate(texts)]
    lines = [*map(json.dumps, rows), "no row"]
    (tmp_path / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    options = {"path": f"mine/goes.py:{name}"}
    component = {"reward": "function", "options": options, "backend": backend, "concurrency": 1}
    (tmp_path / "rewards.yaml").write_text(json.dumps({"components": {"goes": component}}))
    arguments = "score rows.jsonl -o out.jsonl --rewards rewards.yaml --workers 1".split()
    run = "import sys; from rlgym_llm.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments, "--chunk-bytes", "500"],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # one line is set aside
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    scores = [row["rlgym"]["components"]["goes"]["raw"] for row in written]
    assert scores == [None if text == "die" else float(len(text)) for text in texts]
    rejects = json.loads((tmp_path / "out.rejects.jsonl").read_text())
    assert rejects["file"] == "rows.jsonl"
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine",
        "out.jsonl",
        "out.rejects.jsonl",
        "out.summary.json",
        "rewards.yaml",
        "rows.jsonl",
    }
