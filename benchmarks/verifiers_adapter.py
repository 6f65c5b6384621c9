"""Environments of the real verifiers as ours, and ours as its.

    python benchmarks/verifiers_adapter.py --peers DIR

verifiers runs in an environment of its own below ``--peers``, made on the first run. A taskset of
one turn, an environment of several turns and one of two agents are written here with verifiers'
own classes; the rewards, their names and weights, the turns and the ends must come out as it
defines them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from shim_peers import check, run_inside

SUMS = """
import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsData(vf.TaskData):
    answer: str


class SumsTask(vf.Task[SumsData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def brief(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 5)

    @vf.metric
    async def num_chars(self, trace: vf.Trace) -> float:
        return len(trace.last_reply)


class SumsConfig(vf.TasksetConfig):
    first: int = 1


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    def load(self):
        for number in range(self.config.first, self.config.first + 4):
            data = SumsData(
                prompt=f"{number} + 2 = ?", system_prompt="Answer alone.", answer=str(number + 2)
            )
            yield SumsTask(data, self.config.task)
"""
GUESS = """
import itertools
import random

import verifiers.v1 as vf

__all__ = ["GuessTaskset", "GuessEnv"]


class GuessTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.5)
    async def polite(self, trace: vf.Trace) -> float:
        return float("please" in trace.transcript)


class GuessConfig(vf.TasksetConfig):
    pass


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            yield GuessTask(vf.TaskData(name=f"guess {number}"), self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task, agents):
        random.seed(task.data.idx)
        secret = random.randint(1, 8)
        won = 0.0
        async with agents.player.interaction(task) as talk:
            said = await talk.turn("Guess a number from 1 to 8.")
            while not said.terminated:
                words = said.last_reply.split()
                if not words or not words[0].isdigit():
                    break
                if int(words[0]) == secret:
                    won = 1.0
                    break
                said = await talk.turn("higher" if int(words[0]) < secret else "lower")
        talk.trace.record_reward("won", won)

    async def finalize(self, task, episode):
        episode.traces[0].record_metric("num_turns", episode.traces[0].num_turns)
"""
OURS = """
from rlgym_llm.shims.verifiers import to_verifiers

RlgymTaskset, RlgymEnv = to_verifiers("math-gsm8k", source="starter", num_problems=5)
__all__ = ["RlgymTaskset", "RlgymEnv"]
"""


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("verifiers", __file__)
    from importlib.metadata import version

    print(f"verifiers {version('verifiers')}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in (
            ("rlgym_sums", SUMS),
            ("rlgym_guess", GUESS),
            ("rlgym_ours", OURS),
        ):
            Path(scratch, f"{name}.py").write_text(text)
        sys.path.insert(0, scratch)
        one_turn()
        many_turns()
        refused()
        by_name(Path(scratch))
        ours_as_theirs()
    return 0


def one_turn() -> None:
    """A taskset whose episodes are one reply, with two rewards and a metric."""
    from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

    from rlgym_llm.check_env import check_env

    env = VerifiersEnv(env="rlgym_sums", kwargs={"taskset": {"first": 5}})
    check(len(env.tasks) == 4, "one turn: every task of the taskset")
    prompt, _ = env.reset(options={"index": 1})
    said = [(message.role, message.content) for message in prompt]
    check(
        said == [("system", "Answer alone."), ("user", "6 + 2 = ?")],
        f"one turn: the prompt is the task's, with an option of its taskset {said}",
    )
    for text, wanted in (("8", 1.25), ("9", 0.25), ("it is 8", 0.0)):
        env.reset(options={"index": 1})
        _, reward, terminated, truncated, info = env.step(text)
        check(
            (reward, terminated, truncated) == (wanted, True, False),
            f"one turn: {text!r} is paid {reward}",
        )
        named = info["verifiers"]
        weights = {name: one["weight"] for name, one in named["rewards"].items()}
        check(
            weights == {"exact": 1.0, "brief": 0.25}
            and named["rewards"]["exact"]["score"] == float(text == "8")
            and named["metrics"] == {"num_chars": len(text)},
            f"one turn: {text!r} has the rewards and metrics by name: {named}",
        )
    check_env(env)
    check(True, "one turn: check_env holds")


def many_turns() -> None:
    """An environment that answers the model, pays in ``run`` and measures in ``finalize``."""
    import pickle

    from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

    env = VerifiersEnv(env="rlgym_guess", num_tasks=3, draws_globally=True)
    prompt, _ = env.reset(options={"index": 2})
    check(prompt[-1].content == "Guess a number from 1 to 8.", "many turns: the user opens")
    secret = play(env)
    check(1 <= secret <= 8, f"many turns: bisection finds {secret}, and ends the episode")
    env.reset(options={"index": 2})
    env.step("8 please" if secret < 8 else "7 please")
    for copied, how in ((pickle.loads(pickle.dumps(env)), "pickled"), (env.clone(), "cloned")):
        _, reward, terminated, _, info = copied.step(str(secret))
        check(
            (reward, terminated) == (1.5, True)
            and info["verifiers"]["metrics"] == {"num_turns": 2.0},
            f"many turns: a copy {how} in mid-episode goes on to {reward} {info['verifiers']}",
        )
    envs = [env.fresh() for _ in range(50)]
    for number, one in enumerate(envs):
        one.reset(options={"index": number % 3})
    ends = [play(one) for one in envs]
    check(ends == [ends[number % 3] for number in range(50)], "many turns: 50 episodes at once")
    for one in (env, *envs):
        one.close()


def play(env: Any) -> int:
    """The number that bisection finds."""
    low, high = 1, 8
    while True:
        guess = (low + high) // 2
        *_, terminated, _, info = env.step(str(guess))
        if terminated:
            return guess
        if info["reply"][0].content == "higher":
            low = guess + 1
        else:
            high = guess - 1


PLUGIN = """
from rlgym_llm import RewardSpec, hookimpl


@hookimpl
def rlgym_register(kind):
    entry_point = "rlgym_llm_envs.adapters.verifiers_reward:VerifiersReward"
    return [RewardSpec(name="verifiers", entry_point=entry_point)] if kind == "reward" else []
"""


def by_name(folder: Path) -> None:
    """Verifiers' rewards as components of ours, each by its name."""
    from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

    from rlgym_llm.plugins import Plugins

    plugin = folder / "verifiers_plugin.py"
    plugin.write_text(PLUGIN)
    components: dict[str, Any] = {}
    for name, weight in (("exact", 1.0), ("brief", 0.25), ("num_chars", -0.01)):
        options = {"env": "rlgym_sums", "signal": name}
        components[name] = {"reward": "verifiers", "weight": weight, "options": options}
    env = VerifiersEnv(env="rlgym_sums", rewards={"components": components})
    env.plugins = Plugins.discover([plugin])
    env.reset(options={"index": 0})
    *_, info = env.step("3")
    wanted = {"exact": 1.0, "brief": 1.0, "num_chars": 1.0}
    check(info["components"] == wanted, f"by name: one turn's components {info['components']}")
    check(round(info["score"].reward, 12) == 1.24, f"by name: they sum to {info['score'].reward}")
    options = {"env": "rlgym_guess", "signal": "won", "draws_globally": True}
    won = {"components": {"won": {"reward": "verifiers", "weight": 1.0, "options": options}}}
    env = VerifiersEnv(env="rlgym_guess", num_tasks=3, draws_globally=True, rewards=won)
    env.plugins = Plugins.discover([plugin])
    env.reset(options={"index": 1})
    play(env)
    check(env.turns[-1].env_reward == 1.0, "by name: many turns are paid by verifiers")
    env.reset(options={"index": 1})
    *_, reward, _, _, info = env.step("nonsense")
    check((reward, info["components"]) == (0.0, {"won": 0.0}), "by name: and played again")


def refused() -> None:
    """What cannot be played here is refused in one line."""
    from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

    from rlgym_llm.errors import UserError

    for options, words in (
        ({"env": "no_such_taskset"}, "is not installed"),
        ({"env": "rlgym_guess"}, "give num_tasks"),
        ({"env": "rlgym_guess", "num_tasks": 1, "agent": "judge"}, "has no agent 'judge'"),
        ({"env": "rlgym_sums", "kwargs": {"id": "user-sim"}}, "give agent="),
        ({"env": "rlgym_sums", "kwargs": {"id": "user-sim"}, "agent": "assistant"}, "asks agent"),
        ({"env": "rlgym_sums", "kwargs": {"taskset": {"frist": 1}}}, "frist"),
    ):
        try:
            VerifiersEnv(**options)
        except UserError as error:
            check(words in str(error), f"refused: {error}")
        else:
            check(False, f"{options} is taken in silence")


def ours_as_theirs() -> None:
    """Ours as a taskset and an ``Env`` of verifiers, played through its own classes."""
    from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

    from rlgym_llm.registry import make

    ours: Any = make("math-gsm8k", source="starter", num_problems=5).unwrapped
    theirs = VerifiersEnv(env="rlgym_ours")
    check(len(theirs.tasks) == 5, "ours as theirs: a task of theirs for each of ours")
    for text in (ours.gold_action(ours.tasks[3]), "no idea"):
        prompt, _ = ours.reset(options={"index": 3})
        asked, _ = theirs.reset(options={"index": 3})
        check(asked == prompt, "ours as theirs: the same prompt")
        *_, card = ours.step(text)
        *_, told = theirs.step(text)
        check(
            told["verifiers"]["rewards"] == {"rlgym": {"score": card["score"].reward, "weight": 1}},
            f"ours as theirs: the same reward {card['score'].reward}",
        )
        check(
            told["verifiers"]["metrics"] == card["components"],
            "ours as theirs: the components are metrics",
        )


if __name__ == "__main__":
    raise SystemExit(main())
