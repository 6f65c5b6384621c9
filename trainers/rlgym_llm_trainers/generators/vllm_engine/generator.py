"""vLLM in the run's own process: whole batches in, whole batches out."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import GeneratorError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.vllm_engine.arguments import EngineSettings
from rlgym_llm_trainers.generators.vllm_engine.engine import Engine, open_engine
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from rlgym_llm_trainers.generators.weight_sync.transport import choose_transport
from rlgym_llm_trainers.generators.weight_sync.update import FileUpdates, run_update
from rlgym_llm_trainers.models.chat import ChatEncoder
from rlgym_llm_trainers.models.policy import Policy
from rlgym_llm_trainers.models.token_side import TokenSide

__all__ = ["VLLMGenerator"]


class VLLMGenerator(ChatEncoder):
    """A `TrainingGenerator` over an engine with a copy of the policy's weights.

    A batch is sampled from its first token to its last with nothing joining in between, so a
    seeded run repeats to the bit on a CPU. Calls from several threads take turns.
    """

    has_own_weights: bool = True

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        *,
        files: WeightFiles | None = None,
        canary: CanaryGuard | None = None,
    ) -> None:
        """Without ``files`` weights go over in memory; an update that fails leaves no engine."""
        super().__init__(policy)
        self._policy = policy
        self._engine = engine
        self._files = files
        self._canary = canary
        self._updates = FileUpdates(engine)
        self._lock = threading.Lock()

    @classmethod
    def from_config(cls, policy: Policy, config: TrainConfig) -> VLLMGenerator:
        """The generator that a run asks for. Raises UserError where vLLM cannot serve the model."""
        tokens = TokenSide(
            tokenizer=policy.tokenizer, path=policy.path, eos_token_ids=policy.eos_token_ids
        )
        settings = EngineSettings(
            model_path=policy.path,
            dtype=str(policy.model.dtype).removeprefix("torch."),
            device=policy.device.type,
            rollout=config.rollout,
            seed=config.trainer.seed % 2**31,
            trust_remote_code=config.model.trust_remote_code,
        )
        engine = open_engine(settings, tokens)
        sync = config.rollout.weight_sync
        is_direct = choose_transport(sync, settings.device, num_workers=0) == "memory"
        return cls(
            policy,
            engine,
            files=None if is_direct else WeightFiles(sync.folder),
            canary=CanaryGuard.from_config(policy, config.rollout),
        )

    @property
    def policy_version(self) -> int:
        """Number of updates that the weights it samples from have seen."""
        return self._engine.policy_version

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion per request, in order. Raises GeneratorError where vLLM fails."""
        with self._lock:
            try:
                for place, request in enumerate(requests):
                    self._engine.add(str(place), request)
            except ValueError as error:
                self._engine.abort()
                raise GeneratorError(str(error)) from error
            done: dict[str, Completion] = {}
            while self._engine.has_work:
                done.update(self._engine.step())
            return [done[str(place)] for place in range(len(requests))]

    def sync(self, version: int) -> dict[str, float]:
        """Copies the policy's weights into the engine, and has the canary look at them."""
        started = time.perf_counter()
        path = self._files.publish(self._policy.model, version) if self._files else None
        published = time.perf_counter()
        with self._lock:
            waited = time.perf_counter()
            self._update(path, version)
            updated = time.perf_counter()
            metrics = {
                "timing_s/update_weights": updated - started,
                "weight_sync/write_s": published - started,
                "weight_sync/wait_s": waited - published,
                "weight_sync/load_s": updated - waited,
            }
            if self._canary is not None:
                metrics |= self._canary.check({"vllm": self._engine.score}, version=version)
                metrics["weight_sync/canary_s"] = time.perf_counter() - updated
        return metrics

    def close(self) -> None:
        """Gives back the engine's memory and the weight files."""
        with self._lock:
            self._engine.close()
        if self._files is not None:
            self._files.close()

    def _update(self, path: Path | None, version: int) -> None:
        if self._files is None or path is None:
            run_update(self._engine, policy_weights(self._policy.model), version)
            return
        self._updates.load(path, version)
        self._files.forget_before(version)
