import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlgym_llm.plugins import Plugins
from rlgym_llm.rewards import Reward, build_reward, reward
from rlgym_llm.specs import Kind
from rlgym_llm.stress import attacks, stress_reward


@reward("contains")
def contains(completion, answer):
    """Falls for everything that says the answer somewhere."""
    return answer in completion


@reward("first_box")
def first_box(completion, answer):
    if "<think>" * 50 in completion:
        raise RecursionError("too deep")
    return completion.partition(r"\boxed{")[2].startswith(answer + "}")


class Slow(Reward):
    name = "slow"

    def score(self, rollout, ctx):
        if not rollout.text:
            time.sleep(1.1)
        return 0.0


def problems(found, **options):
    report = stress_reward(build_reward(found), **options)
    return {finding.attack: finding.problem for finding in report.problems}


def test_what_contains_the_answer_is_paid():
    found = problems(contains)
    assert found["gold in the thinking"] == found["every answer, boxed"] == "pays"
    assert found["gold denied"] == found["near misses"] == "pays"
    assert "empty text" not in found
    assert "repetition" not in found


def test_a_failure_is_told_from_a_payment():
    found = problems(first_box)
    assert found["every answer, boxed"] == "pays"
    assert found["huge text"].startswith("fails: reward 'first_box' on rollout")
    assert "RecursionError: too deep" in found["huge text"]


def test_a_slow_call_is_named():
    assert problems(Slow, slow_s=1.0) == {"empty text": "slow"}
    assert problems(Slow) == {}


def test_the_verifier_pays_nothing():
    plugins = Plugins.discover()
    math = plugins.load(plugins.get(Kind.REWARD, "math"))
    report = stress_reward(build_reward(math))
    assert (report.right, report.wrong) == (1.0, 0.0)
    assert [finding for finding in report.findings if finding.value] == []


def test_no_attack_ends_in_the_answer():
    # Each text either leaves the answer out, or says other answers beside or after it.
    for attack in attacks("36 + 36?", "72", "73"):
        for text in attack.texts:
            assert text.strip() not in ("72", r"\boxed{72}", "#### 72", "<answer>72</answer>")


def rlgym(*arguments):
    command = [Path(sys.executable).with_name("rlgym"), "reward", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def contains(completion, answer):\n    return float(answer in completion)\n")
    done = rlgym("stress", f"{path}:contains")
    assert done.returncode == 1, done.stderr
    assert "the best honest right answer gets 1, the best honest wrong one 0" in done.stdout
    assert "gold denied" in done.stdout
    assert re.search(r"of \d+, \d+ attacks? shows? a problem", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stress", "mth"], "unknown reward 'mth'; did you mean 'math'"),
        (["stress", "math", "--gold", "5"], "give all three"),
        (["stress", "math", "--option", "polcy=x"], "reward 'math' has no option 'polcy'"),
        (["stress", "math", "--option", "x"], "is no COMPONENT.KEY=VALUE"),
        (["show"], "required: name"),
        (["new", "Bad-Name"], "is no snake_case word"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, message):
    done = rlgym(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
