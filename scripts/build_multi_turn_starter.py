"""Rebuild the starter model of the environments of several turns, and its tokenizer, from nothing.

    python scripts/build_multi_turn_starter.py \
        --output trainers/rlgym_llm_trainers/starters/multi_turn

A tiny Llama is warm-started on episodes of guess-number and gsm8k-calculator, the environments'
own words to the token: first on good play, then on a mix in which most guesses count up or are
anything, and most answers are made up without the calculator. The model knows the good way and
mostly does not take it: room that reinforcement learning wins back.
One seed on one thread gives the same weights again on the same machine.
"""

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from build_starter import PIECES, Micro, run, train_tokenizer, warm_start, write_record
from multi_turn_recipe import (
    Episode,
    MultiTurnRecipe,
    play_calculator,
    play_guesses,
    starter_envs,
)
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.models.chat import prompt_ids, reply_ids
from rlgym_llm_trainers.models.policy import load_policy

from rlgym_llm.compose import RewardComposer
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import run_groups
from rlgym_llm.tools.parse import parse_tool_calls

CALL_MARKS: Final = ("<tool_call>", "</tool_call>")
CALL_PIECES: Final = r'\{"name[^{]*\{"expression": "|' + PIECES
"""All of a call that is always the same is one piece, so one token."""


def episodes(recipe: MultiTurnRecipe, rng: random.Random) -> Iterator[Callable[[bool], Episode]]:
    """Yield one player after the other, each for a task of its own; called with `is_clean`."""
    envs = starter_envs("train", 1_000_000)
    for index in itertools.count():
        is_guess = rng.random() < recipe.guess_share
        env = envs["guess-number" if is_guess else "gsm8k-calculator"]
        play: Any = play_guesses if is_guess else play_calculator
        yield lambda is_clean, env=env, play=play, index=index: play(  # type: ignore[misc]
            env, index, rng, recipe, is_clean=is_clean
        )


def build_tokenizer(recipe: MultiTurnRecipe) -> Any:
    """Return a byte-level BPE tokenizer fitted to the episodes' text; any string encodes."""

    def texts() -> Iterator[str]:
        players = episodes(recipe, random.Random(recipe.seed))
        for play in itertools.islice(players, recipe.tokenizer_episodes):
            episode = play(False)
            for message in episode.opening:
                yield from _without_marks(f"{message.role}\n{message.content}")
            for turn in episode.turns:
                yield from _without_marks(f"assistant\n{turn.text}")
                yield from (f"{message.role}\n{message.content}" for message in turn.reply)

    # Calls are read from decoded text, so what marks them is not special.
    return train_tokenizer(texts(), recipe, pieces=CALL_PIECES, marks=CALL_MARKS)


def _without_marks(text: str) -> list[str]:
    return re.split("|".join(CALL_MARKS), text)


Row = tuple[list[int], list[bool]]


def episode_row(episode: Episode, tokenizer: Any, encode_reply: Callable[..., Any]) -> Row:
    """Return the ids of an episode as the generator would have them, and which are learned."""
    ids = list(prompt_ids(tokenizer, episode.opening, path="starter"))
    mask = [False] * len(ids)
    for turn in episode.turns:
        said = [*tokenizer(turn.text, add_special_tokens=False)["input_ids"]]
        said.append(tokenizer.eos_token_id)
        heard = list(encode_reply(turn.reply)) if turn.reply else []
        ids += said + heard
        mask += [turn.is_learned] * len(said) + [False] * len(heard)
    return ids, mask


def training_batches(recipe: MultiTurnRecipe, tokenizer: Any) -> Iterator[list[Micro]]:
    """Yield batches as micro-batches of (token ids [B, T], loss mask [B, T]), right-padded."""
    encode_reply = functools.lru_cache(maxsize=10_000)(
        functools.partial(
            reply_ids, tokenizer, eos_token_ids=(tokenizer.eos_token_id,), path="starter"
        )
    )
    players = episodes(recipe, random.Random(recipe.seed + 1))
    size = recipe.batch_size // recipe.num_micro
    for step in itertools.count():
        is_clean = step < recipe.num_clean_steps
        drawn = itertools.islice(players, recipe.batch_size)
        rows = [episode_row(play(is_clean), tokenizer, encode_reply) for play in drawn]
        rows.sort(key=lambda row: len(row[0]))  # so that little is padding
        yield [
            _padded(rows[i : i + size], tokenizer.pad_token_id) for i in range(0, len(rows), size)
        ]


def _padded(rows: list[Row], pad: int) -> Micro:
    width = max(len(ids) for ids, _ in rows)
    return (
        torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows]),
        torch.tensor([mask + [False] * (width - len(mask)) for _, mask in rows]),
    )


def measure(folder: Path, num_tasks: int = 100) -> dict[str, float]:
    """Return figures of play on val tasks, greedy and sampled: mean rewards, well-formed shares."""
    policy = load_policy(folder, device=torch.device("cpu"))
    plugins = Plugins.discover()
    measured = {}
    for name, env in starter_envs("val", num_tasks).items():
        composer = RewardComposer(env.rewards, plugins, evaluation=True)
        for way, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            groups = run_groups(
                list(env.tasks),
                group_size=1,
                seed=0,
                make_env=EnvPool(lambda env=env: env),  # type: ignore[misc]
                generator=HFGenerator(policy),
                params=SamplingParams(max_new_tokens=96, temperature=temperature),
                max_context_tokens=policy.max_positions,
            )
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            rewards = [card.reward or 0.0 for card in composer(rollouts)]
            texts = [turn.completion.text for rollout in rollouts for turn in rollout.turns]
            well_formed = [is_well_formed(name, text) for text in texts]
            measured[f"{name}/{way}_reward"] = round(sum(rewards) / len(rewards), 4)
            measured[f"{name}/{way}_well_formed"] = round(sum(well_formed) / len(texts), 4)
        composer.close()
    return measured


def is_well_formed(name: str, text: str) -> bool:
    """Tell whether a turn is a number alone, or has calls that can be read and nothing like one."""
    if name == "guess-number":
        return re.fullmatch(r"\d{1,2}", text) is not None
    return all(call.error is None for call in parse_tool_calls(text)[1])


def build(
    output: Path, recipe: MultiTurnRecipe, *, report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Build tokenizer and model, write the folder `output` and return what recipe.json says.

    Raises:
        FileExistsError: `output` is there already.
    """
    tokenizer = build_tokenizer(recipe)
    model = warm_start(output, recipe, tokenizer, training_batches(recipe, tokenizer), report)
    return write_record(output, recipe, model, measure(output), report)


if __name__ == "__main__":
    run(
        "the multi-turn starter",
        lambda output, report: build(output, MultiTurnRecipe(), report=report),
    )
