"""What training and evaluation prepare alike: the model, its generator, its tasks, its budgets."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.entry_point import load_entry_point
from rlgym_llm.env import TextEnv
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.errors import ConfigError, DataError
from rlgym_llm.generate import AsyncGenerator, Generator, SamplingParams
from rlgym_llm.mixture import Mixture
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.specs import GeneratorSpec, Kind
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Task
from rlgym_llm_trainers.generators.training_generator import TrainingGenerator
from rlgym_llm_trainers.generators.weight_sync.transport import check_transport
from rlgym_llm_trainers.models.model_path import check_model_path
from rlgym_llm_trainers.models.policy import Policy, load_policy, pick_device
from rlgym_llm_trainers.models.token_side import TokenSide, load_token_side
from rlgym_llm_trainers.training.environments import Openings, starter_kit_of

__all__ = [
    "ModelSource",
    "closed_on_error",
    "episode_limits",
    "find_model",
    "first_tasks",
    "fitting_tasks",
    "load_model",
    "open_model",
    "training_params",
    "turn_batching",
    "validation_params",
    "validation_tasks",
]

Note = Callable[[str], None]
"""Says one thing to whoever watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model that is there and a generator that exists, neither of them loaded."""

    path: str | Path
    device: torch.device
    generator: GeneratorSpec
    make_generator: Callable[..., TrainingGenerator]


def find_model(config: TrainConfig, plugins: Plugins) -> ModelSource:
    """Where the model lies, where it will run, and what samples from it; cheap.

    Raises UserError for an unknown generator, a path that is no model and a device that is absent.
    """
    device = pick_device(config.trainer.device)
    spec = plugins.get(Kind.GENERATOR, _generator_name(config, device))
    assert isinstance(spec, GeneratorSpec)
    make_generator = plugins.load(spec)
    if spec.check and not config.rollout.workers.address:  # a cluster may have what is not here
        load_entry_point(spec.check)()
    if config.rollout.num_workers:
        make_generator = _in_processes(spec, config, device)
    path = config.model.path or starter_kit_of(config, plugins).model
    check_model_path(path)
    check_transport(config.rollout, device.type, spec.name)
    return ModelSource(path=path, device=device, generator=spec, make_generator=make_generator)


def _generator_name(config: TrainConfig, device: torch.device) -> str:
    if config.rollout.name != "auto":
        return config.rollout.name
    has_vllm = device.type == "cuda" and importlib.util.find_spec("vllm") is not None
    return "vllm" if has_vllm else "hf"


def _in_processes(
    spec: GeneratorSpec, config: TrainConfig, device: torch.device
) -> Callable[..., TrainingGenerator]:
    from rlgym_llm_trainers.generators.ray_pool.binding import check_binding
    from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator, check_worker

    check_worker(spec)  # here, before a model is loaded
    is_own = config.rollout.workers.address is None
    check_binding(config.rollout, device.type, is_own=is_own)
    return functools.partial(RayGenerator, spec=spec)


def open_model(
    config: TrainConfig, source: ModelSource
) -> tuple[Policy | TokenSide, TrainingGenerator]:
    """Loads the model, makes its generator, and gives that the weights.

    Of a generator whose weights are elsewhere and stay there, a server say, only the tokenizer is
    loaded. Raises UserError where the model does not load, or has fewer positions than the longest
    prompt and the longest response need.
    """
    policy: Policy | TokenSide
    if source.generator.trains:
        policy = load_model(config, source)
    else:
        policy = load_token_side(source.path, trust_remote_code=config.model.trust_remote_code)
    _check_lengths(config, policy)
    generator = source.make_generator(policy, config)
    with closed_on_error(generator):
        generator.sync(generator.policy_version)  # before anything is sampled, whatever the step
    return policy, generator


def load_model(config: TrainConfig, source: ModelSource) -> Policy:
    """The policy, as the configuration wants it. Raises UserError where it does not load."""
    return load_policy(
        source.path,
        device=source.device,
        dtype=config.model.dtype,
        trust_remote_code=config.model.trust_remote_code,
        gradient_checkpointing=config.model.enable_gradient_checkpointing,
    )


def _check_lengths(config: TrainConfig, policy: Policy | TokenSide) -> None:
    limit, wanted = policy.max_positions, config.rollout.max_model_len
    if limit is not None and wanted is not None and wanted > limit:
        raise ConfigError(
            f"--rollout.max_model_len {wanted}: the model {policy.path} has {limit} positions"
        )
    needed = config.data.max_prompt_length + config.data.max_response_length
    if needed <= min(limit or needed, wanted or needed):
        return
    has = f"the model {policy.path} has {limit}"
    if wanted is not None:
        has = f"--rollout.max_model_len is {wanted}"
    raise ConfigError(
        f"--data.max_prompt_length {config.data.max_prompt_length} and "
        f"--data.max_response_length {config.data.max_response_length} need {needed} "
        f"positions, but {has}"
    )


@contextmanager
def closed_on_error(generator: Generator) -> Iterator[None]:
    """Closes the generator, which may hold processes, where the block raises."""
    try:
        yield
    except BaseException:
        generator.close()
        raise


def validation_tasks(
    config: TrainConfig, env: TextEnv, generator: Generator, note: Note
) -> tuple[Task, ...]:
    """The first ``data.val_max_samples`` tasks, those of them that `fitting_tasks` keeps."""
    tasks = first_tasks(env, config.data.val_max_samples)
    return fitting_tasks(config, tasks, generator, note, env=env, kind="validation")


def first_tasks(env: TextEnv, count: int | None) -> tuple[Task, ...]:
    """The first ``count`` tasks, None for all; of a mixture the first of every member, in turn."""
    indices = list(range(len(env.tasks)))
    if isinstance(env, Mixture):
        rounds = itertools.zip_longest(*(env.tasks.span(alias) for alias in env.members))
        indices = [index for round_ in rounds for index in round_ if index is not None]
    return tuple(env.tasks[index] for index in indices[:count])


def fitting_tasks(
    config: TrainConfig,
    tasks: TaskSource | Sequence[Task],
    generator: Generator,
    note: Note,
    *,
    env: TextEnv | None = None,
    kind: str = "training",
) -> tuple[Task, ...]:
    """The tasks whose prompts fit, or DataError where the others may not be left out.

    A prompt is what ``env`` opens an episode with, tools included.
    """
    longest = config.data.max_prompt_length
    openings = Openings(env)
    kept = []
    shortest: int | None = None
    for index in range(len(tasks)):
        task = tasks[index]
        prompt, tools = openings(task)
        encoded = generator.encode_prompt(prompt, tools=tools) if tools else None
        num_tokens = len(encoded or generator.encode_prompt(prompt))
        shortest = num_tokens if shortest is None else min(shortest, num_tokens)
        if num_tokens <= longest:
            kept.append(task)
        elif not config.data.filter_overlong_prompts:
            raise DataError(
                f"{kind} task {index} has a prompt of {num_tokens} tokens, more than "
                f"--data.max_prompt_length {longest}; raise it, or take "
                "--data.filter_overlong_prompts true"
            )
    if num_left_out := len(tasks) - len(kept):
        note(f"{num_left_out} {kind} tasks left out: prompt over {longest} tokens")
    if not kept:
        raise DataError(
            f"no {kind} task has a prompt of at most {longest} tokens (the shortest has "
            f"{shortest}); raise --data.max_prompt_length"
        )
    return tuple(kept)


def training_params(config: TrainConfig) -> SamplingParams:
    """How training samples: ``rollout`` itself."""
    return SamplingParams(
        max_new_tokens=config.data.max_response_length,
        temperature=config.rollout.temperature,
        top_p=config.rollout.top_p,
        top_k=config.rollout.top_k,
        stop=config.rollout.stop,
        stop_token_ids=config.rollout.stop_token_ids,
    )


def validation_params(config: TrainConfig) -> SamplingParams:
    """How validation and evaluation sample: ``rollout.val_kwargs``."""
    wanted = config.rollout.val_kwargs
    return SamplingParams(
        max_new_tokens=config.data.max_response_length,
        temperature=wanted.temperature if wanted.do_sample else 0.0,
        top_p=wanted.top_p if wanted.do_sample else 1.0,
        top_k=wanted.top_k if wanted.do_sample else -1,
        stop=config.rollout.stop,
        stop_token_ids=config.rollout.stop_token_ids,
    )


def episode_limits(config: TrainConfig, policy: Policy | TokenSide) -> EpisodeLimits:
    """Budgets of an episode, in training, validation and evaluation."""
    return EpisodeLimits(
        max_turns=config.rollout.max_turns,
        max_prompt_tokens=config.data.max_prompt_length,
        max_rollout_tokens=config.data.max_response_length,
        max_context_tokens=config.rollout.max_model_len or policy.max_positions,
        max_seconds=config.rollout.max_seconds,
        step_timeout_s=config.rollout.step_timeout_s,
    )


def turn_batching(config: TrainConfig, generator: TrainingGenerator) -> Batching | None:
    """How turns become batches, one at a time; None for a generator that makes its own."""
    if isinstance(generator, AsyncGenerator):
        return None
    wanted = config.rollout.batching
    return Batching(max_size=wanted.max_size, linger_s=wanted.linger_s, max_in_flight=1)
