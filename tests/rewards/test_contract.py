"""Every built-in reward keeps the contract that third parties are asked to keep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm.check_reward import check_reward
from rlgym_llm.plugins import Plugins
from rlgym_llm.scores import ScoreStatus
from rlgym_llm.specs import RewardSpec

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "math": [{"extraction": "strict"}, {"extraction": "lenient"}],
    "exact_match": [{}, {"squad": True}, {"unicode": "NFKC", "casefold": True, "spaces": True}],
    "format": [
        *({"style": style} for style in ("hash", "boxed", "think", "think_answer")),
        *({"style": style, "require_reasoning": True} for style in ("hash", "boxed")),
        {"style": "tags", "tags": ["think", "answer"], "may_be_empty": ["think"]},
        {"style": "think_answer", "opened_by_prompt": True, "credit": "partial"},
    ],
    "length": [
        *({"unit": unit} for unit in ("tokens", "chars", "words", "turns")),
        {"mode": "cosine", "max_len": 50},
        {"mode": "soft_overlong", "unit": "chars", "max_len": 30, "cache": 20, "factor": 0.5},
        {"mode": "group_relative", "unit": "chars"},
        {"mode": "target", "target": 20, "factor": 0.0003},
    ],
    "repetition": [{}, {"ngram": 40, "unit": "chars", "max_penalty": 0.5}],
    "regex": [
        {"pattern": r"#### (?P<answer>\d+)", "group": "answer"},
        {"pattern": ".*box.*", "mode": "fullmatch"},
        {"pattern": r"\d", "mode": "count", "flags": ["ascii"], "max_seconds": 60.0},
    ],
    "multiple_choice": [
        {"choices": ["71", "72", "73"]},
        {"choices": ["71", "72", "73"], "extraction": "strict"},
    ],
    "function": [{"path": "{folder}/mine.py:brevity"}],
    "env": [{}],
}


IN_THEIR_OWN_TESTS = ("judge", "prm", "reward_model")
"""They ask a server or a model, which those tests bring."""


@pytest.fixture(scope="module")
def specs() -> Mapping[str, RewardSpec]:
    """Every installed reward, by name."""
    return Plugins.discover().rewards()


def test_every_built_in_reward_is_checked(specs):
    ours = [n for n, spec in specs.items() if spec.entry_point.startswith("rlgym_llm_rewards.")]
    assert sorted(ours) == sorted([*OPTIONS, *IN_THEIR_OWN_TESTS])


@pytest.mark.parametrize("name", OPTIONS)
def test_contract(specs, name, tmp_path: Path):
    (tmp_path / "mine.py").write_text("def brevity(completion):\n    return len(completion) < 9\n")
    for options in OPTIONS[name]:
        given = dict(options)
        if "path" in options:
            given["path"] = options["path"].format(folder=tmp_path)
        scores = check_reward(specs[name], options=given)
        if name == "env":
            assert {score.status for score in scores} == {ScoreStatus.NOT_APPLICABLE}
        elif options != {"unit": "turns"}:  # each probe has one turn
            assert len({score.value for score in scores}) > 1


def test_the_name_of_the_spec_is_the_name_of_the_reward(specs):
    names = [*OPTIONS, *IN_THEIR_OWN_TESTS]
    assert {name: specs[name].load().name for name in names} == {name: name for name in names}
