"""Weighs correctness, format and length in three ways, and shows what each of them picks.

    python examples/weigh_objectives.py                         # samples the starter model
    python examples/weigh_objectives.py --file rollouts.jsonl   # what `rlgym eval` has stored
    python examples/weigh_objectives.py --train                 # and trains it under each, too

Every task has n answers. A weighting orders them, and its best one wins (best-of-n under that
reward). The picture shows how right, how well formatted and how long the winners are. Flags that
are not listed go to the training, such as --data.val_max_samples 50.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import rlgym_llm
from rlgym_llm import Plugins, RewardComposer, Rollout, ScoreCard
from rlgym_llm.composition.expressions import R
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.store import read_rollouts

WEIGHTINGS = {  # correctness, format, length in tokens
    "correct first": (1.0, 0.1, -0.0005),
    "format first": (0.1, 1.0, -0.0005),
    "short first": (0.1, 0.1, -0.02),
}
COLOURS = {"correct first": "#0072b2", "format first": "#d55e00", "short first": "#009e73"}
GREY = "#777777"
LIFT = {"correct first": 7, "format first": -7}  # in points: their labels would touch


@dataclass(frozen=True, kw_only=True)
class Point:
    """What some answers are like: two shares, and a mean in tokens."""

    accuracy: float
    formatted: float
    length: float

    def __str__(self) -> str:
        return f"{self.accuracy:8.1%} {self.formatted:9.1%} {self.length:7.1f}"


def weigh(correct: float, formatted: float, length: float) -> RewardsConfig:
    """The three objectives under one weighting; weights are used as written."""
    objectives = correct * R("math") + formatted * R("format", style="hash") + length * R("length")
    return objectives.to_config()


def sample(num_tasks: int, num_samples: int) -> list[Rollout]:
    """Answers of the starter model to starter problems, siblings side by side."""
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    import torch
    from rlgym_llm_trainers.generators.hf_generator import HFGenerator
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.starter import starter_model_path

    from rlgym_llm.env_pool import EnvPool
    from rlgym_llm.generate import SamplingParams
    from rlgym_llm.rollout import run_groups

    env: Any = rlgym_llm.make("math-gsm8k", source="starter", split="val")
    policy = load_policy(starter_model_path(), device=torch.device("cpu"))
    groups = run_groups(
        [env.unwrapped.tasks[index] for index in range(num_tasks)],
        group_size=num_samples,
        seed=0,
        make_env=EnvPool(lambda: env),
        generator=HFGenerator(policy),
        params=SamplingParams(max_new_tokens=96, temperature=1.0),
    )
    return [rollout for group in groups for rollout in group.rollouts]


def score(rollouts: Sequence[Rollout], rewards: RewardsConfig) -> dict[str, list[ScoreCard]]:
    """The cards that have a reward, by group."""
    with RewardComposer(rewards, Plugins.discover()) as composer:
        cards = composer(rollouts)
    groups: dict[str, list[ScoreCard]] = defaultdict(list)
    for rollout, card in zip(rollouts, cards, strict=True):
        if card.reward is not None:
            groups[rollout.group_id].append(card)
    return groups


def describe(cards: Sequence[ScoreCard]) -> Point:
    """The means of the raw scores, which no weight has touched."""
    raw = {
        name: fmean(value for card in cards if (value := card.components[name].raw) is not None)
        for name in ("math", "format", "length")
    }
    return Point(accuracy=raw["math"], formatted=raw["format"], length=raw["length"])


def best_of_n(rollouts: Sequence[Rollout]) -> dict[str, Point]:
    """What the winners of each weighting are like, and any answer, for comparison."""
    points: dict[str, Point] = {}
    for name, weights in WEIGHTINGS.items():
        groups = score(rollouts, weigh(*weights))
        if not groups:
            raise SystemExit("no rollout could be scored")
        points.setdefault("any answer", describe([card for g in groups.values() for card in g]))
        winners = [max(group, key=lambda card: card.reward or 0.0) for group in groups.values()]
        points[name] = describe(winners)
    return points


def train(flags: Sequence[str], folder: Path) -> dict[str, list[Point]]:
    """Trains under each weighting; what greedy answers to validation problems were like."""
    from rlgym_llm_trainers.cli import main as rlgym_train

    paths: dict[str, list[Point]] = {}
    for name, weights in WEIGHTINGS.items():
        config, run = folder / f"{name}.yaml", folder / name
        rewards = weigh(*weights).model_dump(mode="json", exclude_defaults=True)
        config.write_text(json.dumps({"rewards": rewards}))  # JSON is YAML
        if code := rlgym_train([f"--config={config}", f"--output={run}", *flags]):
            raise SystemExit(code)
        paths[name] = read_validations(run / "metrics.jsonl")
    return paths


def read_validations(metrics: Path) -> list[Point]:
    """The validations of a run, in order."""
    points = []
    for row in map(json.loads, metrics.read_text("utf-8").splitlines()):
        found = {key.split("/")[-2]: value for key, value in row.items() if key[:4] == "val-"}
        if "acc" in found:
            points.append(
                Point(accuracy=found["acc"], formatted=found["format"], length=found["length"])
            )
    return points


def draw(points: Mapping[str, Point], paths: Mapping[str, Sequence[Point]], file: Path) -> None:
    """Accuracy against length: the winners, and beside them, if there is any, the training."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9 if paths else 5, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 if paths else 1, squeeze=False, sharex=True, sharey=True)[0]
    panels[0].set(title="the best of each group wins", ylabel="right", ylim=(-0.08, 1.08))
    for name, point in points.items():
        _draw_course(panels[0], name, [point])
    for name, course in paths.items():
        panels[1].set_title("trained on it (greedy; the ring is before)")
        _draw_course(panels[1], name, course)
    for panel in panels:
        panel.set(xlabel="tokens of an answer")
        panel.margins(x=0.05)
        panel.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0%", "25%", "50%", "75%", "100%"])
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    left, right = panels[0].get_xlim()
    panels[0].set_xlim(left, right + 0.4 * (right - left))  # for the labels
    figure.savefig(file)


def _draw_course(panel: Any, name: str, course: Sequence[Point]) -> None:
    colour, last = COLOURS.get(name, GREY), course[-1]
    lengths, shares = [p.length for p in course], [p.accuracy for p in course]
    panel.plot(lengths, shares, color=colour, marker=".", linewidth=1.5, alpha=0.6)
    panel.plot(lengths[-1], shares[-1], "o", color=colour, markersize=9)
    if len(course) > 1:
        panel.plot(lengths[0], shares[0], "o", color="white", markeredgecolor=GREY, markersize=8)
    panel.annotate(
        f"{name}\n{last.formatted:.0%} in format",
        (last.length, last.accuracy),
        xytext=(9, LIFT.get(name, 0)),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=9,
    )


def show(title: str, points: Mapping[str, Point]) -> None:
    """Prints a table."""
    print(f"\n{title:28} {'right':>8} {'in format':>9} {'tokens':>7}")
    for name, point in points.items():
        weights = "" if name not in WEIGHTINGS else "{:g} {:g} {:g}".format(*WEIGHTINGS[name])
        print(f"{name:14}{weights:14} {point}")


def main() -> None:
    """Scores one set of answers under every weighting, and with --train trains under each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="rollouts.jsonl of `rlgym eval --n N`")
    parser.add_argument("--tasks", type=int, default=100, help="tasks that are sampled")
    parser.add_argument("--n", type=int, default=8, help="answers to each")
    parser.add_argument("--train", action="store_true", help="train the starter model, too")
    parser.add_argument("--steps", type=int, default=20, help="of each training")
    parser.add_argument("--output", type=Path, default=Path("weigh_objectives.png"))
    arguments, rest = parser.parse_known_args()
    if rest and not arguments.train:
        parser.error(f"{rest[0]} is a flag of training: it goes with --train")
    if arguments.file is None:
        rollouts = sample(arguments.tasks, arguments.n)
    else:
        rollouts = [record.rollout for record in read_rollouts(arguments.file).records]
    points = best_of_n(rollouts)
    paths: dict[str, list[Point]] = {}
    if arguments.train:
        with TemporaryDirectory() as folder:
            flags = [f"--trainer.total_training_steps={arguments.steps}", *rest]
            paths = train(flags, Path(folder))
    show("winners of each group", points)
    if paths:
        show("after training", {name: course[-1] for name, course in paths.items()})
    draw(points, paths, arguments.output)
    print(f"\n{arguments.output}")


if __name__ == "__main__":
    main()
