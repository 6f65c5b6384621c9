"""New weights into a vLLM engine: ours against vLLM's own reload, and their share of a step.

    python benchmarks/weight_sync.py --model SmolLM2-135M      # in an environment with vLLM
    python benchmarks/weight_sync.py --model SmolLM2-135M --step-seconds 30
    python benchmarks/weight_sync.py --rounds 3                # the starter model, to try it

One process holds the learner's model and one engine on a CPU. Every round changes the weights a
little and publishes them once, in shared memory; then both sides take them from that file, whoever
was second in the round before first. *Ours*: ``write`` is the publishing, ``load`` the file into
the engine, packed for its matrix products; then the canary, the same tokens scored by the learner
(``learner scores``) and by the engine (``engine scores``).
*vLLM*: ``reload`` is ``collective_rpc("reload_weights", weights_path=...)``; it leaves a head that
is tied to the embedding as it was, which ``head`` mends. After each side the canary must agree, or
the benchmark ends; so both have done their work. The ratio is the median of the rounds' ratios,
load against reload alone.

A *step* is 8 prompts x 8 samples: sampled by the engine, then one update of the learner, both on
these threads. ``--step-seconds`` gives its time instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlgym_llm_trainers.generators.vllm_engine.engine import Engine
    from rlgym_llm_trainers.models.policy import Policy

SHARED_MEMORY = Path("/dev/shm")
OURS = ("write", "load", "of it repacked", "learner scores", "engine scores")
VLLM = ("reload", "head")
WARM_UP = 2
MOST_OF_RELOAD = 0.8
MOST_OF_A_STEP = 0.1
NUM_PROMPTS, GROUP = 8, 8

Times = dict[str, list[float]]


def main() -> int:
    """Runs both sides in turns, then a step, and prints what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--rounds", type=int, default=9, help="after two that warm up")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64, help="sampled in each sequence of a step")
    parser.add_argument("--step-seconds", type=float, help="of a whole step; default: measured")
    parser.add_argument("--no-step", action="store_true", help="only the two sides")
    options = parser.parse_args()
    # Before torch is imported: vLLM fixes the number once it is there.
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "OMP_WAIT_POLICY": "PASSIVE"}

    policy, llm, engine = open_both(options.model)
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as made:
        times = run_rounds(policy, llm, engine, options.rounds, Path(made))
    is_met = show_sides(times)
    if not options.no_step:
        seconds = options.step_seconds or step_seconds(policy, engine, options.tokens)
        is_met &= show_share(times, seconds)
    engine.close()
    return 0 if is_met else 1


def open_both(path: str | None) -> tuple[Policy, Any, Engine]:
    """The learner's model, vLLM with the same weights, and our engine over that vLLM."""
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    import torch
    from rlgym_llm_trainers.generators.vllm_engine.arguments import (
        EngineSettings,
        engine_arguments,
        set_environment,
    )
    from rlgym_llm_trainers.generators.vllm_engine.engine import Engine
    from rlgym_llm_trainers.models.detokenize import Detokenizer
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.starter import starter_model_path
    from rlgym_llm_trainers.models.token_side import read_model_config

    from rlgym_llm.config_rollout import RolloutConfig

    policy = load_policy(path or starter_model_path(), device=torch.device("cpu"))
    settings = EngineSettings(
        model_path=policy.path,
        dtype="float32",
        device="cpu",
        rollout=RolloutConfig(max_num_seqs=NUM_PROMPTS * GROUP),
    )
    set_environment("cpu")
    with warnings.catch_warnings(action="ignore"):  # of torch's names
        from vllm import LLM

    llm = LLM(**engine_arguments(settings, read_model_config(policy.path)))
    ends = policy.eos_token_ids
    engine = Engine(llm, detokenize=Detokenizer(policy.tokenizer, ends), eos_token_ids=ends)
    megabytes = 4e-6 * policy.num_parameters
    print(f"{policy.path}: {megabytes:,.0f} MB of float32, {os.environ['OMP_NUM_THREADS']} threads")
    return policy, llm, engine


def run_rounds(policy: Policy, llm: Any, engine: Engine, rounds: int, scratch: Path) -> Times:
    """Seconds of each part in each round."""
    from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles, read_weights
    from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard
    from rlgym_llm_trainers.generators.weight_sync.update import run_update

    times: Times = {part: [] for part in (*OURS, *VLLM)}
    guard = CanaryGuard(policy)
    checkpoint = scratch / "checkpoint"  # what vLLM reads: a folder around the published file
    checkpoint.mkdir()
    shutil.copy(Path(policy.path) / "config.json", checkpoint)
    link = checkpoint / "model.safetensors"
    with WeightFiles(scratch) as files:
        for version in range(1, WARM_UP + rounds + 1):
            perturb(policy, version)
            with timed(times["write"]):
                path = files.publish(policy.model, version)
            link.unlink(missing_ok=True)
            link.symlink_to(path)
            with timed(times["learner scores"]):
                compare = guard.expect(version)
            for side in ("ours", "vLLM") if version % 2 else ("vLLM", "ours"):
                llm.apply_model(spoil)
                if side == "ours":
                    with repacking() as packed, timed(times["load"]):
                        run_update(engine, read_weights(path, version=version), version)
                    times["of it repacked"].append(sum(packed))
                    with timed(times["engine scores"]):
                        scores = engine.score(guard.sequences)
                else:
                    with timed(times["reload"]):
                        how = {"weights_path": str(checkpoint)}
                        llm.collective_rpc("reload_weights", kwargs=how)
                    with timed(times["head"]):
                        llm.apply_model(mend_head)
                    llm.reset_prefix_cache()
                    scores = engine.score(guard.sequences)
                compare(side, scores)
            files.forget_before(version)
    return {part: found[WARM_UP:] for part, found in times.items()}


def perturb(policy: Policy, seed: int) -> None:
    """Moves every weight a little, as a step would, so that stale weights show."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1 + 0.02 * torch.randn((), generator=draw).item())


def spoil(model: Any) -> None:
    """Doubles the norms' weights, so that a side that loads nothing is found out."""
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data.mul_(2)


def mend_head(model: Any) -> None:
    """Packs the head again, which vLLM's reload leaves out where it is tied."""
    head = model.lm_head
    head.quant_method.process_weights_after_loading(head)


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    """Notes the seconds that the block takes."""
    started = time.perf_counter()
    yield
    times.append(time.perf_counter() - started)


@contextmanager
def repacking() -> Iterator[list[float]]:
    """Notes the seconds of every matrix that is packed anew in the block; the rest is copying."""
    from rlgym_llm_trainers.generators.vllm_engine import weights

    pack, found = weights._pack, list[float]()

    def timed_pack(layer: Any) -> None:
        with timed(found):
            pack(layer)

    weights._pack = timed_pack
    try:
        yield found
    finally:
        weights._pack = pack


def show_sides(times: Times) -> bool:
    """Prints the parts; whether loading is as quick as it should be."""
    print(f"\n{'seconds of ' + str(len(times['load'])) + ' rounds':24} {'median':>9} {'least':>9}")
    for part, found in times.items():
        name = f"{'ours' if part in OURS else 'vLLM'}: {part}"
        print(f"{name:24} {statistics.median(found):9.4f} {min(found):9.4f}")
    pairs = list(zip(times["load"], times["reload"], times["head"], strict=True))
    ratio = statistics.median(load / reload for load, reload, _ in pairs)
    mended = statistics.median(load / (reload + head) for load, reload, head in pairs)
    best = min(times["load"]) / min(times["reload"])
    print(
        f"\nload / reload: {ratio:.2f} (of the least: {best:.2f}), at most {MOST_OF_RELOAD:g}"
        f"; load / (reload + head): {mended:.2f}"
    )
    return told(ratio <= MOST_OF_RELOAD, f"load takes {ratio:.2f} times what reload_weights takes")


def step_seconds(policy: Policy, engine: Engine, num_tokens: int) -> float:
    """Seconds of one step: 64 sequences sampled and learned from."""
    import numpy as np
    from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
    from rlgym_llm_trainers.generators.vllm_engine.generator import VLLMGenerator
    from rlgym_llm_trainers.learner.learner import Learner
    from rlgym_llm_trainers.learner.sample import CONTEXT_VERSION, TrainingSample

    from rlgym_llm.config_schema import ActorConfig
    from rlgym_llm.generate import GenerateRequest, SamplingParams

    draw = np.random.default_rng(0)
    prompts = draw.integers(10, len(policy.tokenizer), size=(NUM_PROMPTS, 64)).tolist()
    params = SamplingParams(max_new_tokens=num_tokens)
    requests = [
        GenerateRequest(prompt_token_ids=tuple(prompts[i // GROUP]), params=params, seed=i)
        for i in range(NUM_PROMPTS * GROUP)
    ]
    generator = VLLMGenerator(policy, engine)
    generator.sync(engine.policy_version + 1)
    learner = Learner(
        policy,
        ActorConfig(),
        policy_loss=ppo_clip_loss,
        mini_batch_prompts=NUM_PROMPTS,
        micro_batch_size=GROUP,
        reference_batch_size=GROUP,
        temperature=1.0,
        max_response_length=num_tokens,
        num_updates=1,
        seed=0,
    )
    started = time.perf_counter()
    completions = generator.generate(requests)
    sampled = time.perf_counter()
    samples = []
    for i, (request, done) in enumerate(zip(requests, completions, strict=True)):
        context, answer = len(request.prompt_token_ids), done.num_tokens
        assert done.logprobs is not None
        samples.append(
            TrainingSample(
                token_ids=request.prompt_token_ids + done.token_ids,
                loss_mask=(False,) * context + (True,) * answer,
                rollout_logprobs=(0.0,) * context + done.logprobs,
                policy_versions=(CONTEXT_VERSION,) * context + (engine.policy_version,) * answer,
                rollout_id=str(i),
                group_id=str(i // GROUP),
                sample_index=i % GROUP,
                advantages=(0.0,) * context + (1.0 if i % 2 else -1.0,) * answer,
            )
        )
    learner.update(samples, step=1, version=engine.policy_version)
    learned = time.perf_counter()
    print(
        f"\na step of {len(samples)} sequences: {sampled - started:.2f} s sampling, "
        f"{learned - sampled:.2f} s learning"
    )
    return learned - started


def show_share(times: Times, seconds: float) -> bool:
    """Prints the share of a step that a sync is, the canary included."""
    sync = sum(statistics.median(times[part]) for part in OURS)
    share = sync / (sync + seconds)
    print(
        f"a sync of {sync:.3f} s is {share:.1%} of a step of {sync + seconds:.2f} s, "
        f"at most {MOST_OF_A_STEP:.0%}"
    )
    return told(share <= MOST_OF_A_STEP, f"a sync is {share:.1%} of a step")


def told(is_met: bool, what: str) -> bool:
    """Says so where a target is missed."""
    if not is_met:
        print(f"MISSED: {what}")
    return is_met


if __name__ == "__main__":
    sys.exit(main())
