"""Many verdicts at once: the proofs that some need run side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rlgym_llm.errors import UserError
from rlgym_llm_rewards.math.gold import read_gold
from rlgym_llm_rewards.math.policy import Policy, get_policy
from rlgym_llm_rewards.math.proof import NUM_WORKERS
from rlgym_llm_rewards.math.verdict import Verdict
from rlgym_llm_rewards.math.verify import NeedsProofError, verified, verify

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["verify_async", "verify_many"]


def verify_many(
    completions: Sequence[str],
    golds: Sequence[str],
    *,
    prompts: Sequence[str | None] | None = None,
    policy: str | Policy = "standard",
) -> list[Verdict]:
    r"""One verdict per completion, in order, as `verify` gives them.

    Raises UserError where the lengths differ.

    >>> [v.is_correct for v in verify_many(["#### 4", "#### 5"], ["4", "4"])]
    [True, False]
    """
    num = len(completions)
    prompts = [None] * num if prompts is None else prompts
    if not len(golds) == len(prompts) == num:
        raise UserError(
            f"verify_many: {num} completions, {len(golds)} golds and {len(prompts)} prompts; "
            "give as many of each"
        )
    policy = get_policy(policy)
    targets = {gold: read_gold(gold, policy) for gold in dict.fromkeys(golds)}
    verdicts: list[Verdict | None] = []
    for completion, gold, prompt in zip(completions, golds, prompts, strict=True):
        try:
            verdicts.append(verified(completion, gold, prompt, policy, targets[gold], True))
        except NeedsProofError:
            verdicts.append(None)
    waiting = [index for index, verdict in enumerate(verdicts) if verdict is None]

    def prove(index: int) -> Verdict:
        return verify(completions[index], golds[index], prompt=prompts[index], policy=policy)

    if waiting:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(NUM_WORKERS, len(waiting))) as threads:
            for index, verdict in zip(waiting, threads.map(prove, waiting), strict=True):
                verdicts[index] = verdict
    return [verdict for verdict in verdicts if verdict is not None]


async def verify_async(
    completion: str, gold: str, *, prompt: str | None = None, policy: str | Policy = "standard"
) -> Verdict:
    """As `verify`, from any event loop; a proof is waited for in a thread."""
    import asyncio

    policy = get_policy(policy)
    try:
        return verified(completion, gold, prompt, policy, read_gold(gold, policy), True)
    except NeedsProofError:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            _threads(), lambda: verify(completion, gold, prompt=prompt, policy=policy)
        )


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """As many threads as there are workers: the rest of the calls wait without one."""
    from concurrent.futures import ThreadPoolExecutor

    if hasattr(os, "register_at_fork"):  # threads do not survive a fork
        os.register_at_fork(after_in_child=_threads.cache_clear)
    return ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="rlgym-verify")
