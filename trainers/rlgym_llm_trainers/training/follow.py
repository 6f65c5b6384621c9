"""A run over several ranks: rank 0 runs it, and the others learn along."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping

from rlgym_llm.batch_arithmetic import BatchPlan
from rlgym_llm.config_keys import config_keys, given_values
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import RlgymError, describe
from rlgym_llm.plugins import Plugins
from rlgym_llm.yaml_text import dump_value
from rlgym_llm_trainers.algorithms.losses.binding import load_policy_loss
from rlgym_llm_trainers.learner.led import serve
from rlgym_llm_trainers.learner.ranks import Ranks, claim_gpu, is_lost_rank, open_ranks
from rlgym_llm_trainers.models.policy import Policy, pick_device
from rlgym_llm_trainers.training.preparation import find_model, load_model
from rlgym_llm_trainers.training.run_critic import make_critic
from rlgym_llm_trainers.training.run_learner import make_learner

__all__ = ["assemble", "follow", "joined_ranks"]

_SHARED = (
    *("model", "algorithm", "actor", "critic", "plugins", "rollout.temperature"),
    *("data.max_prompt_length", "data.max_response_length"),
    *("trainer.balance_batch", "trainer.seed", "trainer.val_only"),
)
"""Sections and keys that every rank reads for itself; what else rank 0 needs, it alone reads."""


@contextlib.contextmanager
def joined_ranks(config: TrainConfig) -> Iterator[Ranks]:
    """The ranks of the run, for as long as the block runs; rank 0's end is everybody's."""
    claim_gpu()
    ranks = open_ranks(pick_device(config.trainer.device).type)
    try:
        yield ranks
    finally:
        with contextlib.suppress(RuntimeError):  # a rank that is lost has ended already
            if ranks.is_first and not ranks.is_closed:
                ranks.broadcast(None)
            ranks.close()


def assemble(ranks: Ranks, plan: BatchPlan, config: TrainConfig) -> None:
    """Rank 0 tells the plan and its settings; the others are ready once this returns.

    Raises RlgymError where one of them cannot be, or was given other settings, with what it says.
    """
    ranks.broadcast((plan, given_values(config, _SHARED)))
    for rank, fault in enumerate(ranks.gather(None)):
        if fault is not None:
            raise RlgymError(f"rank {rank}: {fault}")


def follow(config: TrainConfig, plugins: Plugins, ranks: Ranks) -> bool:
    """Makes this rank's part of what learns and serves until rank 0 ends the run.

    False where another rank was lost before that: whoever that was has said why.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # rank 0 hears them too, and ends the run in order
    policy: Policy | None = None
    fault = None
    try:
        policy_loss = load_policy_loss(config.actor, plugins)
        source = find_model(config, plugins)
        policy = load_model(config, source)
    except Exception as error:  # whatever it is, rank 0 says it, once
        fault = describe(error)
    try:
        told = ranks.broadcast()
        if told is None:
            return True
        plan, settings = told
        fault = _difference(given_values(config, _SHARED), settings) or fault
        if any(ranks.gather(fault)) or policy is None:
            return True
        members = {}
        if plan.critic is not None:
            members["critic"] = make_critic(
                config, policy, plan, plugins=plugins, model_path=source.path, ranks=ranks
            )
        members["actor"] = make_learner(config, policy, plan, policy_loss=policy_loss, ranks=ranks)
        serve(members, ranks)
    except RuntimeError as error:
        if is_lost_rank(error):
            return False
        raise
    return True


def _difference(own: Mapping[str, str], first: Mapping[str, str]) -> str | None:
    """Which settings, of those not at their defaults, are not those of rank 0; None where none."""
    keys = config_keys()
    found = [
        f"--{name} {here}, not {there}"
        for name in sorted({*own, *first})
        for here, there in [[s.get(name, dump_value(keys[name].default)) for s in (own, first)]]
        if here != there
    ]
    said = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    return f"{said} as on rank 0: start all ranks with the same settings" if found else None
