"""Rows of the hub, here of a folder that ``datasets`` loads as it loads one of the hub's."""

import builtins
import json

import pytest
from rlgym_llm_envs.hub_rows import hub_rows, parse_address

from rlgym_llm import DataError, UserError
from rlgym_llm.cli import main
from rlgym_llm.rows.file_format import read_rows

ROWS = [
    {"question": "2+3?", "answer": "#### 5", "n": 3},
    {"question": "q", "answer": "a", "n": None},
]


@pytest.fixture
def data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "toy"
    folder.mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[:1])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def test_addresses():
    assert parse_address("openai/gsm8k:main:test") == ("openai/gsm8k", "main", "test")
    assert parse_address("openai/gsm8k:main") == ("openai/gsm8k", "main", None)
    for wrong in (":main", "a:b:c:d"):
        with pytest.raises(UserError, match=r"is not hf:OWNER/NAME"):
            parse_address(wrong)


def test_the_training_split_unless_told(data_set):
    assert list(hub_rows(str(data_set))) == ROWS
    assert list(hub_rows(f"{data_set}::test")) == ROWS[:1]
    with pytest.raises(DataError, match=r"no split 'tets'; did you mean 'test'\? \(splits: "):
        hub_rows(f"{data_set}::tets")


def test_a_set_that_cannot_be_had(tmp_path):
    with pytest.raises(DataError, match=r"hf:\S+gone cannot be had from the hub \("):
        hub_rows(str(tmp_path / "gone"))


def test_datasets_missing(monkeypatch):
    original = builtins.__import__

    def no_datasets(name, *rest):
        if name == "datasets":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_datasets)
    with pytest.raises(DataError, match=r"needs the package datasets: pip install"):
        hub_rows("openai/gsm8k")


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_convert_reads_it(data_set, tmp_path, name):
    assert main(["data", "convert", f"hf:{data_set}", str(tmp_path / name)]) == 0
    assert [row for _, row in read_rows(tmp_path / name)] == ROWS
