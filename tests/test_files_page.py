"""docs/files.md says what the files say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_files_is_up_to_date():
    path = ROOT / "scripts" / "file_map.py"
    spec = importlib.util.spec_from_file_location("file_map", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    assert page == module.file_map(), "run python scripts/file_map.py"
    assert not [line for line in page.splitlines() if line.endswith(": ")]  # all have docstrings
