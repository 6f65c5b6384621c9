import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.extract import boxes, last_marked, last_number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{72}", ["72"]),
        (r"\boxed {72}", ["72"]),
        (r"a \boxed{1} b \boxed{ 2 } c", ["1", "2"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{\boxed{7}}", ["7"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"{ \boxed{5} ", ["5"]),
        (r"\boxed{5} and then \boxed{6", ["5"]),
        (r"\boxed{6 and then \boxed{5}", ["5"]),
        (r"} \boxed{5}", ["5"]),
        (r"\boxed{}", [""]),
        (r"\boxed 7", []),
        ("boxed{7}", []),
        ("", []),
    ],
)
def test_boxes(text, found):
    assert [box.text for box in boxes(text)] == found


@pytest.mark.parametrize(
    ("text", "answer", "where"),
    [
        ("so\n#### 72", "72", "hash"),
        ("#### 72\nbye", "72", "hash"),
        ("#### 1\n#### 2", "2", "hash"),
        ("####72", "72", "hash"),
        ("####", "", "hash"),
        (r"#### 1, no: \boxed{2}", "2", "boxed"),
        ("\\boxed{2}, no:\n#### 1", "1", "hash"),
        (r"#### \boxed{3}", "3", "boxed"),
    ],
)
def test_the_last_marker_wins(text, answer, where):
    found = last_marked(text)
    assert found is not None
    assert (found.text, found.where) == (answer, where)


def test_no_marker():
    assert last_marked("The answer is 72.") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("she pays 3 x $4 = $12.", "$12"),
        ("48/2=24 clips", "24"),
        ("16-3=13 eggs", "13"),
        ("16 - 3", "3"),
        ("it fell to -3 degrees", "-3"),
        ("1,234,567 in all!", "1,234,567"),
        ("half, that is 3/4.", "3/4"),
        ("0.5.", "0.5"),
        ("25% of them", "25%"),
        (r"thus \frac{3}{4} is left", r"\frac{3}{4}"),
        ("first 5\nthen nothing\n", "5"),
        ("#### 12", "12"),
    ],
)
def test_the_last_number(text, answer):
    found = last_number(text)
    assert found is not None
    assert found.text == answer
    assert text[found.start :].startswith(answer)


def test_no_number():
    assert last_number("none, nada, ٧٢, ½") is None
    assert last_number("") is None


@given(st.text(alphabet="0123456789,.$%/-{} \\fracboxed#\n") | st.text())
def test_any_text(text):
    for found in (last_marked(text), last_number(text)):
        if found is not None:
            assert found.text in text
    has_digit = any(char in "0123456789" for char in text)
    assert (last_number(text) is not None) == has_digit
