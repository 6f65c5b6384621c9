"""``rlgym env try``: one episode, turn by turn, with its reward component by component."""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from rlgym_llm.commands.table import print_table
from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import DataConfig, EnvConfig, ModelConfig, TrainConfig
from rlgym_llm.counted import counted
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import UserError
from rlgym_llm.generate import Generator, SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import make
from rlgym_llm.rollout import EpisodeSpec, run_episodes
from rlgym_llm.scores import ScoreCard
from rlgym_llm.specs import Spec
from rlgym_llm.types import FinishReason, Message, Prompt, Rollout, RolloutStatus, Task

__all__ = ["try_env"]

# By name: the core knows no trainer.
_MODEL_OPENERS = (
    "rlgym_llm_trainers.models.torch_setup:set_up_torch",
    "rlgym_llm_trainers.training.preparation:find_model",
    "rlgym_llm_trainers.training.preparation:open_model",
)


def try_env(
    id: str,  # noqa: A002  Gymnasium's word
    plugins: Plugins,
    *,
    arguments: Mapping[str, Any],
    index: int | None = None,
    seed: int | None = None,
    model: str | None = None,
    max_tokens: int = 256,
) -> int:
    """Plays one episode from stdin, or with ``model``, and prints it; 1 where the episode failed.

    By hand every line is a turn, and a line that ends in a backslash goes on in the next; the end
    of the input leaves the episode unscored, which is no failure. Raises UserError for an unknown
    id or model, wrong arguments and an index out of range.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    env = make(id, plugins=plugins, **arguments).unwrapped
    if not isinstance(env, TextEnv):
        raise UserError(f"environment {id!r}: {type(env).__name__} is no TextEnv")
    env.defer_scoring = True  # scored below, by hand and with a model alike
    opened = None
    if model is not None:
        opened = _open_model(model, EnvConfig(id=id, kwargs=arguments), plugins, seed)
    try:
        _, info = env.reset(seed=seed, options={} if index is None else {"index": index})
        task = env.task
        spec = EpisodeSpec(id=task.id, task=task, group_id=task.id, sample_index=0, seed=seed)
        print(f"{id}, task {info['index']} of {len(env.tasks)}, seed {seed}\n")
        rollout = (
            _play_by_hand(env, spec)
            if opened is None
            else _play_with_model(env, spec, *opened, max_tokens)
        )
        if rollout is None:
            print("\nleft before the end: nothing is scored")
            return 0
        if rollout.status is not RolloutStatus.OK:
            print(f"\nthe episode failed ({rollout.status}): {rollout.error}")
            return 1
        with RewardComposer(env.rewards, plugins) as composer:
            _print_end(rollout, composer([rollout])[0])
    finally:
        env.close()
        if opened is not None:
            opened[0].close()
    return 0


def _play_by_hand(env: TextEnv, spec: EpisodeSpec) -> Rollout | None:
    """The episode with what is typed, or None where the input ends before it does."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # bytes that are no text are no reason to stop
    with suppress(ImportError):
        import readline  # noqa: F401  gives `input` its line editing
    prompt, _ = env.reset(seed=spec.seed, options={"task": spec.task})
    _print_prompt(prompt)
    terminated = truncated = False
    while not (terminated or truncated):
        text = _read_turn()
        if text is None:
            return None
        _, _, terminated, truncated, info = env.step(text)
        _print_messages(info["reply"])
        _print_env_reward(info["env_reward"])
    return Rollout(
        id=spec.id,
        task=spec.task,
        group_id=spec.group_id,
        sample_index=spec.sample_index,
        seed=spec.seed,
        turns=env.turns,
        terminated=terminated,
        truncated=truncated,
    )


def _play_with_model(
    env: TextEnv,
    spec: EpisodeSpec,
    generator: Generator,
    max_positions: int | None,
    max_tokens: int,
) -> Rollout:
    """The episode as the runner plays it: the model's own token ids from turn to turn."""
    [rollout] = run_episodes(
        [spec],
        make_env=lambda: env,
        generator=generator,
        params=SamplingParams(max_new_tokens=max_tokens),
        max_context_tokens=max_positions,
    )
    prompt, _ = env.reset(seed=spec.seed, options={"task": spec.task})
    _print_prompt(prompt)
    for turn in rollout.turns:
        print(f"> {turn.completion.text}")
        if turn.completion.finish_reason is not FinishReason.STOP:
            print(f"(cut after {counted(turn.completion.num_tokens, 'token')})")
        _print_messages(turn.reply)
        _print_env_reward(turn.env_reward)
    return rollout


def _open_model(
    model: str, env: EnvConfig, plugins: Plugins, seed: int
) -> tuple[Generator, int | None]:
    """The generator that a training run would sample with, and how many positions it has."""
    config = TrainConfig(
        env=env,
        model=ModelConfig(path=model),
        # Of a run, which has to fit the model; the episode here takes what room there is.
        data=DataConfig(max_prompt_length=1, max_response_length=1),
    )
    try:
        set_up, find_model, open_model = map(_load, _MODEL_OPENERS)
    except ImportError as error:
        raise UserError(
            f"--model {model} needs the training extra: pip install 'rlgym-llm[train]' ({error})"
        ) from error
    set_up(num_threads=None, seed=seed)
    policy, generator = open_model(config, find_model(config, plugins))
    return generator, policy.max_positions


def _load(entry_point: str) -> Callable[..., Any]:
    found: Callable[..., Any] = Spec(name=entry_point, entry_point=entry_point).load()
    return found


def _read_turn() -> str | None:
    """What is typed up to a line that does not end in a backslash; None at the end of the input."""
    lines: list[str] = []
    while True:
        line = _read_line("> " if not lines else ". ")
        if line is None:
            return "\n".join(lines) if lines else None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _read_line(mark: str) -> str | None:
    if sys.stdin is None:  # a closed descriptor: there is nothing to read
        return None
    if sys.stdin.isatty():
        try:
            return input(mark)
        except EOFError:
            return None
    line = sys.stdin.readline()
    if not line:
        return None
    line = line.removesuffix("\n").removesuffix("\r")
    print(f"{mark}{line}", flush=True)  # nobody sees a pipe's own input
    return line


def _print_prompt(prompt: Prompt) -> None:
    if isinstance(prompt, str):
        print(prompt)
    else:
        _print_messages(prompt)


def _print_messages(messages: Iterable[Message]) -> None:
    for message in messages:
        print(f"[{message.role}] {message.content}")


def _print_env_reward(reward: float | None) -> None:
    if reward is not None:
        print(f"(the environment gives {reward:g})")


def _print_end(rollout: Rollout, card: ScoreCard) -> None:
    why = "the task is over" if rollout.terminated else "a budget ran out"
    print(f"\n{why} after {counted(len(rollout.turns), 'turn')}{_answer(rollout.task)}")
    print(f"reward {_number(card.reward)}" + (f" ({card.error})" if card.error else ""))
    print_table(
        ["component", "raw", "weight", "adds", "status"],
        [
            [
                name,
                _number(component.raw),
                f"{component.weight:g}",
                _number(component.contribution),
                component.error or component.status,
            ]
            for name, component in card.components.items()
        ],
    )


def _answer(task: Task) -> str:
    return "" if task.answer is None else f"; the answer is {task.answer!r}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
