"""Files in, one scored file out: the whole of a run, which goes on where a killed one stopped."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.errors import UserError
from rlgym_llm.offline.manifest import check_same, fingerprint, read_manifest, write_manifest
from rlgym_llm.offline.merge import JoinedLines, write_rejects
from rlgym_llm.offline.parquet_output import write_output
from rlgym_llm.offline.run import Progress, score_chunks
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.offline.workers import Workers
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig

if TYPE_CHECKING:
    from rlgym_llm.offline.summary import Summary

__all__ = ["score_files"]

_FIRST_FILES = {"lock", "manifest.json.tmp"}
"""What a work folder may hold before it is known whose it is."""


def score_files(
    settings: OfflineSettings,
    workers: Workers,
    *,
    ks: Sequence[int] | None = None,
    overwrite: bool = False,
    progress: Progress = lambda chunk: None,
) -> Summary:
    """Scores the inputs into ``settings.output`` and returns what it came to.

    Beside the output stand ``.summary.json`` and, where lines were set aside, ``.rejects.jsonl``.
    Until all is there it is in the folder ``<output>.work``, and a run that was stopped, however
    it was, goes on from there. A run that was finished before is not repeated, unless
    ``overwrite``; its summary says ``was_finished``. Raises UserError where the output or the
    folder is another run's and not ``overwrite``, DataError and RewardError.
    """
    plugins = Plugins.discover(settings.plugins)
    config = RewardsConfig.model_validate(settings.rewards)
    composer = RewardComposer(config, plugins, evaluation=settings.evaluation)
    mark = json.loads(json.dumps(fingerprint(settings, plugins, config)))
    if not overwrite and (before := _finished(settings, mark)) is not None:
        _remove_work(settings.work)
        return {**before, "was_finished": True}
    output = Path(settings.output)
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already: give --overwrite, or another name with -o")
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent} for {output.name}")
    started = time.monotonic()
    # Numpy takes a while to import: beside the workers, not before they have work.
    threading.Thread(target=import_module, args=("rlgym_llm.offline.summary",), daemon=True).start()
    with _work_folder(settings.work, mark, overwrite=overwrite):
        num_parts = score_chunks(
            settings,
            list(config.components),
            workers,
            by_group=composer.needs_groups,
            progress=progress,
        )
        from rlgym_llm.offline.summary import summarise

        weights = composer.weights(settings.step)
        summary = summarise(settings, weights, num_parts, ks=ks, by_group=composer.needs_groups)
        summary["seconds"] = time.monotonic() - started
        write_rejects(settings, num_parts)
        _write(settings, summary, mark)
    _remove_work(settings.work)
    return summary


@contextmanager
def _work_folder(work: Path, mark: dict[str, Any], *, overwrite: bool) -> Iterator[None]:
    """Makes the folder that of this run, and keeps other runs out of it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{work} is in use: another run writes the same output") from None
        found = read_manifest(work)
        if found is None and {path.name for path in work.iterdir()} - _FIRST_FILES:
            raise UserError(f"{work} is no folder of a run: give another name with -o")
        if found is not None and found != mark:
            if not overwrite:
                check_same(mark, found, work)
            for path in work.iterdir():
                if path.name != "lock":
                    path.unlink()
        write_manifest(work, mark)
        yield


def _write(settings: OfflineSettings, summary: Summary, mark: dict[str, Any]) -> None:
    """The output last, by renaming: whoever sees it sees the files beside it too."""
    draft = JoinedLines.path(settings.work)
    if settings.format == "parquet":
        draft = write_output(settings, list(summary["components"]), draft)
    summary["bytes"] = draft.stat().st_size
    summary_draft = settings.work / "summary.tmp"
    summary_draft.write_text(json.dumps({**summary, "run": mark}, allow_nan=False))
    Path(settings.output).unlink(
        missing_ok=True
    )  # or a summary would stand beside another's output
    summary_draft.replace(settings.beside("summary.json"))
    draft.replace(settings.output)


def _finished(settings: OfflineSettings, mark: dict[str, Any]) -> Summary | None:
    """The summary of this very run, where it is finished and its output is still there."""
    try:
        summary: Summary = json.loads(settings.beside("summary.json").read_text())
        is_same = summary.pop("run") == mark
        size = Path(settings.output).stat().st_size
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return summary if is_same and summary["bytes"] == size else None


def _remove_work(work: Path) -> None:
    """The manifest goes last, so that what is left of it is known for what it is."""
    if work.is_dir():
        for path in work.iterdir():
            if path.name != "manifest.json":
                path.unlink()
        shutil.rmtree(work)
