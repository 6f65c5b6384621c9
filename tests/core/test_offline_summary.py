"""The summary against the plain way to work it out, on records that were drawn at random."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.errors import DataError
from rlgym_llm.estimators import maj_at_k, pass_at_k
from rlgym_llm.intervals import mean_and_interval
from rlgym_llm.moments import Moments
from rlgym_llm.offline import groups as groups_module
from rlgym_llm.offline.groups import Groups, measure_groups
from rlgym_llm.offline.intervals import interval_of
from rlgym_llm.offline.record_files import RecordFiles
from rlgym_llm.offline.records import Records
from rlgym_llm.offline.tallies import Tallies, tally

RECORDS = Records(("right", "other"))


def draw(seed: int, num_rows: int, num_groups: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.zeros(num_rows, RECORDS.dtype)
    rows["line"] = np.arange(1, num_rows + 1)
    rows["length"] = rng.integers(10, 100, num_rows)
    rows["group"] = rng.integers(1, num_groups + 1, num_rows) * 977
    rows["answer"] = rng.integers(0, 4, num_rows)
    rows["chars"] = rng.integers(0, 500, num_rows)
    rows["label"] = rng.integers(-1, 2, num_rows)
    rows["0.raw"] = np.where(rng.random(num_rows) < 0.1, np.nan, rows["answer"] == 1)
    rows["1.raw"] = rng.normal(size=num_rows)
    rows["reward"] = rows["0.raw"] + 0.5 * rows["1.raw"]
    for place in (0, 1):
        rows[f"{place}.contribution"] = rows[f"{place}.raw"]
        rows[f"{place}.seconds"] = rng.random(num_rows)
    return rows


def write(folder: Path, rows: np.ndarray[Any, Any], num_parts: int) -> RecordFiles:
    for number, part in enumerate(np.array_split(rows, num_parts)):
        part.tofile(folder / f"part-{number:08d}.records")
    return RecordFiles(folder, num_parts, RECORDS)


def measured(files: RecordFiles, folder: Path, found: Tallies, **changed: Any) -> Groups:
    means = {name: part.raw.mean for name, part in found.components.items()}
    arguments: dict[str, Any] = {
        "num_rows": found.num_rows,
        "means": (found.reward.mean, means),
        "accuracy": "right",
        "ks": None,
        "must_be_whole": False,
    }
    return measure_groups(files, folder, **{**arguments, **changed})


@pytest.mark.parametrize(
    ("num_rows", "num_groups", "bucket_rows"), [(400, 60, 1 << 16), (400, 60, 37)]
)
def test_all_figures_are_those_of_the_plain_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_rows: int,
    num_groups: int,
    bucket_rows: int,
) -> None:
    monkeypatch.setattr(groups_module, "_BUCKET_ROWS", bucket_rows)
    rows = draw(1, num_rows, num_groups)
    files = write(tmp_path, rows, 7)
    found = tally(files, "right")
    assert found.num_rows == num_rows
    assert found.num_bytes == rows["length"].sum()
    raw = rows["0.raw"]
    judged = ~np.isnan(raw)
    assert found.components["right"].raw.count == judged.sum()
    assert found.components["right"].raw.mean == pytest.approx(raw[judged].mean())
    assert found.reward.std == pytest.approx(np.nanstd(rows["reward"], ddof=1))
    assert found.components["other"].histogram.sum() == num_rows
    edges = np.linspace(rows["1.raw"].min(), rows["1.raw"].max(), 41)
    assert found.components["other"].histogram.tolist() == pytest.approx(
        np.histogram(rows["1.raw"], edges)[0].tolist(), abs=1
    )
    labelled = (rows["label"] >= 0) & judged
    assert found.confusion is not None
    assert found.confusion.agree == ((raw == rows["label"]) & labelled).sum()
    assert found.confusion.false_positives == ((raw == 1) & (rows["label"] == 0)).sum()
    assert found.confusion.unjudged == ((rows["label"] >= 0) & ~judged).sum()
    disputed = labelled & (raw != rows["label"])
    assert found.num_disputed == disputed.sum()
    total = rows["0.seconds"] + rows["1.seconds"]
    assert [entry["row"] for entry in found.slowest] == np.argsort(-total)[:20].tolist()
    offsets = np.cumsum(rows["length"]) - rows["length"]
    assert all(entry["offset"] == offsets[entry["row"]] for entry in found.slowest)
    assert found.correlations is not None
    both = np.corrcoef(np.stack([rows["1.raw"], rows["chars"]]))[0, 1]
    assert found.correlations[1, 2] == pytest.approx(both)
    part = np.corrcoef(np.stack([raw[judged], rows["1.raw"][judged]]))[0, 1]
    assert found.correlations[0, 1] == pytest.approx(part)

    groups = measured(files, tmp_path, found, ks=[1, 2, 3])
    by_group = defaultdict(list)
    for row in rows:
        by_group[int(row["group"])].append(row)
    assert groups.num_groups == len(by_group)
    for k in (1, 2, 3):
        passed, voted = [], []
        for siblings in by_group.values():
            kept = [row for row in siblings if not math.isnan(row["0.raw"])]
            if len(kept) >= k:
                right = [bool(row["0.raw"] > 0.5) for row in kept]
                passed.append(pass_at_k(len(kept), sum(right), k))
                answers = [int(row["answer"]) or None for row in kept]
                voted.append(maj_at_k(answers, right, k))
        assert groups.pass_at[k].count == len(passed)
        assert groups.pass_at[k].mean == pytest.approx(np.mean(passed))
        if k > 1:
            assert groups.maj_at[k].mean == pytest.approx(np.mean(voted))
    scored = ~np.isnan(rows["reward"])
    interval = interval_of(found.reward, groups.reward, 0)
    expected = mean_and_interval(rows["reward"][scored], groups=rows["group"][scored].tolist())
    assert tuple(interval) == pytest.approx(tuple(expected))
    interval = interval_of(found.components["right"].raw, groups.components["right"], 0)
    expected = mean_and_interval(raw[judged], groups=rows["group"][judged].tolist())
    assert tuple(interval) == pytest.approx(tuple(expected))
    assert not list(tmp_path.glob("bucket-*"))


def test_rows_without_groups_are_taken_as_independent(tmp_path: Path) -> None:
    rows = draw(2, 50, 5)
    rows["group"] = 0
    files = write(tmp_path, rows, 2)
    found = tally(files, "right")
    groups = measured(files, tmp_path, found)
    assert (groups.num_groups, groups.pass_at, groups.maj_at) == (0, {}, {})
    values = found.components["other"].raw
    interval = interval_of(values, groups.components["other"], 50)
    assert interval == mean_and_interval(values)


def test_ks_are_the_powers_of_two_up_to_the_common_size(tmp_path: Path) -> None:
    rows = draw(3, 24, 1)
    rows["group"] = np.repeat([5, 6, 7, 8], 6)
    rows["0.raw"] = 1.0
    files = write(tmp_path, rows, 1)
    groups = measured(files, tmp_path, tally(files, "right"))
    assert list(groups.pass_at) == [1, 2, 4, 6]
    assert list(groups.maj_at) == [2, 4, 6]
    assert groups.pass_at[4].mean == 1.0


def test_a_torn_group_is_named_by_its_lines(tmp_path: Path) -> None:
    rows = draw(4, 6, 1)
    rows["group"] = [1, 1, 2, 2, 1, 3]
    rows["line"] = [10, 11, 12, 13, 14, 15]
    files = write(tmp_path, rows, 3)
    with pytest.raises(DataError, match="line 14 belongs to the group of line 10"):
        measured(files, tmp_path, tally(files, "right"), must_be_whole=True)
    rows["group"] = [1, 1, 2, 2, 3, 3]
    files = write(tmp_path, rows, 3)
    assert measured(files, tmp_path, tally(files, "right"), must_be_whole=True).num_groups == 3


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_sample_is_drawn_evenly_and_the_same_every_time(seed: int, num_parts: int) -> None:
    import tempfile

    rows = draw(seed, 100, 10)
    samples = []
    for parts in (1, num_parts):
        with tempfile.TemporaryDirectory() as folder:
            samples.append(tally(write(Path(folder), rows, parts), None).sample)
    assert samples[0] == samples[1]
    assert [row for row, _, _ in samples[0]] == list(range(100))  # few rows are all drawn


def test_a_large_file_is_sampled(tmp_path: Path) -> None:
    rows = draw(5, 40_000, 10)
    found = tally(write(tmp_path, rows, 9), None)
    drawn = np.array([row for row, _, _ in found.sample])
    assert len(drawn) == len(set(drawn)) == 5_000
    # 500 are due in every tenth, give or take 4 standard deviations of 20.
    assert np.abs(np.histogram(drawn, 10, (0, 40_000))[0] - 500).max() < 80
    offsets = np.cumsum(rows["length"]) - rows["length"]
    assert all(offset == offsets[row] for row, offset, _ in found.sample)


def test_no_row_at_all(tmp_path: Path) -> None:
    files = write(tmp_path, draw(6, 0, 1), 1)
    found = tally(files, "right")
    groups = measured(files, tmp_path, found)
    assert (found.num_rows, found.sample, groups.num_groups) == (0, [], 0)
    assert found.reward == Moments()
