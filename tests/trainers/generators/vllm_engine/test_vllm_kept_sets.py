"""Kept sets of vLLM: what a run asks an engine for, and what comes of what it answers."""

import json
import subprocess
import sys
import warnings

import pytest
from rlgym_llm_trainers.generators.vllm_engine.arguments import (
    EngineSettings,
    check_kept_sets,
    engine_arguments,
    set_environment,
)
from rlgym_llm_trainers.generators.vllm_engine.completions import (
    completion,
    sampling_params,
    scoring_params,
)

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.kept_sets import KeptSets

CUT = RolloutConfig(top_p=0.9)


def request(**params):
    return GenerateRequest(
        prompt_token_ids=(1,), params=SamplingParams(max_new_tokens=4, **params), seed=0
    )


@pytest.fixture(scope="module", autouse=True)
def imported_vllm() -> None:
    """As an engine does it: torch deprecates some of what vLLM imports."""
    set_environment("cpu")
    with warnings.catch_warnings(action="ignore"):
        from vllm import LLM  # noqa: F401


def output_of(token_ids, kept):
    from vllm.logprobs import FlatLogprobs
    from vllm.outputs import CompletionOutput, SamplingMask, WeightVersionSpan

    return CompletionOutput(
        index=0,
        text="",
        token_ids=token_ids,
        cumulative_logprob=None,
        logprobs=FlatLogprobs(logprobs=[-0.5] * len(token_ids)),
        finish_reason="stop",
        sampling_mask=None if kept is None else SamplingMask(kept),
        weight_versions=[WeightVersionSpan(start=0, end=len(token_ids), version="3")],
    )


def test_an_engine_is_made_to_give_them_where_training_cuts() -> None:
    def asked(rollout: RolloutConfig, device: str) -> object:
        settings = EngineSettings(model_path="m", dtype="float32", device=device, rollout=rollout)
        return engine_arguments(settings, {}).get("return_sampling_mask")

    assert asked(CUT, "cuda") is True
    assert asked(RolloutConfig(top_k=5), "cuda") is True
    assert not asked(RolloutConfig(), "cuda")
    assert asked(CUT, "cpu") is None
    own = RolloutConfig(engine_kwargs={"return_sampling_mask": True})
    with pytest.raises(ConfigError, match="return_sampling_mask: is set by the run itself"):
        asked(own, "cuda")


def test_such_an_engine_takes_a_temperature_and_a_top_k_alone() -> None:
    """Its input processor refuses others: ``temperature <= 0`` and ``top_k <= 0``."""

    def sent(bound: int | None, **params: float) -> tuple[float, int]:
        found = sampling_params(request(**params), eos_token_ids=(), bound=bound)
        return found.temperature, found.top_k

    assert sent(100, temperature=0.7, top_p=0.9) == (0.7, 100)
    assert sent(100, temperature=0.7, top_k=5) == (0.7, 5)
    assert sent(100, temperature=0.0) == (1.0, 1)
    assert sent(None, temperature=0.7) == (0.7, 0)
    assert sent(None, temperature=0.0) == (0.0, 0)
    assert scoring_params(100).top_k == 100
    assert scoring_params().top_k == 0


def test_its_masks_are_the_kept_sets() -> None:
    done = completion(output_of([4, 2], [[4, 9], [2]]), text="x", raw_text=None)
    assert done.kept_token_ids == KeptSets.of([(4, 9), (2,)])
    assert completion(output_of([4], None), text="x", raw_text=None).kept_token_ids is None
    with pytest.raises(ValueError, match="2 tokens but 1 kept_token_ids"):
        completion(output_of([4, 2], [[4]]), text="x", raw_text=None)


def test_what_vllm_cannot_do_is_refused() -> None:
    for rollout in (CUT, RolloutConfig(top_k=5)):
        with pytest.raises(ConfigError, match="vLLM on a CPU does not say which tokens they left"):
            check_kept_sets(rollout, "cpu")
        check_kept_sets(rollout, "cuda")
    check_kept_sets(RolloutConfig(), "cpu")
    sampled = {"do_sample": True, "temperature": 1.0}
    free = RolloutConfig(top_p=0.9, val_kwargs=sampled)
    with pytest.raises(ConfigError, match=r"give --rollout.val_kwargs.top_p or top_k"):
        check_kept_sets(free, "cuda")
    check_kept_sets(RolloutConfig(top_p=0.9, val_kwargs={**sampled, "top_k": 20}), "cuda")


def test_training_under_top_p_on_a_cpu_is_one_line_before_anything_loads(tmp_path) -> None:
    program = (
        "import sys; from rlgym_llm_trainers.cli import main; code = main(); "
        "assert 'vllm' not in sys.modules; sys.exit(code)"
    )
    flags = ["--rollout.name", "vllm", "--rollout.top_p", "0.9", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", program, *flags],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "--rollout.top_p 0.9 --rollout.top_k -1: vLLM on a CPU does not say" in done.stderr
    assert not (tmp_path / "out").exists()


def test_collecting_under_top_p_on_a_cpu_needs_no_kept_sets(tmp_path) -> None:
    program = "import sys; from rlgym_llm.cli import main; sys.exit(main())"
    output = tmp_path / "rollouts.jsonl"
    flags = ["--rollout.name", "vllm", "--rollout.top_p", "0.9", "--max-tasks", "2", "--n", "2"]
    done = subprocess.run(
        [sys.executable, "-c", program, "rollout", *flags, "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len([json.loads(line) for line in output.read_text().splitlines()]) == 4
