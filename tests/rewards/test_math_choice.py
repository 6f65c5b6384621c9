"""Multiple choice is decided by the letter, words as they are written."""

import pytest
from rlgym_llm_rewards.math import verify
from rlgym_llm_rewards.math.choice import choice_of_gold, choices, has_words, is_words, words


@pytest.mark.parametrize(
    ("gold", "choice"),
    [
        ("C", ("C", "")),
        ("(C)", ("C", "")),
        ("C.", ("C", "")),
        (r"\text{C}", ("C", "")),
        (r"\textbf{(C)}", ("C", "")),
        ("$C$", ("C", "")),
        ("(C) 12", ("C", "12")),
        ("C: twelve", ("C", "twelve")),
        ("(P)", ("P", "")),
        ("P", None),
        ("x", None),
        ("c", None),
        ("CD", None),
        ("12", None),
        ("C=12", None),
        ("C + 1", None),
        ("C^2", None),
        ("", None),
    ],
)
def test_choice_of_gold(gold, choice):
    assert choice_of_gold(gold) == choice


@pytest.mark.parametrize(
    ("answer", "letters"),
    [
        ("C", ["C"]),
        ("c", ["C"]),
        ("(C)", ["C"]),
        ("C.", ["C"]),
        ("C) 12", ["C"]),
        (r"\textbf{(C) } 12", ["C"]),
        (r"\text{C: twelve}", ["C"]),
        ("A or C", ["A", "C"]),
        ("A, C", ["A", "C"]),
        ("C, C", ["C"]),
        ("CAB", []),
        ("12", []),
        ("C+1", []),
        ("", []),
    ],
)
def test_choices(answer, letters):
    assert choices(answer) == letters


@pytest.mark.parametrize(
    ("completion", "gold", "status"),
    [
        (r"\boxed{C}", "C", "correct"),
        (r"\boxed{c}", "C", "correct"),
        (r"\boxed{(C)}", "C", "correct"),
        (r"\boxed{\text{C}}", "(C)", "correct"),
        (r"\boxed{C. 12}", "C", "correct"),
        (r"\boxed{C}", "(C) 12", "correct"),
        (r"\boxed{12}", "(C) 12", "correct"),
        (r"\boxed{\text{Lisbon}}", "(C) Lisbon", "correct"),
        ("The answer is (C) because D is too large.", "C", "correct"),
        ("The correct option is C.", "C", "correct"),
        ("A is too small, B too large. So it is C.", "C", "correct"),
        (r"\boxed{D}", "C", "wrong"),
        (r"\boxed{D) 12}", "(C) 12", "wrong"),
        (r"\boxed{13}", "(C) 12", "wrong"),
        (r"\boxed{12}", "C", "wrong"),
        (r"\boxed{CD}", "C", "wrong"),
        (r"\boxed{2.71828}", "E", "wrong"),
        (r"\boxed{e}", "E", "correct"),
        (r"\boxed{A or C}", "C", "ambiguous"),
        (r"\boxed{A, B, C, D}", "C", "ambiguous"),
        (r"\boxed{A or B}", "C", "wrong"),
        ("I cannot say.", "C", "no_answer"),
    ],
)
def test_verdicts_on_letters(completion, gold, status):
    assert verify(completion, gold).status == status


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\text{Yes}.", "yes"),
        ("  The  END ", "the end"),
        (r"$\textbf{a \textit{b}}$", "a b"),
        ("50%", "50%"),
        ("", ""),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "are"), [("yes", True), ("not prime", True), ("x+1", False), ("5", False), ("", False)]
)
def test_is_words(text, are):
    assert is_words(text) is are


@pytest.mark.parametrize(
    ("text", "has"), [("x is odd", True), (r"\frac{x}", False), (r"5\text{ for all }x", True)]
)
def test_has_words(text, has):
    assert has_words(text) is has


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        (r"\text{Tuesday}", "Tuesday", True),
        ("tuesday", "Tuesday", True),
        ("Tuesday.", "Tuesday", True),
        ("the parallelogram", "parallelogram", False),
        ("not prime", "prime", False),
        ("Wednesday", "Tuesday", False),
        ("7", "Tuesday", False),
        ("even", r"\text{odd}", False),
        ("yes", "Yes", True),
        ("no", "Yes", False),
        ("No", "no", True),
        ("Berlin, Paris", "Berlin, Paris", True),
        ("日本", "日本", True),
        ("日本", "中国", False),
    ],
)
def test_verdicts_on_words(answer, gold, right):
    assert verify(rf"\boxed{{{answer}}}", gold).is_correct is right


@pytest.mark.parametrize("gold", ["?", "?!", "()", "...", r"\text{}", r"\text{ }", "$$", "''"])
@pytest.mark.parametrize("answer", ["", "!", "?", "( )", r"\text{!}", ".", ";"])
def test_nothing_is_never_the_same_as_nothing(answer, gold):
    if answer != gold:
        assert not verify(rf"\boxed{{{answer}}}", gold).is_correct
