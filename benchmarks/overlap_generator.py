"""A plugin for `overlap.py`: a generator with weights of its own that takes its time.

It stands for an engine on other hardware that does one batch at a time: each takes
``rollout.engine_kwargs.latency_s`` seconds at least, and what is left of them after sampling uses
no processor. New weights wait for the sampling, not for the rest.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Sequence

import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.models.policy import Policy

from rlgym_llm import hookimpl
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.specs import GeneratorSpec, Kind, Spec
from rlgym_llm.types import Completion


class DelayedGenerator(HFGenerator):
    """Samples from a copy of the policy's weights."""

    has_own_weights = True

    def __init__(self, policy: Policy, *, max_num_seqs: int, latency_s: float) -> None:
        own = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
        super().__init__(own, max_num_seqs=max_num_seqs)
        self._learner = policy
        self._own = own
        self._latency_s = latency_s
        self._engine = threading.Lock()
        self._weights = threading.Lock()

    @classmethod
    def from_config(cls, policy: Policy, config: TrainConfig) -> DelayedGenerator:
        """The generator that a run asks for."""
        latency_s = float(config.rollout.engine_kwargs.get("latency_s", 0))
        return cls(policy, max_num_seqs=config.rollout.max_num_seqs, latency_s=latency_s)

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """As `HFGenerator.generate`, no sooner than after the latency."""
        with self._engine:
            started = time.perf_counter()
            with self._weights:
                completions = super().generate(requests)
            time.sleep(max(0.0, started + self._latency_s - time.perf_counter()))
        return completions

    def sync(self, version: int) -> dict[str, float]:
        """Copies the learner's weights, as ``version``."""
        with self._weights, torch.no_grad():
            for mine, theirs in zip(
                self._own.model.parameters(), self._learner.model.parameters(), strict=True
            ):
                mine.copy_(theirs)
            return super().sync(version)


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The generator, as ``delayed``."""
    here = f"{__name__}:DelayedGenerator.from_config"
    return [GeneratorSpec(name="delayed", entry_point=here)] if kind is Kind.GENERATOR else []
