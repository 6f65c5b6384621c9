"""``rlgym-train``: reads the configuration, opens a session, trains, reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rlgym_llm.batch_arithmetic import describe, plan_batches
from rlgym_llm.cli import INTERRUPTED, guarded
from rlgym_llm.config import format_config, parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.plugins import Plugins
from rlgym_llm_trainers.commands.command_words import over_starter_run
from rlgym_llm_trainers.models.starter import STARTER_DATA_SOURCE
from rlgym_llm_trainers.models.torch_setup import set_up_torch

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, 130 after Ctrl-C, or one of the codes of `guarded`."""
    return guarded(_run, sys.argv[1:] if argv is None else list(argv), "rlgym-train")


def _run(argv: Sequence[str]) -> int:
    command = parse_command(argv)
    if command.help is not None:
        print(command.help)
        return 0
    # Past this line Gymnasium is needed, and in `_train` torch: --help waits for neither.
    from rlgym_llm.compose import RewardComposer
    from rlgym_llm_trainers.learner.estimator import load_estimator
    from rlgym_llm_trainers.training.environments import make_env
    from rlgym_llm_trainers.training.run_rewards import check_scoring, rewards_of

    command, plugins = over_starter_run(command)
    config = command.config
    if command.print_config:
        print(format_config(config, command.sources), end="")
    elif command.dry_run:
        env = make_env(config, plugins, role="train")
        rewards = rewards_of(config, env)
        load_estimator(config, rewards, plugins)
        check_scoring(config, RewardComposer(rewards, plugins))
        tasks = env.tasks
        print(describe(plan_batches(config, num_prompts=len(tasks))))
    else:
        return _train(config, plugins)
    return 0


def _train(config: TrainConfig, plugins: Plugins) -> int:
    set_up_torch(num_threads=config.trainer.num_threads, seed=config.trainer.seed)
    from rlgym_llm_trainers.training.console import open_view
    from rlgym_llm_trainers.training.loggers import check_loggers, open_loggers
    from rlgym_llm_trainers.training.loop import train
    from rlgym_llm_trainers.training.report import report
    from rlgym_llm_trainers.training.run_folder import choose_run_folder, make_run_folder
    from rlgym_llm_trainers.training.session import open_session

    check_loggers(config.trainer.logger)
    run = choose_run_folder(
        config.trainer.output, name=config.trainer.experiment_name or config.env.id
    )
    with open_view(shows_steps="console" in config.trainer.logger) as view:
        session = open_session(config, plugins=plugins, run=run, view=view)
        make_run_folder(run, format_config(config))
        if (session.train_tasks or session.val_tasks)[0].data_source == STARTER_DATA_SOURCE:
            view.note(
                f"starter problems: generated word problems ({STARTER_DATA_SOURCE}), not GSM8K; "
                "for GSM8K give --model and --data.train"
            )
        view.note(
            f"model {session.policy.path}: {session.policy.num_parameters / 1e6:.2f}M parameters "
            f"on {session.policy.device}; {len(session.train_tasks)} training and "
            f"{len(session.val_tasks)} validation problems"
        )
        loggers = open_loggers(
            config.trainer.logger,
            metrics_path=run.metrics,
            project=config.trainer.project_name,
            experiment=config.trainer.experiment_name,
            config=config.model_dump(mode="json"),
        )
        try:
            result = train(session, loggers)
        finally:
            for logger in loggers:
                logger.close()
            session.close()
    title = f"{config.env.id}: scores on validation problems"
    report(result, run, shares=session.shares, title=title)
    return INTERRUPTED if result.was_interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
