"""The schema of sampling: the section ``rollout`` and what stands below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rlgym_llm.config_base import Count, Mass, Natural, NonNegative, Positive, Section, TopK

__all__ = [
    "BatchingConfig",
    "RolloutConfig",
    "ServerConfig",
    "ValKwargsConfig",
    "WeightSyncConfig",
    "WorkersConfig",
]


class ValKwargsConfig(Section):
    """How validation samples."""

    n: Count = 1
    """Responses a task."""
    do_sample: bool = False
    """Samples; false takes the likeliest token each time."""
    temperature: NonNegative = 0.0
    """Temperature, with `do_sample` only."""
    top_p: Mass = 1.0
    """Keeps the likeliest tokens of this probability mass, with `do_sample` only."""
    top_k: TopK = -1
    """Keeps this many of the likeliest tokens, with `do_sample` only; -1 is all."""

    @model_validator(mode="after")
    def _check_greedy(self) -> Self:
        if self.top_k == 0:
            raise ValueError("top_k must be -1 (all) or at least 1")
        if self.do_sample and self.temperature == 0:
            raise ValueError("do_sample needs a temperature above 0")
        if not self.do_sample:
            for name, off in (("temperature", 0.0), ("n", 1), ("top_p", 1.0), ("top_k", -1)):
                if getattr(self, name) != off:
                    raise ValueError(f"{name} has no effect without do_sample")
        return self


class BatchingConfig(Section):
    """How the turns of many episodes become batches for the generator."""

    max_size: Count | None = None
    """Turns in one batch; null is all that wait."""
    linger_s: NonNegative = 1.0
    """Seconds that a batch waits for an environment that is slow to answer. Where none is slower,
    batches do not depend on timing, so a seeded run repeats."""


class WorkersConfig(Section):
    """Generators in processes of their own, as Ray actors."""

    address: str | None = None
    """Ray cluster to join, such as `auto` or `ray://host:10001`; null starts one on this machine
    and ends it with the run."""
    num_cpus: Annotated[float, Field(strict=True, gt=0)] = 1.0
    """Cores of each; without a GPU, also the threads of its matrix products."""
    bind_cores: bool = False
    """Keeps each on whole cores of its own, on a CPU under Linux, in a Ray that the run started."""
    num_gpus: NonNegative | None = None
    """GPUs of each; null is `rollout.tensor_model_parallel_size` where the run has CUDA, else 0."""
    max_retries: Natural = 2
    """How often a turn is sampled again, elsewhere where that is possible, after the process that
    had it died or failed."""
    max_restarts: Natural = 4
    """How often a dead process is replaced in a row without having sampled anything; then the run
    ends and names the first cause. With nccl and ipc only before the first sync."""
    generate_timeout_s: Positive | None = 600.0
    """Seconds that one turn may take to sample; its process is replaced then. null is none."""
    start_timeout_s: Positive = 600.0
    """Seconds that a process may take to be ready."""


class WeightSyncConfig(Section):
    """How new weights reach the generator after every step."""

    transport: Literal["auto", "shared_memory", "nccl", "ipc"] = "auto"
    """auto hands them over in memory to vLLM in this process on a GPU, else through shared memory;
    nccl and ipc are vLLM's own and need GPUs."""
    folder: str | None = None
    """Where weight files lie for processes; null is the machine's shared memory."""
    canary: bool = True
    """Scores the same tokens in generator and learner after every sync and ends the run where they
    disagree: stale or broken weights never train."""
    canary_tolerance: Positive | None = None
    """Largest difference of a log-prob; null is 0.001 for float32 weights on a CPU, 0.1
    elsewhere."""
    timeout_s: Positive = 600.0
    """Seconds that a sync may take; then it has failed."""


class ServerConfig(Section):
    """An OpenAI-compatible server, for `rollout.name openai`."""

    base_url: str | None = None
    """Its address up to and with the version, such as http://localhost:8000/v1."""
    model: str | None = None
    """The name it knows the model by; null asks the server."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key, where the server wants one."""
    concurrency: Count = 64
    """Requests at a time."""
    timeout_s: Positive = 600.0
    """Seconds that a request may take."""
    max_retries: Natural = 4
    """How often a request is sent again after a failure that may pass."""


class RolloutConfig(Section):
    """How the policy samples."""

    name: str = "auto"
    """Generator, by its registered name: hf is the model's own forward pass with a key-value cache,
    vllm is vLLM, openai a server (evaluation only). auto is vllm where it is installed and the run
    has CUDA, else hf."""
    num_workers: Natural = 0
    """Generators in processes of their own, as Ray actors; 0 samples in this process."""
    n: Count = 8
    """Responses a prompt: the size of a group."""
    temperature: Positive = 1.0
    """Temperature; log-probs are of the tempered distribution everywhere."""
    top_p: Mass = 1.0
    """Keeps the likeliest tokens of this probability mass; learner and reference policy then take
    their log-probs over the same tokens. vllm can do so on a GPU alone."""
    top_k: TopK = -1
    """Keeps this many of the likeliest tokens, with the same log-probs; -1 is all."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a response, such as `["</answer>"]`, in training, validation and evaluation.
    The token that completes one is the last; nothing is cut off the text."""
    stop_token_ids: tuple[Natural, ...] = ()
    """Token ids that do the same, beside the model's own."""
    max_num_seqs: Count = 256
    """Sequences sampled at once, by each generator; it bounds the memory."""
    max_staleness: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """How many updates older than the learner a policy may be that its samples train; 0 takes
    turns, more lets generation and learning overlap."""
    stale: Literal["wait", "drop"] = "wait"
    """What keeps samples fresh enough: wait holds generation back, drop lets it run ahead and
    throws away groups that are too old."""
    max_turns: Count | None = None
    """Turns of an episode; null leaves it to the environment, which may allow fewer at any rate."""
    max_seconds: Positive | None = None
    """Seconds of an episode, looked at before every turn; then it is truncated. null is none."""
    step_timeout_s: Positive | None = 300.0
    """Seconds that an environment may take to answer; beyond them its episode has failed. null is
    none."""
    max_model_len: Count | None = None
    """Longest context that is sampled in, prompt, replies and all turns; null is the model's."""
    tensor_model_parallel_size: Count = 1
    """GPUs that hold one copy of the model in vLLM."""
    gpu_memory_utilization: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.5
    """Share of a GPU's memory that vLLM takes, weights and cache together."""
    kv_cache_gib: Positive | None = None
    """Memory of vLLM's key-value cache on a CPU, in GiB; null is what the sequences need, at most
    4."""
    max_num_batched_tokens: Count | None = None
    """Tokens that vLLM computes at once; null is vLLM's choice."""
    enforce_eager: bool = False
    """Runs vLLM without compiled graphs: it starts sooner and samples slower on a GPU."""
    enable_prefix_caching: bool = True
    """Lets vLLM compute a prompt once that several sequences begin with."""
    engine_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine."""
    workers: WorkersConfig = WorkersConfig()
    weight_sync: WeightSyncConfig = WeightSyncConfig()
    server: ServerConfig = ServerConfig()
    batching: BatchingConfig = BatchingConfig()
    val_kwargs: ValKwargsConfig = ValKwargsConfig()

    @property
    def is_cut(self) -> bool:
        """Whether training samples from kept sets, not from all tokens."""
        return self.top_p < 1 or self.top_k != -1

    @model_validator(mode="after")
    def _check_top_k(self) -> Self:
        if self.top_k == 0:
            raise ValueError("top_k must be -1 (all) or at least 1")
        return self
