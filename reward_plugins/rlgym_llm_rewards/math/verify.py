r"""`verify`: does a completion's final answer equal the gold one?

    extract -> same text? -> same number? -> letter or words? -> parse -> compare by kind

Each step is tried only where the one before did not decide. Only the last resort of comparing
values, a proof by sympy, leaves this process (see `proof`).
"""

from __future__ import annotations

from functools import lru_cache

from rlgym_llm.unchecked import unchecked_tuple
from rlgym_llm_rewards.math.extraction.extract import extract
from rlgym_llm_rewards.math.extraction.found import Where
from rlgym_llm_rewards.math.gold import Gold, read_gold
from rlgym_llm_rewards.math.judge import Case, judge
from rlgym_llm_rewards.math.parsing.nodes import Node
from rlgym_llm_rewards.math.policy import Policy, get_policy
from rlgym_llm_rewards.math.proof import prover
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus

__all__ = ["NeedsProofError", "verified", "verify"]

_case = unchecked_tuple(Case)
_MAX_REMEMBERED = 256
"""Longest answer and gold whose verdict is remembered."""


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
    policy = get_policy(policy)
    return verified(completion, gold, prompt, policy, read_gold(gold, policy), False)


class NeedsProofError(Exception):
    """The verdict waits for a proof, which was put off."""


def verified(
    completion: str, gold: str, prompt: str | None, policy: Policy, target: Gold, defer: bool
) -> Verdict:
    """As `verify`; with ``defer`` raises NeedsProofError rather than wait for a proof.

    ``target`` is the gold answer as `read_gold` reads it.
    """
    if target.problem is not None:
        return Verdict(VerdictStatus.BAD_GOLD, gold=target.text, reason=target.problem)
    if completion == gold and prompt is None and _takes_bare_text(policy):
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
    answer, where, _, _ = found
    if len(answer) <= _MAX_REMEMBERED >= len(target.text):
        try:
            return _remembered(answer, where, target, policy, defer)
        except _TimeoutVerdict as timeout:
            return timeout.verdict
    return judge(_case((answer, where, target, policy)), _put_off if defer else prover())


def _takes_bare_text(policy: Policy) -> bool:
    is_marked = policy.require_box or policy.thinking == "require"
    return not is_marked and policy.extraction != "strict"


@lru_cache(maxsize=4096)
def _remembered(answer: str, where: Where, gold: Gold, policy: Policy, defer: bool) -> Verdict:
    verdict = judge(_case((answer, where, gold, policy)), _put_off if defer else prover())
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
