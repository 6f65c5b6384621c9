import json
import threading
from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_rewards.math import VerdictStatus, verify


@pytest.mark.parametrize(
    ("completion", "gold", "status"),
    [
        ("#### 72", "72", "correct"),
        ("#### 72.00", "72", "correct"),
        ("#### $72", "72", "correct"),
        (r"\boxed{72}", "She sold 72.\n#### 72", "correct"),
        (r"\boxed{5}. That is wrong; it is \boxed{7}.", "7", "correct"),
        ("#### 1,234", "1234", "correct"),
        ("#### 25%", "0.25", "correct"),
        ("#### 0.75", r"\frac{3}{4}", "correct"),
        ("#### 73", "72", "wrong"),
        ("#### 7200", "72", "wrong"),
        ("#### -72", "72", "wrong"),
        ("the answer is 72", "72", "correct"),
        ("so it is 72", "72", "no_answer"),
        ("72", "72", "no_answer"),
        ("", "72", "no_answer"),
        ("####", "72", "no_answer"),
        (r"\boxed{}", "72", "no_answer"),
        ("#### 41 or 72", "72", "ambiguous"),
        ("#### seventy-two", "72", "unparsable"),
        ("#### 1/0", "72", "unparsable"),
        ("#### 72", r"\frac{", "bad_gold"),
        ("#### 72", "", "bad_gold"),
        ("#### ", "", "bad_gold"),
        ("#### 1/0", "1/0", "bad_gold"),
        ("#### x", "x", "correct"),
    ],
)
def test_strict(completion, gold, status):
    assert verify(completion, gold, policy="strict").status == status


@pytest.mark.parametrize(
    ("completion", "gold", "status", "where"),
    [
        ("so it is 72.", "72", "correct", "number"),
        ("#### 72", "72", "correct", "hash"),
        ("it is 72. " + "So much for that. " * 30, "72", "correct", "number"),
        ("#### 72\nI am 5", "5", "wrong", "hash"),
        ("I do not know.", "72", "no_answer", None),
    ],
)
def test_lenient(completion, gold, status, where):
    verdict = verify(completion, gold, policy="lenient")
    assert (verdict.status.value, verdict.where) == (status, where)


def test_a_verdict_says_what_it_rests_on():
    verdict = verify("12 + 60 = 72\n#### $72.", "He sold 72.\n#### 72")
    assert (verdict.answer, verdict.where, verdict.gold) == ("$72", "hash", "72")
    assert verdict.is_correct


@given(st.integers(-(10**12), 10**12), st.integers(0, 6), st.data())
def test_spellings_of_a_decimal(digits, places, data):
    value = Fraction(digits, 10**places)
    sign, size = "-" if value < 0 else "", abs(value)
    whole_part, rest = divmod(size, 1)
    decimals = f"{int(rest * 10**places):0{places}d}" if places else ""
    point = "." + decimals if places else ""
    spellings = [
        f"{sign}{int(whole_part)}{point}",
        f"{sign}{int(whole_part):,}{point}",
        f"{sign}{int(whole_part):,}{point}".replace(",", "{,}"),
        f"{sign}{int(whole_part):,}{point}".replace(",", r"\,"),
        f"{sign}{int(whole_part)}{point or '.'}000",
        f"{sign}\\frac{{{size.numerator}}}{{{size.denominator}}}",
        f"{value.numerator}/{value.denominator}",
        f"{digits} \\times 10^{{{-places}}}",
        f"{digits}e-{places}",
        f"{Fraction(digits, 10 ** max(places - 2, 0)) if places >= 2 else 100 * value}\\%",
    ]
    if rest:
        spellings.append(f"{sign}{int(whole_part)}\\frac{{{rest.numerator}}}{{{rest.denominator}}}")
    answer, gold = data.draw(st.sampled_from(spellings)), data.draw(st.sampled_from(spellings))
    assert verify(rf"\boxed{{{answer}}}", gold).is_correct
    other = value + Fraction(1, 10**places)
    assert verify(rf"\boxed{{{answer}}}", str(other)).status == "wrong"


PIECES = [
    *r"\frac \sqrt \left( \right) ^ _ { } {} ( ) [ ] \{ \} | , ; : ! % $ & \\ = < \le \in".split(),
    *r"\begin{pmatrix} \end{pmatrix} \text{ \text{} \mathrm{m} \cup \pm \infty \sum_ \log_".split(),
    *r"\boxed{ \boxed{} #### \overline 1 0 12 3.5 x e i pi sin or and cm E 1e9 999999".split(),
    *"- + * / ** ' ² ½ − √".split(),
    *(" ", "\n", "\0", "\ud800", "\U0001d7d9", "\u202e"),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=20).map(" ".join),
    st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.binary(max_size=40).map(lambda data: data.decode("latin-1")),
    st.binary(max_size=40).map(lambda data: data.decode("utf-16", "replace")),
)


@settings(max_examples=500)
@given(TEXTS, TEXTS, st.sampled_from(["strict", "standard", "lenient"]), st.none() | TEXTS)
def test_no_text_raises(completion, gold, policy, prompt):
    for one, other in ((completion, gold), (rf"\boxed{{{completion}}}", gold), (gold, gold)):
        verdict = verify(one, other, policy=policy, prompt=prompt)
        assert verdict.status in VerdictStatus
        assert list(verdict.as_info()) == [field.name for field in fields(verdict)]
        assert type(verdict.as_info()["status"]) is str
    assert not verify("", gold, policy=policy).is_correct or not gold.strip()


@given(st.integers(), st.integers())
def test_integers(answer, gold):
    assert verify(f"#### {answer}", str(gold)).is_correct == (answer == gold)


@pytest.mark.parametrize(
    "text",
    [
        "#### " + "9" * 2_000_000,
        r"\boxed{" * 300_000,
        r"\boxed{" * 300_000 + "}" * 300_000,
        r"\boxed" + " " * 2_000_000,
        "{}" * 300_000 + r"\boxed{1}{",
        "####" * 500_000,
        "-" * 2_000_000 + "1",
        "$" * 2_000_000,
        "1," * 1_000_000,
        "1" + " " * 2_000_000,
        r"\frac{1" * 300_000,
        "#### " + " " * 4000 + "1" + " " * 4000,
    ],
    ids=lambda text: text[:9],
)
@pytest.mark.timeout(20)
def test_huge_texts_take_linear_time(text):
    for policy in ("strict", "standard", "lenient"):
        verify(text, "72", policy=policy)
    verify("#### 72", text)


@pytest.mark.data
def test_gsm8k_labels(test_data):
    """OpenAI's own labels of 5,276 solutions, and the gold answers of the whole test set."""
    lines = (test_data / "data/gsm8k/example_model_solutions.jsonl").read_text().splitlines()
    num_seen = 0
    for row in map(json.loads, lines):
        gold = row["ground_truth"].replace("\nA: ", "\n#### ")
        for solution in (value for value in row.values() if isinstance(value, dict)):
            text = solution["solution"].replace("\nA: ", "\n#### ")
            for policy in ("strict", "standard", "lenient"):
                assert verify(text, gold, policy=policy).is_correct == solution["is_correct"], text
            num_seen += 1
    assert num_seen == 5276
    for line in (test_data / "data/gsm8k/test.jsonl").read_text().splitlines():
        answer = json.loads(line)["answer"]
        assert verify(answer, answer).is_correct


@pytest.mark.data
def test_sigalrm_off_main_thread(bug_report, monkeypatch):
    case = bug_report("reward-sigalrm_off_main_thread")
    monkeypatch.delattr("signal.SIGALRM")
    found = []

    def work():
        found.append(verify(case["input"]["completion"], case["input"]["gold"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert float(found[0].is_correct) == case["right"]["values"]["score"]
