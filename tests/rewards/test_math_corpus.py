"""The labelled cases: which verdicts deviate, by name, and that none of them runs anything."""

import json
from pathlib import Path

import pytest
from rlgym_llm_rewards.math import VerdictStatus, verify, verify_many

pytestmark = pytest.mark.data

DEVIATING = frozenset[str]()
"""Cases whose label the default policy does not share; docs/math_verifier.md argues each."""
MARKERS = ("/tmp/rlgymllmpwned", "marker")


@pytest.fixture(scope="module")
def cases(test_data):
    lines = (test_data / "cases" / "verifier.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) == 702
    return cases


@pytest.fixture(scope="module")
def verdicts(cases, tmp_path_factory):
    """By id, made in an empty folder, which stays empty."""
    folder = tmp_path_factory.mktemp("cwd")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = {case["id"]: verify(case["completion"], case["gold"]) for case in cases}
        assert not any(Path(marker).exists() for marker in MARKERS)
    assert list(folder.iterdir()) == []
    return found


def test_agreement(cases, verdicts):
    assert len(verdicts) == len(cases)
    deviating = {c["id"] for c in cases if verdicts[c["id"]].is_correct != c["expected"]}
    assert deviating == DEVIATING
    assert len(DEVIATING) <= len(cases) // 100


def test_every_hostile_case_agrees(cases, verdicts):
    hostile = [case for case in cases if case["kind"].startswith("hostile")]
    assert len(hostile) > 150
    for case in hostile:
        assert verdicts[case["id"]].is_correct == case["expected"], case["id"]


def test_each_deviation_is_argued_in_the_docs():
    pages = Path(__file__).parents[2].joinpath("docs").glob("*.md")
    text = "\n".join(page.read_text("utf-8") for page in pages)
    assert [case for case in sorted(DEVIATING) if case not in text] == []


def test_no_case_is_left_without_a_verdict(cases, verdicts):
    assert {v.status for v in verdicts.values()} <= set(VerdictStatus)
    assert not [name for name, verdict in verdicts.items() if verdict.status == "timeout"]
    for case in cases:
        verdict = verdicts[case["id"]]
        if case["expected"]:
            assert verdict.status not in ("bad_gold", "no_answer"), case["id"]
        if verdict.status not in ("correct", "wrong", "no_answer"):
            assert verdict.reason, case["id"]
        if verdict.status in ("correct", "wrong"):
            assert verdict.rule, case["id"]


def test_the_batch_gives_the_same(cases, verdicts):
    batch = verify_many([c["completion"] for c in cases], [c["gold"] for c in cases])
    assert batch == [verdicts[case["id"]] for case in cases]


def test_a_gold_answers_itself(cases):
    """Boxed, a gold that can be used at all is its own right answer."""
    for case in cases:
        if any(sign in case["gold"] for sign in ("box", "\n", "<")) or case["gold"][-1:] == "\\":
            continue
        verdict = verify(rf"\boxed{{{case['gold']}}}", case["gold"])
        allowed = ("correct", "bad_gold", "no_answer") if not case["expected"] else ("correct",)
        assert verdict.status in allowed, (case["id"], verdict)


def test_policies_only_differ_in_what_they_extract(cases, verdicts):
    """What strict finds right, standard does; and standard's marked answers are strict's."""
    for case in cases:
        strict = verify(case["completion"], case["gold"], policy="strict")
        standard = verdicts[case["id"]]
        if strict.is_correct:
            assert standard.is_correct, case["id"]
        if standard.where in ("boxed", "hash", "tag", "phrase"):
            assert strict.status == standard.status, case["id"]


def test_gsm8k_as_published(test_data):
    """The untouched solutions against the bare number, by the default policy."""
    path = test_data / "data" / "gsm8k" / "example_model_solutions.jsonl"
    completions, golds, labels = [], [], []
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        gold = row["ground_truth"].rpartition("\nA: ")[2].strip()
        for solution in (value for value in row.values() if isinstance(value, dict)):
            completions.append(solution["solution"])
            golds.append(gold)
            labels.append(solution["is_correct"])
    assert len(labels) == 5276
    assert [v.is_correct for v in verify_many(completions, golds)] == labels
