"""The evaluation loop, readable top to bottom: what is missing is sampled, scored and saved.

    tasks x n --group_specs--> specs - stored --run_episodes--> rollouts --composer--> cards
                                        ^                                              |
                                        +------------ rollouts.jsonl <-----------------+

A seed belongs to a (task, sample) and a batch to its place among all of them, whatever is stored
already. So an evaluation that was killed and goes on ends with the rollouts, to the last bit, of
one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import EpisodeSpec, run_episodes, stable_seed
from rlgym_llm.types import RolloutStatus
from rlgym_llm_trainers.commands.eval_folder import choose_eval_folder
from rlgym_llm_trainers.commands.eval_progress import AccuracySoFar
from rlgym_llm_trainers.commands.eval_rows import EvalRow, Judge
from rlgym_llm_trainers.commands.eval_settings import EvalSettings
from rlgym_llm_trainers.commands.eval_summary import summarize
from rlgym_llm_trainers.commands.progress_bar import open_bar
from rlgym_llm_trainers.commands.sampling_session import (
    SamplingPlan,
    SamplingSession,
    open_sampling,
)
from rlgym_llm_trainers.commands.stored_files import RolloutFiles
from rlgym_llm_trainers.commands.stored_run import (
    Outcome,
    note,
    planned_specs,
    resumable,
    stored_records,
)
from rlgym_llm_trainers.training.interrupt import Interrupt
from rlgym_llm_trainers.training.preparation import validation_params

__all__ = ["run_eval"]


def run_eval(settings: EvalSettings) -> Outcome:
    """Samples what is missing, saves it batch by batch, and summarizes all that is there.

    The first Ctrl-C ends it after the batch that is under way; a second one stops at once, and
    costs that batch.
    """
    config = settings.config
    files = choose_eval_folder(settings.output, name=config.env.id)
    session = open_sampling(_plan(settings), note)
    with closing(session), files.claimed(session.fixed):
        specs = planned_specs(
            files,
            session.tasks,
            num_samples=settings.num_samples,
            seed=stable_seed(config.trainer.seed, "val"),
            retry_errors=settings.retry_errors,
        )
        assert session.composer is not None, "an evaluation is scored"
        judge = Judge(accuracy=session.accuracy, ranges=session.composer.ranges)
        goes_on = f"{files.output} holds the rollouts before, and goes on from them"
        with resumable("ending after this batch", goes_on=goes_on) as interrupt:
            rows = _sample(settings, session, judge, files, specs, interrupt)
        summary = summarize(
            [rows[spec.id] for spec in specs if spec.id in rows],
            num_wanted=len(specs),
            num_samples=settings.num_samples,
            ks=settings.ks,
            accuracy=judge.name,
            right_from=judge.right_from,
            totals=files.totals(),
            about={"env": session.fixed["env"]["id"], "model": session.fixed["model"]["path"]},
        )
        files.write_summary(summary)
    is_whole = len(rows) == len(specs)
    if not is_whole:
        note(f"{len(rows)} of {len(specs)} rollouts are there; the same command again goes on")
    return Outcome(
        saved_in=files.output,
        summary=summary,
        num_failed=sum(row.has_failed for row in rows.values()),
        was_interrupted=not is_whole,
    )


def _plan(settings: EvalSettings) -> SamplingPlan:
    return SamplingPlan(
        config=_without_cut(settings.config),
        plugins=settings.plugins,
        split="val",
        max_tasks=settings.config.data.val_max_samples,
        num_samples=settings.num_samples,
        params=validation_params(settings.config),
        scores_for="evaluation",
        samples_flag="--n",
        without_split="give --data.val, or ask its training tasks by rlgym rollout --score",
    )


def _without_cut(config: TrainConfig) -> TrainConfig:
    """Without the top-p and top-k of training: no engine has to tell what they left."""
    rollout = config.rollout.model_copy(update={"top_p": 1.0, "top_k": -1})
    return config.model_copy(update={"rollout": rollout})


def _sample(
    settings: EvalSettings,
    session: SamplingSession,
    judge: Judge,
    files: RolloutFiles,
    specs: Sequence[EpisodeSpec],
    interrupt: Interrupt,
) -> dict[str, EvalRow]:
    """Samples the specs that are not stored yet; the rows of all that are there in the end."""
    assert session.composer is not None, "an evaluation is scored"
    so_far = AccuracySoFar(judge.name)
    with files.writer() as writer:
        rows: dict[str, EvalRow] = {}
        for record in stored_records(files, specs, owner="this evaluation"):
            assert record.card is not None, "checked when it was read"
            rows[record.rollout.id] = judge.row(record.rollout, record.card)
        with open_bar("rollouts", len(specs)) as bar:
            bar.advance(len(rows), so_far.add(list(rows.values())))
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
                new = [judge.row(rollouts[i], cards[i]) for i in missing]
                rows.update((row.rollout_id, row) for row in new)
                bar.advance(len(new), so_far.add(new))
                if all(rollout.status is not RolloutStatus.OK for rollout in rollouts):
                    raise RlgymError(
                        f"not one of {len(rollouts)} episodes of a batch came to its end, for "
                        f"example: {rollouts[0].error}; they are stored, --retry-errors samples "
                        "them again"
                    )
    return rows


def _batches(settings: EvalSettings, specs: Sequence[EpisodeSpec]) -> Iterator[list[EpisodeSpec]]:
    """As many whole tasks at once as ``rollout.max_num_seqs`` allows, and at least one."""
    num_tasks = max(1, settings.config.rollout.max_num_seqs // settings.num_samples)
    size = num_tasks * settings.num_samples
    for start in range(0, len(specs), size):
        yield list(specs[start : start + size])
