"""The verdict on an extracted answer: the cheapest rule that decides has the word."""

from __future__ import annotations

from typing import NamedTuple

from rlgym_llm.unchecked import unchecked
from rlgym_llm_rewards.math.algebra.effort import EffortError, begin
from rlgym_llm_rewards.math.algebra.form import TooLargeError, UndefinedError
from rlgym_llm_rewards.math.choice import choices, same_word, words
from rlgym_llm_rewards.math.compare import compare
from rlgym_llm_rewards.math.extraction.found import Where
from rlgym_llm_rewards.math.gold import Gold
from rlgym_llm_rewards.math.number import parse_number
from rlgym_llm_rewards.math.parsing.nodes import Node
from rlgym_llm_rewards.math.parsing.reading import Trees, read
from rlgym_llm_rewards.math.parsing.show import show
from rlgym_llm_rewards.math.parsing.tokens import Comma, UnreadableError
from rlgym_llm_rewards.math.policy import Policy
from rlgym_llm_rewards.math.shape import is_listed
from rlgym_llm_rewards.math.values import (
    Comparison,
    Prove,
    UndecidedError,
    is_reduced,
    is_worked_out,
)
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus

__all__ = ["Case", "judge"]

_verdict = unchecked(Verdict)


class Case(NamedTuple):
    """An answer and what it is held against."""

    answer: str
    where: Where
    gold: Gold
    policy: Policy

    def verdict(
        self,
        status: VerdictStatus,
        rule: str = "",
        *,
        forms: tuple[str | None, str | None] = (None, None),
        reason: str | None = None,
    ) -> Verdict:
        """The verdict; ``forms`` are the normal forms of answer and gold."""
        return _verdict(
            status, rule, self.answer, self.where, forms[0], self.gold.text, forms[1], reason
        )


def judge(case: Case, prove: Prove) -> Verdict:
    """The verdict; ``prove`` is asked where values agree and nothing else decides."""
    if case.answer == case.gold.text:
        return case.verdict(VerdictStatus.CORRECT, "identical")
    verdict = _by_number(case) or _by_letter(case) or _by_words(case)
    if verdict is not None:
        return verdict
    if case.gold.is_large:
        return case.verdict(VerdictStatus.LIMIT, reason="a gold answer too large to be read")
    begin()
    try:
        return _by_reading(case, prove)
    except RecursionError:
        return case.verdict(VerdictStatus.LIMIT, reason="nested too deeply")


def _by_number(case: Case) -> Verdict | None:
    """Two plain numbers; an endless one is left to rounding."""
    answer, where, target, policy = case
    gold = target.number
    if gold is None or policy.form != "value" or policy.units != "strip":
        return None
    if policy.decimal_comma == "always" or (number := parse_number(answer)) is None:
        return None
    if number.same_as(gold, percent_bare=policy.percent_bare):
        status = VerdictStatus.CORRECT
    elif number.is_finite and gold.is_finite and not policy.gold_rounding:
        status = VerdictStatus.WRONG
    else:
        return None
    forms = str(number.value), str(gold.value)
    return _verdict(status, "number", answer, where, forms[0], target.text, forms[1], None)


def _by_letter(case: Case) -> Verdict | None:
    """A letter of multiple choice."""
    if case.gold.choice is None:
        return None
    letter, option = case.gold.choice
    chosen = choices(case.answer)
    if chosen == [letter] or (option and words(case.answer) == words(option)):
        return case.verdict(VerdictStatus.CORRECT, "choice")
    if len(chosen) > 1 and letter in chosen:
        return case.verdict(
            VerdictStatus.AMBIGUOUS, "choice", reason="several letters, and no decision"
        )
    return case.verdict(VerdictStatus.WRONG, "choice")


def _by_words(case: Case) -> Verdict | None:
    """Words, where the gold is no mathematics; letters are mathematics first."""
    gold = case.gold
    if gold.number is not None or gold.is_large:
        return None
    if gold.trees:
        same = same_word(case.answer, gold.text)
        return case.verdict(VerdictStatus.CORRECT, "words") if same else None
    same = words(case.answer) == words(gold.text) != ""
    return case.verdict(VerdictStatus.CORRECT if same else VerdictStatus.WRONG, "words")


def _by_reading(case: Case, prove: Prove) -> Verdict:
    """What two trees say, in every reading that fits; one that is right is enough."""
    reading = read(case.answer, case.policy)
    if not reading.trees:
        status = VerdictStatus.LIMIT if reading.is_limit else VerdictStatus.UNPARSABLE
        return case.verdict(status, reason=reading.problem)
    by = Comparison(case.policy, prove)
    golds: Trees = case.gold.trees or read(case.gold.text, case.policy).trees
    first = None
    for gold in golds:
        for answer in reading.trees:
            if not _fit(gold, answer):
                continue
            verdict = _compared(case, gold[1], answer[1], by)
            if verdict.is_correct:
                return verdict
            if first is None or verdict.status is not VerdictStatus.WRONG:
                first = verdict
    forms = show(reading.trees[0][1]), None
    return first or case.verdict(VerdictStatus.WRONG, "kind", forms=forms)


def _compared(case: Case, gold: Node, answer: Node, by: Comparison) -> Verdict:
    forms = show(answer), show(gold)
    try:
        decision = compare(gold, answer, by)
        flaw = _form_flaw(answer, case.policy) if decision.is_same else None
    except UnreadableError as unread:
        return case.verdict(VerdictStatus.WRONG, "kind", forms=forms, reason=str(unread))
    except UndecidedError as undecided:
        return case.verdict(undecided.status, forms=forms, reason=undecided.reason)
    except UndefinedError as undefined:
        return case.verdict(VerdictStatus.UNPARSABLE, forms=forms, reason=str(undefined))
    except (EffortError, TooLargeError, OverflowError) as large:
        return case.verdict(VerdictStatus.LIMIT, forms=forms, reason=str(large))
    if not decision.is_same:
        return case.verdict(VerdictStatus.WRONG, decision.rule, forms=forms)
    if flaw is not None:
        return case.verdict(VerdictStatus.WRONG, "form", forms=forms, reason=flaw)
    return case.verdict(VerdictStatus.CORRECT, decision.rule, forms=forms)


def _form_flaw(answer: Node, policy: Policy) -> str | None:
    """Why a right value is not in the form that the policy asks for."""
    if policy.form == "reduced" and not is_reduced(answer):
        return "a fraction that is not in lowest terms"
    if policy.form == "evaluated" and not is_worked_out(answer):
        return "an answer that is not worked out"
    return None


def _fit(gold: tuple[Comma, Node], answer: tuple[Comma, Node]) -> bool:
    """Whether two readings may be compared: both are lists where one is only as a list, and so on.

    3,5 is three and a half only where one number is asked for.
    """
    commas = (gold[0], answer[0])
    listed = is_listed(gold[1]), is_listed(answer[1])
    if "decimal" in commas:
        return not any(listed)
    return "list" not in commas or all(listed)
