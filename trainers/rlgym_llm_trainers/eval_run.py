"""The evaluation loop, readable top to bottom: what is missing is sampled, scored and saved.

    tasks x n --group_specs--> specs - stored --run_episodes--> rollouts --composer--> cards
                                        ^                                              |
                                        +------------ rollouts.jsonl <-----------------+

A seed belongs to a (task, sample) and a batch to its place among all of them, whatever is stored
already. So an evaluation that was killed and goes on ends with the rollouts, to the last bit, of
one that was not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError, RlgymError, UserError
from rlgym_llm.rewards import full_mark
from rlgym_llm.rollout import EpisodeSpec, group_specs, run_episodes, stable_seed
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, RolloutStatus
from rlgym_llm_trainers.eval_folder import choose_eval_folder
from rlgym_llm_trainers.eval_progress import open_progress
from rlgym_llm_trainers.eval_rows import EvalRow, eval_row
from rlgym_llm_trainers.eval_session import EvalSession, open_eval
from rlgym_llm_trainers.eval_settings import EvalSettings
from rlgym_llm_trainers.eval_summary import summarize
from rlgym_llm_trainers.interrupt import Interrupt, catch_interrupt
from rlgym_llm_trainers.rollout_files import RolloutFiles

__all__ = ["EvalResult", "run_eval"]

_MIXED = "accuracy"
"""What judges any member of a mixture, in the rows and the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """How an evaluation ended."""

    folder: Path
    summary: dict[str, Any]
    """What ``summary.json`` holds."""
    num_failed: int
    """Rollouts whose episode or one of whose rewards failed."""
    was_interrupted: bool


def run_eval(settings: EvalSettings) -> EvalResult:
    """Samples what is missing, saves it batch by batch, and summarizes all that is there.

    The first Ctrl-C ends it after the batch that is under way; a second one stops at once, and
    costs that batch.
    """
    config = settings.config
    files = choose_eval_folder(settings.output, name=config.env.id)
    session = open_eval(settings, _note)
    try:
        with files.claimed(session.fixed):
            specs = group_specs(
                session.tasks,
                group_size=settings.num_samples,
                seed=stable_seed(config.trainer.seed, "val"),
            )
            if settings.retry_errors and (num_dropped := files.drop_failed()):
                _note(f"{num_dropped} failed rollouts are sampled again")
            try:
                with catch_interrupt("ending after this batch") as interrupt:
                    rows = _sample(settings, session, files, specs, interrupt)
            except RlgymError as error:
                if not isinstance(error, UserError):
                    error.add_note(
                        f"{files.output} holds the rollouts before, and goes on from them"
                    )
                raise
            summary = summarize(
                [rows[spec.id] for spec in specs if spec.id in rows],
                num_wanted=len(specs),
                num_samples=settings.num_samples,
                ks=settings.ks,
                accuracy=_judge(session),
                right_from=_right_from(session, _judge(session)),
                totals=files.totals(),
                about={"env": session.fixed["env"]["id"], "model": session.fixed["model"]["path"]},
            )
            files.write_summary(summary)
    finally:
        session.close()
    is_whole = len(rows) == len(specs)
    if not is_whole:
        _note(f"{len(rows)} of {len(specs)} rollouts are there; the same command again goes on")
    return EvalResult(
        folder=files.output,
        summary=summary,
        num_failed=sum(row.has_failed for row in rows.values()),
        was_interrupted=not is_whole,
    )


def _sample(
    settings: EvalSettings,
    session: EvalSession,
    files: RolloutFiles,
    specs: Sequence[EpisodeSpec],
    interrupt: Interrupt,
) -> dict[str, EvalRow]:
    """Samples the specs that are not stored yet; the rows of all that are there in the end."""
    with files.writer() as writer:
        rows = _stored_rows(session, files, specs)
        if rows:
            _note(f"{len(rows)} of {len(specs)} rollouts are there already")
        with open_progress(len(specs), _judge(session)) as progress:
            progress.advance(list(rows.values()))
            for batch in _batches(settings, specs):
                missing = [place for place, spec in enumerate(batch) if spec.id not in rows]
                if not missing:
                    continue
                if interrupt.is_set:
                    break
                started = time.perf_counter()
                # Whole, even where some of it is stored: siblings are compared with each other,
                # and other neighbours in a batch would round its matrix products otherwise.
                rollouts = run_episodes(
                    batch,
                    make_env=session.envs,
                    generator=session.generator,
                    params=session.params,
                    batching=session.batching,
                    **session.limits,
                )
                sampled = time.perf_counter()
                cards = session.composer(rollouts)
                writer.write([rollouts[i] for i in missing], [cards[i] for i in missing])
                files.add_timing(
                    {
                        "num_tokens": sum(rollout.num_tokens for rollout in rollouts),
                        "gen_s": sampled - started,
                        "score_s": time.perf_counter() - sampled,
                    }
                )
                new = [_row(session, rollouts[i], cards[i]) for i in missing]
                rows.update((row.rollout_id, row) for row in new)
                progress.advance(new)
                if all(rollout.status is not RolloutStatus.OK for rollout in rollouts):
                    raise RlgymError(
                        f"not one of {len(rollouts)} episodes of a batch came to its end, for "
                        f"example: {rollouts[0].error}; they are stored, --retry-errors samples "
                        "them again"
                    )
    return rows


def _stored_rows(
    session: EvalSession, files: RolloutFiles, specs: Sequence[EpisodeSpec]
) -> dict[str, EvalRow]:
    wanted = {spec.id for spec in specs}
    rows: dict[str, EvalRow] = {}
    for record in files.records():
        rollout, card = record.rollout, record.card
        if rollout.id not in wanted or rollout.id in rows:
            what = "is stored twice" if rollout.id in rows else "is none of this evaluation's"
            raise DataError(f"rollout {rollout.id} {what}", path=files.rollouts)
        assert card is not None, "checked when it was read"
        rows[rollout.id] = _row(session, rollout, card)
    return rows


def _row(session: EvalSession, rollout: Rollout, card: ScoreCard) -> EvalRow:
    """In a mixture, what judges a member counts as the one accuracy of all, by its full mark."""
    judge = session.accuracy.component(rollout.task)
    right_from = _right_from(session, judge)
    row = eval_row(rollout, card, accuracy=judge, right_from=right_from)
    if not session.accuracy.by_env:
        return row
    raw = row.raw.get(judge) if judge is not None else None
    return replace(
        row,
        data_source=session.accuracy.source(rollout.task),
        raw={**row.raw, _MIXED: None if raw is None else raw / right_from},
    )


def _judge(session: EvalSession) -> str | None:
    """The name under which rows hold what says right or wrong."""
    return _MIXED if any(session.accuracy.by_env.values()) else session.accuracy.name


def _right_from(session: EvalSession, judge: str | None) -> float:
    """The raw accuracy score from which an answer is right: the highest there is."""
    return full_mark(session.composer.ranges.get(judge or "", (0.0, 1.0)))


def _batches(settings: EvalSettings, specs: Sequence[EpisodeSpec]) -> Iterator[list[EpisodeSpec]]:
    """As many whole tasks at once as ``rollout.max_num_seqs`` allows, and at least one."""
    num_tasks = max(1, settings.config.rollout.max_num_seqs // settings.num_samples)
    size = num_tasks * settings.num_samples
    for start in range(0, len(specs), size):
        yield list(specs[start : start + size])


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
