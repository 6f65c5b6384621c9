"""A configuration as YAML text that reads back to an equal one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.yaml_text import dump_value

__all__ = ["format_config"]

Path = tuple[str, ...]


def format_config(config: TrainConfig, sources: Mapping[Path, str] | None = None) -> str:
    """Every key as YAML, ready for ``--config``; what is named like a secret is ``***``.

    ``sources`` (`rlgym_llm.config.ParsedCommand.sources`) adds where a value came from, as a
    comment beside it. The clips that count are a comment too.
    """
    low, high = (
        "the policy loss's own" if clip is None else f"{clip:g}"
        for clip in (config.actor.clip_low, config.actor.clip_high)
    )
    notes: dict[Path, str] = {
        ("actor", "clip_ratio"): low if low == high else f"lower: {low}, upper: {high}"
    }
    if config.algorithm.use_kl_in_reward and config.actor.use_kl_loss:
        notes["actor", "use_kl_loss"] = "beside algorithm.use_kl_in_reward: the KL counts twice"
    dumped = config.model_dump(mode="python")
    return "\n".join(_lines(dumped, (), notes, sources or {})) + "\n"


def _lines(
    section: Mapping[str, Any], path: Path, notes: Mapping[Path, str], sources: Mapping[Path, str]
) -> Iterator[str]:
    for key, value in section.items():
        here = (*path, key)
        head = f"{'  ' * len(path)}{dump_value(key)}:"
        if isinstance(value, Mapping) and value:
            yield head
            yield from _lines(value, here, notes, sources)
            continue
        comments = [note for note in (notes.get(here), sources.get(here)) if note]
        comment = f"  # {'; '.join(comments)}" if comments else ""
        yield f"{head} {dump_value(value)}{comment}"
