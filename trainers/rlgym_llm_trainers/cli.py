"""``rlgym-train``: reads the configuration, opens a session, trains, reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, redirect_stdout

from rlgym_llm.batch_arithmetic import describe
from rlgym_llm.cli import FAILED, INTERRUPTED, USER_ERROR, guarded
from rlgym_llm.config import format_config, parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm_trainers.commands.command_words import over_starter_run
from rlgym_llm_trainers.learner.ranks import Ranks, end_process, launched_as
from rlgym_llm_trainers.models.starter import STARTER_DATA_SOURCE
from rlgym_llm_trainers.models.torch_setup import set_up_torch

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, 130 after Ctrl-C, or one of the codes of `guarded`."""
    words = sys.argv[1:] if argv is None else list(argv)
    rank, world_size = launched_as()
    if rank:
        code = guarded(_follow, words, f"rlgym-train, rank {rank}")
    else:
        code = guarded(_run, words, "rlgym-train")
    has_joined = launched_as() != (rank, world_size)  # which torchrun's variables do not outlive
    if has_joined and world_size > 1:
        end_process(code)
    return code


def _follow(argv: Sequence[str]) -> int:
    """As a rank that torchrun started beside the first, which does all the talking."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            return _run(argv)
        except UserError:
            return USER_ERROR  # the first rank has the same words, and says so


def _run(argv: Sequence[str]) -> int:
    command = parse_command(argv)
    if command.help is not None:
        print(command.help)
        return 0
    # Past this line Gymnasium is needed, and in `_train` torch: --help waits for neither.
    command, plugins = over_starter_run(command)
    config = command.config
    if command.print_config:
        print(format_config(config, command.sources), end="")
    elif command.dry_run:
        from rlgym_llm_trainers.training.dry_run import dry_run

        print(describe(dry_run(config, plugins, dp_size=launched_as()[1])))
    else:
        return _train(config, plugins)
    return 0


def _train(config: TrainConfig, plugins: Plugins) -> int:
    set_up_torch(num_threads=config.trainer.num_threads, seed=config.trainer.seed)
    from rlgym_llm_trainers.training.follow import follow, joined_ranks

    with joined_ranks(config) as ranks:
        if ranks.is_first:
            return _lead(config, plugins, ranks)
        return 0 if follow(config, plugins, ranks) else FAILED


def _lead(config: TrainConfig, plugins: Plugins, ranks: Ranks) -> int:
    from rlgym_llm_trainers.training.console import open_view
    from rlgym_llm_trainers.training.loggers import check_loggers, open_loggers
    from rlgym_llm_trainers.training.loop import train
    from rlgym_llm_trainers.training.report import report
    from rlgym_llm_trainers.training.resume import find_start, taken
    from rlgym_llm_trainers.training.saver import check_checkpoint
    from rlgym_llm_trainers.training.session import open_session

    check_loggers(config.trainer.logger)
    start = find_start(config)
    run = start.run
    last_step = start.step if start.checkpoint else None
    if last_step is None and run.goes_on:
        last_step = -1  # it begins again, validation before the first step included
    with open_view(shows_steps="console" in config.trainer.logger) as view:
        session = open_session(config, plugins=plugins, run=run, view=view, ranks=ranks)
        with closing(session), ExitStack() as stack:
            if start.checkpoint is not None:
                check_checkpoint(session, start.checkpoint, takes_groups=start.takes_groups)
            stack.enter_context(taken(start, config, total_steps=session.total_steps))
            for note in start.notes:
                view.note(note)
            if (session.train_tasks or session.val_tasks)[0].data_source == STARTER_DATA_SOURCE:
                view.note(
                    f"starter problems: generated word problems ({STARTER_DATA_SOURCE}), not "
                    "GSM8K; for GSM8K give --model and --data.train"
                )
            view.note(
                f"model {session.policy.path}: {session.policy.num_parameters / 1e6:.2f}M "
                f"parameters on {session.policy.device}; {len(session.train_tasks)} training and "
                f"{len(session.val_tasks)} validation problems"
            )
            loggers = open_loggers(
                config.trainer.logger,
                metrics_path=run.metrics,
                project=config.trainer.project_name,
                experiment=config.trainer.experiment_name,
                config=config.model_dump(mode="json"),
                last_step=last_step,
            )
            try:
                result = train(session, loggers, start.checkpoint, takes_groups=start.takes_groups)
            finally:
                for logger in loggers:
                    logger.close()
    title = f"{config.env.id}: scores on validation problems"
    report(result, run, shares=session.shares, title=title)
    return INTERRUPTED if result.was_interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
