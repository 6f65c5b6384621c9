r"""`verify`: does a completion's final answer equal the gold one?

    extract -> same text? -> same number? -> letter or words? -> parse -> compare by kind

Each step is tried only where the one before did not decide. Only the last resort of comparing
values, a proof by sympy, leaves this process (see `proof`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rlgym_llm_rewards.math.choice import (
    choice_of_gold,
    choices,
    has_words,
    is_words,
    same_word,
    words,
)
from rlgym_llm_rewards.math.compare import compare
from rlgym_llm_rewards.math.effort import EffortError, begin
from rlgym_llm_rewards.math.extract import extract, extract_gold
from rlgym_llm_rewards.math.form import TooLargeError, UndefinedError
from rlgym_llm_rewards.math.found import Where
from rlgym_llm_rewards.math.nodes import Node
from rlgym_llm_rewards.math.number import Number, parse_number
from rlgym_llm_rewards.math.policy import Policy, get_policy
from rlgym_llm_rewards.math.proof import prover
from rlgym_llm_rewards.math.reading import fit, read
from rlgym_llm_rewards.math.relations import is_consistent
from rlgym_llm_rewards.math.shape import elements, expand
from rlgym_llm_rewards.math.show import show
from rlgym_llm_rewards.math.tokens import MAX_CHARS, Comma, UnreadableError
from rlgym_llm_rewards.math.values import (
    Comparison,
    Prove,
    UndecidedError,
    form_of,
    is_reduced,
    is_worked_out,
    split_unit,
)
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus

__all__ = ["Gold", "NeedsProofError", "judge", "read_gold", "verified", "verify"]

_MAX_REMEMBERED = 256
"""Longest answer and gold whose verdict is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gold:
    """A gold answer, read once; two of them are equal only if they are the same object."""

    text: str
    number: Number | None = None
    choice: tuple[str, str] | None = None
    """The letter of multiple choice and that option's text."""
    trees: tuple[tuple[Comma, Node], ...] = ()
    num_parts: int = 1
    """How many elements it has."""
    is_large: bool = False
    """Whether it is too large to be read, so that only the same text is right."""
    problem: str | None = None
    """Why it cannot be read."""


def verify(
    completion: str, gold: str, *, prompt: str | None = None, policy: str | Policy = "standard"
) -> Verdict:
    r"""Judges the completion's final answer; never raises on text, and takes bounded time.

    ``gold`` is an answer, or a whole solution that ends in a marked one. ``prompt`` is what the
    completion answers: an answer that merely stands in text copied from it does not count.
    ``policy`` is a name (``strict``, ``standard``, ``lenient``) or a `Policy`. Safe from any
    thread and process; verdicts are remembered by (answer, gold, policy).

    >>> verify("12 + 60 = 72\n#### 72", "72").status
    <VerdictStatus.CORRECT: 'correct'>
    >>> verify(r"So \boxed{\frac{x^2-1}{x-1}}.", "x+1").rule
    'exact'
    >>> verify("The answer is 5 or 6.", "5").status, verify("#### 7200", "72").status
    (<VerdictStatus.AMBIGUOUS: 'ambiguous'>, <VerdictStatus.WRONG: 'wrong'>)
    """
    return verified(completion, gold, prompt, get_policy(policy), defer=False)


class NeedsProofError(Exception):
    """The verdict waits for a proof, which was put off."""


def verified(
    completion: str, gold: str, prompt: str | None, policy: Policy, *, defer: bool
) -> Verdict:
    """As `verify`; with ``defer`` raises NeedsProofError rather than wait for a proof."""
    target = read_gold(gold, policy) if len(gold) <= MAX_CHARS else _read_gold(gold, policy)
    if target.problem is not None:
        return Verdict(VerdictStatus.BAD_GOLD, gold=target.text, reason=target.problem)
    if completion == gold and policy.extraction != "strict" and not policy.require_box:
        return Verdict(VerdictStatus.CORRECT, "identical", target.text, "text", gold=target.text)
    found = extract(
        completion,
        policy,
        prompt=prompt,
        wants_choice=target.choice is not None,
        num_parts=target.num_parts,
    )
    if found is None or not found.text:
        return Verdict(VerdictStatus.NO_ANSWER, gold=target.text)
    if len(found.text) <= _MAX_REMEMBERED >= len(target.text):
        try:
            return _remembered(found.text, found.where, target, policy, defer)
        except _TimeoutVerdict as timeout:
            return timeout.verdict
    return judge(found.text, found.where, target, policy, _put_off if defer else prover())


def _read_gold(gold: str, policy: Policy) -> Gold:
    """A gold text, read; `Gold.problem` says why not where it cannot be."""
    text = gold if gold.isalnum() else extract_gold(gold)
    number = parse_number(text)
    if number is not None:
        return Gold(text=text, number=number)
    if not text:
        return Gold(text=text, problem="the gold answer is empty")
    begin()
    choice = choice_of_gold(text)
    reading = read(text, policy)
    if reading.trees:
        undefined = [_flaw(tree, policy) for _, tree in reading.trees]
        if all(undefined):
            return Gold(text=text, problem=f"the gold answer cannot be right: {undefined[0]}")
        trees = tuple(t for t, why in zip(reading.trees, undefined, strict=True) if why is None)
        parts = len(elements(expand(trees[0][1])))
        return Gold(text=text, choice=choice, trees=trees, num_parts=parts)
    if choice is not None or has_words(text) or is_words(text) or reading.is_limit:
        return Gold(text=text, choice=choice, is_large=reading.is_limit)
    return Gold(text=text, problem=f"the gold answer cannot be read: {reading.problem}")


def _flaw(tree: Node, policy: Policy) -> str | None:
    """Why a value does not exist or contradicts itself, None where all is well."""
    try:
        if not is_consistent(tree, Comparison(policy, lambda left, right: None)):
            return "it sets different numbers equal"
        form_of(tree)
    except UndefinedError as undefined:
        return None if split_unit(tree)[0].head == "time" else str(undefined)
    except (UnreadableError, EffortError, UndecidedError, RecursionError):
        pass  # no single value (a list, a set, a relation), or a costly one
    return None


read_gold = lru_cache(maxsize=1024)(_read_gold)  # siblings share their gold


@lru_cache(maxsize=4096)
def _remembered(answer: str, where: Where, gold: Gold, policy: Policy, defer: bool) -> Verdict:
    verdict = judge(answer, where, gold, policy, _put_off if defer else prover())
    if verdict.status is VerdictStatus.TIMEOUT:
        raise _TimeoutVerdict(verdict)
    return verdict


class _TimeoutVerdict(Exception):  # noqa: N818  it carries a verdict past the cache
    """A verdict that says more of this machine than of the answer, and is not remembered."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def _put_off(left: Node, right: Node) -> bool | None:
    raise NeedsProofError


def judge(answer: str, where: Where, gold: Gold, policy: Policy, prove: Prove) -> Verdict:
    """The verdict on an extracted answer; the cheapest rule that decides has the word."""
    begin()
    by_text = _by_number(answer, where, gold, policy) or _by_words(answer, where, gold)
    if by_text is not None:
        return by_text
    if gold.is_large:
        return Verdict(
            VerdictStatus.LIMIT,
            "",
            answer,
            where,
            gold=gold.text,
            reason="a gold answer too large to be read",
        )
    try:
        return _by_reading(answer, where, gold, policy, prove)
    except RecursionError:
        return Verdict(
            VerdictStatus.LIMIT, "", answer, where, gold=gold.text, reason="nested too deeply"
        )


def _by_reading(answer: str, where: Where, gold: Gold, policy: Policy, prove: Prove) -> Verdict:
    reading = read(answer, policy)
    if not reading.trees:
        status = VerdictStatus.LIMIT if reading.is_limit else VerdictStatus.UNPARSABLE
        return Verdict(status, answer=answer, where=where, gold=gold.text, reason=reading.problem)
    return _by_trees(answer, where, reading.trees, gold, Comparison(policy, prove))


def _by_number(answer: str, where: Where, gold: Gold, policy: Policy) -> Verdict | None:
    """Same text, or two plain numbers."""
    if answer == gold.text:
        return Verdict(VerdictStatus.CORRECT, "identical", answer, where, gold=gold.text)
    if gold.number is None or not _by_default(policy):
        return None
    number = parse_number(answer)
    if number is None:
        return None
    same = number.same_as(gold.number, percent_bare=policy.percent_bare)
    if not same and not (number.is_finite and gold.number.is_finite and not policy.gold_rounding):
        return None
    return Verdict(
        VerdictStatus.CORRECT if same else VerdictStatus.WRONG,
        "number",
        answer,
        where,
        str(number.value),
        gold.text,
        str(gold.number.value),
    )


def _by_default(policy: Policy) -> bool:
    """Whether plain numbers are read and compared as usual."""
    return (policy.form, policy.units) == ("value", "strip") and policy.decimal_comma != "always"


def _by_words(answer: str, where: Where, gold: Gold) -> Verdict | None:
    """A letter of multiple choice, or words."""

    def verdict(status: VerdictStatus, rule: str, reason: str | None = None) -> Verdict:
        return Verdict(status, rule, answer, where, gold=gold.text, reason=reason)

    if gold.choice is not None:
        letter, option = gold.choice
        chosen = choices(answer)
        if chosen == [letter] or (option and words(answer) == words(option)):
            return verdict(VerdictStatus.CORRECT, "choice")
        if len(chosen) > 1 and letter in chosen:
            return verdict(VerdictStatus.AMBIGUOUS, "choice", "several letters, and no decision")
        return verdict(VerdictStatus.WRONG, "choice")
    if gold.number is not None or gold.is_large:
        return None
    if gold.trees:  # letters are mathematics first
        return verdict(VerdictStatus.CORRECT, "words") if same_word(answer, gold.text) else None
    same = words(answer) == words(gold.text) != ""
    return verdict(VerdictStatus.CORRECT if same else VerdictStatus.WRONG, "words")


def _by_trees(
    answer: str,
    where: Where,
    trees: tuple[tuple[Comma, Node], ...],
    gold: Gold,
    by: Comparison,
) -> Verdict:
    """What two trees say, in every reading that fits; one that is right is enough."""
    gold_trees = gold.trees or read(gold.text, by.policy).trees
    verdict = Verdict(VerdictStatus.WRONG, "kind", answer, where, show(trees[0][1]), gold.text)
    for gold_reading in gold_trees:
        for reading in trees:
            if not fit(gold_reading, reading):
                continue
            form, gold_form = show(reading[1]), show(gold_reading[1])
            status, rule, reason = _compared(gold_reading[1], reading[1], by)
            one = Verdict(status, rule, answer, where, form, gold.text, gold_form, reason)
            if one.is_correct:
                return one
            if verdict.gold_form is None or status is not VerdictStatus.WRONG:
                verdict = one
    return verdict


def _compared(gold: Node, answer: Node, by: Comparison) -> tuple[VerdictStatus, str, str | None]:
    try:
        decision = compare(gold, answer, by)
    except UndecidedError as undecided:
        return undecided.status, "", undecided.reason
    except UndefinedError as undefined:
        return VerdictStatus.UNPARSABLE, "", str(undefined)
    except (EffortError, TooLargeError, RecursionError, OverflowError) as large:
        return VerdictStatus.LIMIT, "", str(large)
    if not decision.is_same:
        return VerdictStatus.WRONG, decision.rule, None
    if by.policy.form == "reduced" and not is_reduced(answer):
        return VerdictStatus.WRONG, "form", "a fraction that is not in lowest terms"
    if by.policy.form == "evaluated" and not is_worked_out(answer):
        return VerdictStatus.WRONG, "form", "an answer that is not worked out"
    return VerdictStatus.CORRECT, decision.rule, None
