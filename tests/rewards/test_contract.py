"""Every built-in reward keeps the contract that third parties are asked to keep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm.check_reward import check_reward
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import RewardSpec
from rlgym_llm.types import ScoreStatus

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "math": [{"extraction": "strict"}, {"extraction": "lenient"}],
    "exact_match": [{}],
    "format": [{"style": style} for style in ("hash", "boxed", "think_answer")],
    "length": [{"unit": unit} for unit in ("tokens", "chars", "turns")],
    "function": [{"path": "{folder}/mine.py:brevity"}],
    "env": [{}],
}


@pytest.fixture(scope="module")
def specs() -> Mapping[str, RewardSpec]:
    """Every installed reward, by name."""
    return Plugins.discover().rewards()


def test_every_built_in_reward_is_checked(specs):
    ours = [n for n, spec in specs.items() if spec.entry_point.startswith("rlgym_llm_rewards.")]
    assert sorted(ours) == sorted(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_contract(specs, name, tmp_path: Path):
    (tmp_path / "mine.py").write_text("def brevity(completion):\n    return len(completion) < 9\n")
    for options in OPTIONS[name]:
        given = {key: value.format(folder=tmp_path) for key, value in options.items()}
        scores = check_reward(specs[name], options=given)
        if name == "env":
            assert {score.status for score in scores} == {ScoreStatus.NOT_APPLICABLE}
        elif options != {"unit": "turns"}:  # each probe has one turn
            assert len({score.value for score in scores}) > 1


def test_the_name_of_the_spec_is_the_name_of_the_reward(specs):
    assert {name: specs[name].load().name for name in OPTIONS} == {name: name for name in OPTIONS}
