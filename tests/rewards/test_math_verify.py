import json
import threading

import pytest
from hypothesis import given
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


@given(st.text(), st.text(), st.sampled_from(["strict", "standard", "lenient"]))
def test_never_raises(completion, gold, policy):
    assert verify(completion, gold, policy=policy).status in VerdictStatus


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
