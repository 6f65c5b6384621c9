"""Each option of a policy, with what it lets pass and what it stops."""

import dataclasses
from typing import get_args, get_type_hints

import pytest
from rlgym_llm_rewards.math import POLICIES, Policy, get_policy, verify

from rlgym_llm.errors import ConfigError, UnknownNameError


def verdict(answer, gold, **options):
    return verify(rf"\boxed{{{answer}}}", gold, policy=Policy(**options)).status.value


# option, value, completion, gold, status with this value, status by default
TABLE = [
    ("extraction", "strict", "So it is 72.", "72", "no_answer", "correct"),
    ("extraction", "strict", "72", "72", "no_answer", "correct"),
    ("extraction", "strict", "#### 72", "72", "correct", "correct"),
    ("extraction", "lenient", "I saw 72. " + "Well, well. " * 40, "72", "correct", "no_answer"),
    ("thinking", "keep", r"<think>\boxed{7}</think> I cannot say so.", "7", "correct", "no_answer"),
    ("thinking", "keep", r"<think>\boxed{7}</think>\boxed{8}", "8", "correct", "correct"),
    ("thinking", "require", r"\boxed{7}", "7", "no_answer", "correct"),
    ("thinking", "require", r"<think>so</think>\boxed{7}", "7", "correct", "correct"),
    ("require_box", True, "#### 7", "7", "no_answer", "correct"),
    ("require_box", True, "The answer is 7.", "7", "no_answer", "correct"),
    ("require_box", True, r"\boxed{7}", "7", "correct", "correct"),
    ("require_box", True, r"\fbox{7}", "7", "correct", "correct"),
    ("form", "reduced", r"\boxed{2/4}", "1/2", "wrong", "correct"),
    ("form", "reduced", r"\boxed{\frac{2}{4}}", "1/2", "wrong", "correct"),
    ("form", "reduced", r"\boxed{\frac{1}{2}}", "1/2", "correct", "correct"),
    ("form", "reduced", r"\boxed{1/2}", "2/4", "correct", "correct"),
    ("form", "reduced", r"\boxed{4/2}", "2", "wrong", "correct"),
    ("form", "reduced", r"\boxed{0.5}", "1/2", "correct", "correct"),
    ("form", "reduced", r"\boxed{17\times 23}", "391", "correct", "correct"),
    ("form", "reduced", r"\boxed{(\frac{2}{4}, 1)}", "(1/2, 1)", "wrong", "correct"),
    ("form", "evaluated", r"\boxed{17\times 23}", "391", "wrong", "correct"),
    ("form", "evaluated", r"\boxed{2^3}", "8", "wrong", "correct"),
    ("form", "evaluated", r"\boxed{1+1}", "2", "wrong", "correct"),
    ("form", "evaluated", r"\boxed{3!}", "6", "wrong", "correct"),
    ("form", "evaluated", r"\boxed{x+1+1}", "x+2", "correct", "correct"),
    ("form", "evaluated", r"\boxed{2\sqrt{3}}", r"\sqrt{12}", "correct", "correct"),
    ("form", "evaluated", r"\boxed{391}", "391", "correct", "correct"),
    ("form", "evaluated", r"\boxed{-\frac{1}{2}}", "-0.5", "correct", "correct"),
    ("min_digits", 4, r"\boxed{3.142}", r"\pi", "correct", "wrong"),
    ("min_digits", 4, r"\boxed{3.14}", r"\pi", "wrong", "wrong"),
    ("min_digits", 4, r"\boxed{3.141}", r"\pi", "wrong", "wrong"),
    ("min_digits", 0, r"\boxed{3.14159265}", r"\pi", "wrong", "correct"),
    ("min_digits", 8, r"\boxed{0.333333}", "1/3", "wrong", "correct"),
    ("min_digits", 2, r"\boxed{0.5}", "1/2", "correct", "correct"),
    ("min_digits", 2, r"\boxed{0.51}", "0.512", "wrong", "wrong"),
    ("gold_rounding", True, r"\boxed{1/3}", "0.333", "correct", "wrong"),
    ("gold_rounding", True, r"\boxed{0.33333}", "0.333", "correct", "wrong"),
    ("gold_rounding", True, r"\boxed{\pi}", "3.14", "correct", "wrong"),
    ("gold_rounding", True, r"\boxed{\pi}", "3.1", "wrong", "wrong"),
    ("gold_rounding", True, r"\boxed{3.146}", "3.14", "wrong", "wrong"),
    ("gold_rounding", True, r"\boxed{0.3}", "0.333", "wrong", "wrong"),
    ("gold_rounding", True, r"\boxed{3}", "300", "wrong", "wrong"),
    ("percent_bare", False, r"\boxed{25}", r"25\%", "wrong", "correct"),
    ("percent_bare", False, r"\boxed{25\%}", "25", "wrong", "correct"),
    ("percent_bare", False, r"\boxed{25\%}", "0.25", "correct", "correct"),
    ("percent_bare", False, r"\boxed{\frac{1}{4}}", r"25\%", "correct", "correct"),
    ("percent_bare", False, r"\boxed{\frac{50}{2}}", r"25\%", "wrong", "correct"),
    ("units", "match", r"\boxed{5}", r"5\text{ cm}", "wrong", "correct"),
    ("units", "match", r"\boxed{5\text{ cm}}", "5", "wrong", "correct"),
    ("units", "match", r"\boxed{5\text{ cm}}", r"5\,\mathrm{cm}", "correct", "correct"),
    ("units", "match", r"\boxed{5\text{ m}}", r"5\text{ cm}", "wrong", "wrong"),
    ("units", "match", r"\boxed{5}", "5", "correct", "correct"),
    ("units", "match", r"\boxed{\$5}", "5", "wrong", "correct"),
    ("units", "require", r"\boxed{5}", r"5\text{ cm}", "wrong", "correct"),
    ("units", "require", r"\boxed{5\text{ cm}}", "5", "correct", "correct"),
    ("units", "require", r"\boxed{5\text{ centimetres}}", r"5\text{ cm}", "correct", "correct"),
    ("units", "require", r"\boxed{5}", r"\$5", "wrong", "correct"),
    ("decimal_comma", "never", r"\boxed{3,5}", "3.5", "wrong", "correct"),
    ("decimal_comma", "never", r"\boxed{3.5}", "3.5", "correct", "correct"),
    ("decimal_comma", "always", r"\boxed{1,234}", "1.234", "correct", "wrong"),
    ("decimal_comma", "always", r"\boxed{1,234}", "1234", "wrong", "correct"),
    ("decimal_comma", "auto", r"\boxed{3,5}", "3, 5", "correct", "correct"),
    ("list_order", "strict", r"\boxed{2, 1}", "1, 2", "wrong", "correct"),
    ("list_order", "strict", r"\boxed{1, 2}", "1, 2.0", "correct", "correct"),
    ("list_order", "strict", r"\boxed{\{2, 1\}}", r"\{1, 2\}", "correct", "correct"),
    ("list_order", "strict", r"\boxed{\{2, 1\}}", "1, 2", "correct", "correct"),
    ("strict_variables", False, r"\boxed{y=5}", "x=5", "correct", "wrong"),
    ("strict_variables", False, r"\boxed{y=5}", "x=6", "wrong", "wrong"),
    ("strict_variables", False, r"\boxed{t^2+1}", "x^2+1", "correct", "wrong"),
    ("strict_variables", False, r"\boxed{t^2+1}", "x^2-1", "wrong", "wrong"),
    ("strict_variables", False, r"\boxed{a-b}", "x-y", "correct", "wrong"),
    ("strict_variables", False, r"\boxed{a}", "x-y", "wrong", "wrong"),
    ("strict_variables", False, r"\boxed{y<5}", "x<5", "correct", "wrong"),
    ("strict_variables", False, r"\boxed{x^2+1}", "x^2+1.0", "correct", "correct"),
    ("imaginary_unit", "ij", r"\boxed{2+3j}", "2+3i", "correct", "wrong"),
    ("imaginary_unit", "ij", r"\boxed{j^2}", "-1", "correct", "wrong"),
    ("imaginary_unit", "ij", r"\boxed{2-3j}", "2+3i", "wrong", "wrong"),
    ("imaginary_unit", "ij", r"\boxed{2+3i}", "3i+2", "correct", "correct"),
]


@pytest.mark.parametrize(
    ("option", "value", "completion", "gold", "status", "default"),
    TABLE,
    ids=[f"{row[0]}={row[1]}-{row[2][:25]}-{row[3]}" for row in TABLE],
)
def test_option(option, value, completion, gold, status, default):
    assert verify(completion, gold, policy=Policy(**{option: value})).status == status
    assert verify(completion, gold).status == default


def test_every_option_and_value_is_tested():
    tested = {(row[0], row[1]) for row in TABLE}
    hints = get_type_hints(Policy)
    for field in dataclasses.fields(Policy):
        for value in get_args(hints[field.name]) or (True, False):
            if value != field.default and field.name != "min_digits":
                assert (field.name, value) in tested
    differing = {row[0] for row in TABLE if row[4] != row[5]}
    assert differing == {field.name for field in dataclasses.fields(Policy)}


def test_names():
    assert list(POLICIES) == ["strict", "standard", "lenient"]
    assert Policy() == POLICIES["standard"] == get_policy("standard")
    own = Policy(form="reduced")
    assert get_policy(own) is own
    with pytest.raises(UnknownNameError, match=r"policy.*'strikt'.*strict"):
        verify("#### 1", "1", policy="strikt")


@pytest.mark.parametrize(
    ("option", "value"),
    [("form", "short"), ("units", ""), ("extraction", "loose"), ("min_digits", -1)],
)
def test_a_value_that_no_option_has(option, value):
    with pytest.raises(ConfigError, match=f"policy, {option}: "):
        Policy(**{option: value})


def test_a_policy_is_data():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().form = "reduced"
    with pytest.raises(TypeError):
        POLICIES["mine"] = Policy()
    assert len({Policy(), Policy(), Policy(form="reduced")}) == 2


def test_verdicts_of_one_policy_are_none_of_another():
    """Verdicts are remembered: the same texts, in turn, under policies that differ."""
    for _ in range(3):
        assert verdict("2/4", "1/2") == "correct"
        assert verdict("2/4", "1/2", form="reduced") == "wrong"
        assert verdict("y=5", "x=5") == "wrong"
        assert verdict("y=5", "x=5", strict_variables=False) == "correct"
        assert verify("it is 72.", "72", policy="strict").status == "no_answer"
        assert verify("it is 72.", "72", policy="lenient").status == "correct"


@pytest.mark.parametrize(
    ("option", "value"),
    [("require_box", "false"), ("percent_bare", 1), ("min_digits", "6"), ("min_digits", True)],
)
def test_a_value_of_another_type_is_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        Policy(**{option: value})


def test_the_golds_own_text_still_needs_what_the_policy_asks_for():
    assert verify("72", "72").is_correct
    assert not verify("72", "72", policy=Policy(thinking="require")).is_correct
    assert not verify("72", "72", policy=Policy(require_box=True)).is_correct


def test_a_costly_answer_in_another_form_is_no_exception():
    root = "+".join(rf"\sqrt{{{n}}}" for n in (2, 3, 5, 7, 11, 13))
    text = f"({root})^{{12}}"
    for form in ("value", "reduced", "evaluated"):
        verdict = verify(rf"\boxed{{ {text}}}", f"{text}+0", policy=Policy(form=form))
        assert verdict.status in ("correct", "wrong", "limit")
