"""The folder of an evaluation: what it is an evaluation of, and the rollouts it has so far.

eval.json       the settings; an evaluation goes on only under the same ones
rollouts.jsonl  one rollout a line with its card, batch by batch
timings.jsonl   one batch a line: how long it took
summary.json    the figures, written at the end
"""

from __future__ import annotations

from pathlib import Path

from rlgym_llm_trainers.commands.stored_files import RolloutFiles
from rlgym_llm_trainers.training.run_folder import choose_run_folder

__all__ = ["choose_eval_folder", "eval_files"]


def eval_files(folder: Path) -> RolloutFiles:
    """The files of an evaluation in this folder."""
    return RolloutFiles(
        output=folder,
        rollouts=folder / "rollouts.jsonl",
        manifest=folder / "eval.json",
        timings=folder / "timings.jsonl",
        summary=folder / "summary.json",
        lock=folder / ".lock",
        command="rlgym eval",
        holds="an evaluation",
        is_scored=True,
    )


def choose_eval_folder(output: str | None, *, name: str) -> RolloutFiles:
    """The evaluation's files, not yet made; with no ``output`` in a new folder under ``runs/``.

    Raises UserError where the folder holds anything that is no evaluation.
    """
    if output is not None:
        path = Path(output).expanduser()
        leftovers = {".lock", "eval.json.partial"}
        if (path / "eval.json").is_file():
            return eval_files(path)
        if path.is_dir() and {entry.name for entry in path.iterdir()} <= leftovers:
            return eval_files(path)
    return eval_files(choose_run_folder(output, name=f"eval-{name}").path)
