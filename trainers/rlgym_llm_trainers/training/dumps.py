"""Rollouts of a run for people: stored in files, shown on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlgym_llm.rows.writing import writing
from rlgym_llm.scores import ScoreCard
from rlgym_llm.store import write_rollouts
from rlgym_llm.types import Rollout

__all__ = ["dump", "show_sample"]


def dump(
    folder: str, step: int, rollouts: Sequence[Rollout], cards: Sequence[ScoreCard] | None
) -> None:
    """Writes the rollouts of a step, scored or not, as ``folder/step.jsonl``.

    Raises RlgymError, with the file, where it cannot be written.
    """
    path = Path(folder) / f"{step}.jsonl"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rollouts(path, rollouts, cards, step=step)


def show_sample(rollout: Rollout, card: ScoreCard, step: int) -> str:
    """A rollout as lines to read: question, turns and replies, under its reward."""
    prompt = rollout.task.prompt
    question = prompt if isinstance(prompt, str) else prompt[-1].content
    reward = "unscored" if card.reward is None else f"{card.reward:.3g}"
    lines = [f"--- step {step}, reward {reward}, right answer {rollout.task.answer}", question]
    for turn in rollout.turns:
        lines.append("> " + turn.completion.text.replace("\n", "\n> "))
        lines += [f"[{message.role}] {message.content}" for message in turn.reply]
    return "\n".join(lines)
