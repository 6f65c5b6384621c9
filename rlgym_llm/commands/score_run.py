"""A parsed ``rlgym score``: the settings it amounts to, the run, and what is printed of it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rlgym_llm.accuracy import accuracy_component
from rlgym_llm.commands.column_flags import read_mapping
from rlgym_llm.commands.score_paths import check_paths
from rlgym_llm.commands.score_text import print_diff, print_summary, progress_bar
from rlgym_llm.errors import ConfigError, UnknownNameError, UserError
from rlgym_llm.offline.diff import diff_scores
from rlgym_llm.offline.inputs import open_inputs
from rlgym_llm.offline.score_files import score_files
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.offline.workers import WorkerChoice
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env
from rlgym_llm.reward_config import RewardsConfig, build_rewards, read_rewards
from rlgym_llm.reward_flags import read_reward_flags, read_rewards_file, with_options
from rlgym_llm.rewards import full_mark

if TYPE_CHECKING:
    from rlgym_llm.offline.summary import Summary

__all__ = ["run"]

_OUTPUT_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".pq")
_CHUNK_BYTES = (1 << 16, 1 << 20)
_CHUNKS_PER_FILE = 32


def run(options: argparse.Namespace, choice: WorkerChoice) -> int:
    """Scores the files and prints what it came to; returns the exit code.

    Raises UserError, DataError or RewardError.
    """
    plugins = Plugins.discover(options.plugin)
    config, accuracy = _rewards(options, plugins)
    built = build_rewards(config, plugins)
    try:
        inputs = open_inputs(
            options.files,
            mapping=read_mapping(options.map),
            layout=options.layout,
            needs={need for reward in built.values() for need in reward.needs},
            score_column=options.score_column,
        )
        output = options.output or f"{Path(options.files[0]).with_suffix('')}.scored.jsonl"
        if (suffix := Path(output).suffix.lower()) not in _OUTPUT_SUFFIXES:
            raise UserError(
                f"-o {output}: an output ends in {', '.join(_OUTPUT_SUFFIXES)}, "
                f"not {suffix or 'without any'}"
            )
        check_paths(options, output)
        is_slow = any(
            (config.components[name].backend or reward.backend) != "inline"
            for name, reward in built.items()
        )
        size = _chunk_bytes(sum(file.size for file in inputs), is_slow=is_slow)
        settings = OfflineSettings(
            inputs=inputs,
            output=output,
            rewards=config.model_dump(mode="json", exclude_none=True),
            plugins=tuple(str(Path(path).absolute()) for path in options.plugin),
            evaluation=options.eval,
            step=options.step,
            score_column=options.score_column,
            accuracy=accuracy,
            right_from=full_mark(built[accuracy].range) if accuracy in built else 1.0,
            on_bad_line=options.on_bad_line,
            limit=options.limit,
            timeout_s=options.timeout,
            memory_mb=options.memory or None,
            chunk_bytes=options.chunk_bytes or size,
        )
        with progress_bar(sum(file.size for file in inputs)) as progress:
            summary = score_files(
                settings,
                choice.workers(built.values()),
                ks=options.k,
                overwrite=options.overwrite,
                progress=progress,
            )
            diff = None if options.diff is None else diff_scores(settings, options.diff)
            if options.report is not None:
                _report(settings, summary, options.report)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{where}{error.strerror or error}") from error
    if options.json:
        shown = {**summary, "sample": len(summary["sample"])}
        print(json.dumps(shown if diff is None else {**shown, "diff": asdict(diff)}))
    else:
        print_summary(summary, settings)
        if diff is not None:
            print_diff(diff, settings)
    from rlgym_llm.offline.summary import exit_code

    return exit_code(summary)


def _chunk_bytes(total: int, *, is_slow: bool) -> int:
    """How much of the files a worker takes at a time.

    Little, where rows are slow or few: all workers have some, and what is lost with one that is
    stopped is soon scored again.
    """
    low, high = _CHUNK_BYTES
    return low if is_slow else max(low, min(high, total // _CHUNKS_PER_FILE))


def _rewards(options: argparse.Namespace, plugins: Plugins) -> tuple[RewardsConfig, str | None]:
    """The configuration that the flags describe, and the component that says right or wrong."""
    config, accuracy = RewardsConfig(), None
    if options.env is not None:
        env = plugins.load(find_env(options.env, plugins))
        if env.default_rewards is None:
            raise UserError(
                f"--env {options.env}: its rewards depend on how it is made; give them with "
                "--reward or --rewards"
            )
        config = read_rewards(env.default_rewards)
        accuracy = env.accuracy
    if options.rewards is not None:
        config = read_rewards_file(options.rewards)
    components = dict(config.components)
    components.update(read_reward_flags(options.reward))
    if not components:
        raise ConfigError(
            "no reward is configured: give --reward NAME=WEIGHT, such as --reward math=1.0, "
            "or --rewards FILE or --env ID"
        )
    components = with_options(components, options.option)
    # Every row is wanted; what failed is in it and in the summary.
    config = config.model_copy(update={"components": components, "max_error_rate": 1.0})
    config = read_rewards(config.model_dump(exclude_none=True), plugins)
    if options.accuracy is not None:
        if options.accuracy not in components:
            raise UnknownNameError("component", options.accuracy, components)
        return config, options.accuracy
    return config, accuracy_component(config, plugins, accuracy)


def _report(settings: OfflineSettings, summary: Summary, path: str) -> None:
    try:
        from rlgym_llm.report import write_report

        write_report(settings.output, summary, path)
    except ImportError as error:
        raise UserError(f"--report needs a package that is not here: {error}") from error
