import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.composition.card import Term, compose
from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.composition.placement import step_ends, token_rewards
from rlgym_llm.scores import Score, StepScore
from rlgym_llm.types import Completion, Rollout, Task, Turn


def rollout(*texts: str, chars_per_token: int = 1, ends: bool = True) -> Rollout:
    """Turns of these texts, a token every so many characters."""
    turns = []
    for text in texts:
        char_ends = tuple(
            min(end, len(text))
            for end in range(chars_per_token, len(text) + chars_per_token, chars_per_token)
        )
        completion = Completion(
            text=text,
            token_ids=tuple(range(len(char_ends))),
            token_char_ends=char_ends if ends else None,
        )
        turns.append(Turn(new_prompt_token_ids=(), completion=completion))
    return Rollout(
        id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0, turns=tuple(turns)
    )


def placed(of: Rollout, scores: dict[str, Score], rules: dict[str, dict], **section):
    """The card's reward, and the tokens' rewards."""
    components = {name: ComponentConfig(reward=name, **rule) for name, rule in rules.items()}
    terms = {
        name: Term(
            weight=c.weight,
            gates=c.gate,
            potential_gamma=c.gamma if c.placement == "potential" else None,
        )
        for name, c in components.items()
    }
    card = compose("r", scores, terms, **section)
    return card.reward, token_rewards(of, card, components)


def steps(*values: tuple[float, int, int]) -> tuple[StepScore, ...]:
    return tuple(StepScore(value=v, char_start=a, char_end=b) for v, a, b in values)


def score(name: str, value: float, *where: tuple[float, int, int]) -> Score:
    return Score(name=name, value=value, steps=steps(*where))


def test_the_last_sampled_token_of_the_last_turn():
    reward, tokens = placed(rollout("ab", "cde"), {"m": score("m", 1.0)}, {"m": {"weight": 2.0}})
    assert reward == 2.0
    assert tokens == ((0.0, 0.0), (0.0, 0.0, 2.0))


def test_steps_land_on_the_token_that_holds_their_last_character():
    # Tokens of 3 characters: "one", "\ntw", "o". Step "one" ends in token 0, "two" in token 2.
    prm = score("prm", 0.75, (0.25, 0, 3), (0.5, 4, 7))
    reward, tokens = placed(
        rollout("one\ntwo", chars_per_token=3),
        {"prm": prm, "m": score("m", 1.0)},
        {"prm": {"weight": 2.0, "placement": "step"}, "m": {}},
    )
    assert reward == 2.5  # 2 * 0.75 + 1
    assert tokens == ((0.5, 0.0, 2.0),)  # 2 * 0.25; 2 * 0.5 + 1


def test_steps_of_a_later_turn():
    # rollout.text is "ab\ncd": characters 3 and 4 are those of the second turn.
    prm = score("prm", 3.0, (1.0, 0, 1), (2.0, 3, 4))
    _, tokens = placed(rollout("ab", "cd"), {"prm": prm}, {"prm": {"placement": "step"}})
    assert tokens == ((1.0, 0.0), (2.0, 0.0))


def test_turns_need_no_characters():
    prm = score("prm", 3.0, (1.0, 0, 1), (2.0, 3, 4))
    _, tokens = placed(
        rollout("ab", "cd", ends=False), {"prm": prm}, {"prm": {"placement": "turn"}}
    )
    assert tokens == ((0.0, 1.0), (0.0, 2.0))


def test_what_a_clip_cuts_lands_on_the_last_token():
    prm = score("prm", 3.0, (1.0, 0, 1), (2.0, 1, 2))
    reward, tokens = placed(
        rollout("abc"), {"prm": prm}, {"prm": {"placement": "step"}}, clip=(-1.0, 2.5)
    )
    assert reward == 2.5
    assert tokens == ((1.0, 2.0, -0.5),)


def test_shares_that_cancel_keep_their_places():
    prm = score("prm", 0.0, (0.5, 0, 1), (-0.5, 1, 2))
    reward, tokens = placed(
        rollout("abc"), {"prm": prm}, {"prm": {"placement": "step", "weight": 2.0}}
    )
    assert (reward, tokens) == (0.0, ((1.0, -1.0, 0.0),))


def test_a_closed_gate_leaves_nothing():
    prm = score("prm", 3.0, (1.0, 0, 1), (2.0, 1, 2))
    reward, tokens = placed(
        rollout("abc"),
        {"m": score("m", 0.0), "prm": prm},
        {"m": {}, "prm": {"placement": "step", "gate": {"on": "m", "value": 1.0}}},
    )
    assert reward == 0.0
    assert tokens == ((0.0, 0.0, 0.0),)


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [
        (1.0, [0.2, 0.3, 0.4]),  # 0.2 - 0, 0.5 - 0.2, 0.9 - 0.5
        (0.5, [0.1, 0.05, -0.05]),  # 0.5 * 0.2 - 0, 0.5 * 0.5 - 0.2, 0.5 * 0.9 - 0.5
    ],
)
def test_potentials(gamma, expected):
    prm = score("prm", 0.9, (0.2, 0, 1), (0.5, 1, 2), (0.9, 2, 3))
    rules = {"prm": {"placement": "potential", "gamma": gamma}}
    reward, (tokens,) = placed(rollout("abcd"), {"prm": prm}, rules)
    assert tokens == pytest.approx([*expected, 0.0], abs=1e-12)
    discounted = sum(gamma**k * value for k, value in enumerate(tokens))
    assert reward == pytest.approx(discounted, abs=1e-12)


def test_potentials_that_end_at_0_still_tell_the_way():
    prm = score("prm", 0.0, (0.5, 0, 1), (0.0, 1, 2))
    reward, tokens = placed(rollout("ab"), {"prm": prm}, {"prm": {"placement": "potential"}})
    assert (reward, tokens) == (0.0, ((0.5, -0.5),))


def test_steps_without_characters_are_refused():
    prm = score("prm", 1.0, (1.0, 0, 1))
    with pytest.raises(ValueError, match="carries no token_char_ends; take placement turn"):
        placed(rollout("ab", ends=False), {"prm": prm}, {"prm": {"placement": "step"}})


def test_no_reward_and_no_token_are_refused():
    with pytest.raises(ValueError, match="has no reward to place"):
        placed(rollout("a"), {"m": Score(name="m", value=None, status="error")}, {"m": {}})
    with pytest.raises(ValueError, match="no sampled token"):
        placed(rollout(""), {"m": score("m", 1.0)}, {"m": {}})


numbers = st.floats(-100, 100)


@given(
    st.lists(numbers, min_size=1, max_size=6),
    numbers,
    numbers,
    st.sampled_from(["last_token", "turn", "step", "token", "potential"]),
    st.none() | st.tuples(numbers, numbers).map(lambda pair: tuple(sorted(pair))),
)
def test_the_tokens_add_up_to_the_reward(shares, weight, other, placement, clip):
    total = math.fsum(shares) if placement != "potential" else shares[-1]
    where = [(share, index, index + 1) for index, share in enumerate(shares)]
    reward, tokens = placed(
        rollout("abcdef", "gh"),
        {"prm": score("prm", total, *where), "m": score("m", other)},
        {"prm": {"weight": weight, "placement": placement}, "m": {}},
        clip=clip,
    )
    flat = [value for turn in tokens for value in turn]
    # The last token rounds what it takes: half a unit in the last place of the largest number.
    assert abs(math.fsum(flat) - reward) <= 2**-52 * max(map(abs, flat))


def ends_of(of: Rollout, scores: dict[str, Score], rules: dict[str, dict]):
    components = {name: ComponentConfig(reward=name, **rule) for name, rule in rules.items()}
    terms = {name: Term(weight=c.weight, gates=c.gate) for name, c in components.items()}
    return step_ends(of, compose("r", scores, terms), components)


def test_steps_end_where_their_shares_lie_whatever_they_earned():
    prm = score("prm", 0.5, (0.0, 0, 2), (0.5, 2, 3))
    rules = {"prm": {"placement": "step"}}
    assert ends_of(rollout("abcd"), {"prm": prm}, rules) == ((False, True, True, False),)


def test_the_outcome_is_a_step_of_its_own_even_where_it_is_0():
    scores = {"prm": score("prm", 0.5, (0.5, 0, 2)), "right": score("right", 0.0)}
    rules = {"prm": {"placement": "step"}, "right": {}}
    assert ends_of(rollout("ab", "cd"), scores, rules) == ((False, True), (False, True))
    metric = {"prm": {"placement": "step"}, "right": {"weight": 0.0}}
    assert ends_of(rollout("ab", "cd"), scores, metric) == ((False, True), (False, False))


def test_turns_end_on_their_last_token():
    env = score("env", 1.0, (1.0, 0, 1), (0.0, 3, 4))
    rules = {"env": {"placement": "turn"}}
    assert ends_of(rollout("ab", "cd"), {"env": env}, rules) == ((False, True), (False, True))
