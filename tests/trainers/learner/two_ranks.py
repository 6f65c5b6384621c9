"""What `test_ranks.py` has torchrun start: ``two_ranks.py FILE CASE...`` runs cases on every rank.

Rank 0 leads while the others serve, and writes what each rank returns to FILE, as JSON.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import exact, make_policy
from critic_on_ranks import critic_on_ranks
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.led import led, serve
from rlgym_llm_trainers.learner.ranks import ALONE, end_process, open_ranks
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.models.lora import add_lora
from rlgym_llm_trainers.models.policy import make_reference

from rlgym_llm.config_schema import ActorConfig, ModelConfig
from rlgym_llm.errors import PluginError, RlgymError
from rlgym_llm.specs import Kind

LOSSES = {spec.name: spec.load() for spec in rlgym_register(Kind.POLICY_LOSS)}
OF_LATER = 1
"""A version that no token was sampled under: random log-probs are no sign of a wrong generator."""


def make_groups(number, *, sizes=(2, 3, 1), longest=9):
    """Random samples: uneven groups, prompts and responses, with advantages and old log-probs."""
    draw = random.Random(number)
    samples = []
    for group, size in enumerate(sizes):
        prompt = [draw.randrange(6, 100) for _ in range(draw.randrange(1, 6))]
        for index in range(size):
            reply = [draw.randrange(6, 100) for _ in range(draw.randrange(1, longest))]
            rest, none = (0.0,) * len(prompt), (False,) * len(prompt)
            logprobs = tuple(-draw.uniform(1.0, 6.0) for _ in reply)
            advantage = draw.gauss(0.0, 1.0)
            samples.append(
                TrainingSample(
                    token_ids=(*prompt, *reply),
                    loss_mask=none + (True,) * len(reply),
                    rollout_logprobs=rest + logprobs,
                    policy_versions=(-1,) * len(prompt) + (0,) * len(reply),
                    rollout_id=f"{number}-{group}-{index}",
                    group_id=f"{number}-{group}",
                    sample_index=index,
                    advantages=rest + (advantage,) * len(reply),
                )
            )
    return samples


class Probe(Learner):
    """A learner whose gradient can be looked at, and whose micro-batches can be changed."""

    @led
    def split(self, micro):
        batching = replace(self._passes.batching, max_sequences=micro)
        self._passes = replace(self._passes, batching=batching)

    @led
    def gradient(self):
        """Of the last step, as the optimizer saw it."""
        whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in self._seen]
        return torch.cat([g.double().flatten() for g in whole])

    def watch(self):
        def keep(optimizer, args, kwargs):
            grads = (p.grad for p in self._trained.parameters())
            self._seen = [g.clone() for g in grads if g is not None]

        self._stepper.optimizer.register_step_pre_hook(keep)
        return self


@contextmanager
def leading(ranks):
    """What rank 0 does; the others may go on afterwards."""
    yield
    ranks.broadcast(None)


def make_learner(ranks, *, policy=None, loss="ppo_clip", micro=2, lr=1e-3, reference=False, **more):
    policy = policy or make_policy()
    balances, note = more.pop("balances", True), more.pop("note", None)
    lora, recomputes = more.pop("lora", False), more.pop("recomputes", False)
    config = ActorConfig.model_validate(
        {"optim": {"lr": lr, "weight_decay": 0.01}, "policy_loss": loss, **more}
    )
    # Rank 0 keeps the policy whole, beside the one that is sharded.
    own = ranks is ALONE and not lora
    trained = policy.model if own else copy.deepcopy(policy.model)
    frozen = make_reference(policy) if reference else None
    if lora:
        add_lora(trained, ModelConfig(lora_rank=4), seed=0)
    if recomputes:
        trained.gradient_checkpointing_enable({"use_reentrant": False})
    return Probe(
        policy,
        config,
        policy_loss=bind_policy_loss(LOSSES.get(loss, ppo_clip_loss), config),
        mini_batch_prompts=3,
        micro_batch_size=micro,
        reference_batch_size=2,
        temperature=1.0,
        max_response_length=10,
        num_updates=100,
        seed=0,
        reference=frozen,
        trained=trained,
        ranks=ranks,
        balances=balances,
        note=note,
    ).watch(), policy


def weights(policy):
    return torch.cat([p.detach().double().flatten() for p in policy.model.parameters()])


def apart(found, right):
    """Largest difference over the largest value."""
    return float((found - right).abs().max() / right.abs().max())


def recorded_batches(ranks, *, count=20, **how):
    """So many updates beside those of one rank: the relative differences after each."""
    settings = {"reference": True, "use_kl_loss": True, "entropy_coeff": 0.01}
    learner, policy = make_learner(ranks, **how, **settings)
    if not ranks.is_first:
        return serve({"actor": learner}, ranks)
    alone, right = make_learner(ALONE, lora=how.get("lora", False), **settings)
    rows = []
    with leading(ranks):
        for number in range(count):
            samples = make_groups(number)
            found = [learner.add_old_logprobs(learner.add_reference(samples))]
            found.append(alone.add_old_logprobs(alone.add_reference(samples)))
            ours, theirs = (
                one.update(those, step=number + 1, version=OF_LATER)
                for one, those in zip((learner, alone), found, strict=True)
            )
            rows.append(
                {
                    "loss": abs(ours["actor/loss"] / theirs["actor/loss"] - 1),
                    "grad_norm": abs(ours["actor/grad_norm"] / theirs["actor/grad_norm"] - 1),
                    "parameters": apart(weights(policy), weights(right)),
                    "is in order": [s.rollout_id for s in found[0]]
                    == [s.rollout_id for s in samples],
                    "streams": max(
                        abs(a - b) / max(abs(b), 1.0)
                        for one, other in zip(*found, strict=True)
                        for a, b in zip(
                            one.old_logprobs + one.ref_logprobs,
                            other.old_logprobs + other.ref_logprobs,
                            strict=True,
                        )
                    ),
                    "has same keys": ours.keys() == theirs.keys(),
                    "metrics": max(
                        abs(ours[k] - theirs[k]) / max(abs(theirs[k]), 1e-3) for k in theirs
                    ),
                }
            )
    return rows


def adapters(ranks):
    return recorded_batches(ranks, count=3, lora=True)


def recomputed(ranks):
    """Activations are computed again in the backward pass."""
    return recorded_batches(ranks, count=2, recomputes=True)


def batches_in_order(ranks):
    return recorded_batches(ranks, count=2, balances=False)


def gradients(ranks):
    """The gradient of each loss and aggregation, split in several ways, beside one rank's."""
    samples, found = make_groups(0), {}
    for loss, mode in itertools.product(LOSSES, LossAggMode):
        more = {"loss": loss, "loss_agg_mode": str(mode), "grad_clip": 1e9, "lr": 0.0}
        learner, _ = make_learner(ranks, policy=exact(make_policy()), **more)
        if not ranks.is_first:
            serve({"actor": learner}, ranks)
            continue
        alone, _ = make_learner(ALONE, policy=exact(make_policy()), micro=6, **more)
        alone.update(samples, step=1, version=OF_LATER)
        right = alone.gradient()
        assert float(right.norm()) > 0
        with leading(ranks):
            for micro in (6, 1):
                learner.split(micro)
                learner.update(samples, step=1, version=OF_LATER)
                found[f"{loss} {mode} {micro}"] = apart(learner.gradient(), right)
    return found


def uneven(ranks):
    """One sample, and one group, for two ranks: one of them has nothing, or more micro-batches."""
    found = []
    for sizes in ((1,), (5,), (1, 1, 1)):
        samples = make_groups(3, sizes=sizes)
        learner, _ = make_learner(ranks, micro=1, reference=True)
        if not ranks.is_first:
            serve({"actor": learner}, ranks)
            continue
        alone, _ = make_learner(ALONE, micro=1, reference=True)
        with leading(ranks):
            scored = learner.add_reference(samples)
            ours = learner.update(scored, step=1, version=OF_LATER)
        theirs = alone.update(alone.add_reference(samples), step=1, version=OF_LATER)
        found.append(abs(ours["actor/loss"] - theirs["actor/loss"]))
        found.append(abs(ours["actor/grad_norm"] / theirs["actor/grad_norm"] - 1))
    return found


def not_finite(ranks):
    """A loss or a gradient that is NaN on rank 1 alone, until the run ends."""
    real = LOSSES["ppo_clip"]

    def faulty(inputs, *, reduce, **options):
        output = real(inputs, reduce=reduce, **options)
        if ranks.rank == 0:
            return output
        if learner.updates_done == 1:  # 0 with the slope of a root at 0
            total = inputs.logprobs.sum()
            return replace(output, loss=output.loss + (total - total.detach()).sqrt())
        return replace(output, loss=output.loss * float("nan"))

    notes = []
    LOSSES["faulty"] = faulty
    learner, policy = make_learner(
        ranks, loss="faulty", micro=6, max_skipped_steps=2, note=notes.append
    )
    before = weights(policy)
    if not ranks.is_first:
        serve({"actor": learner}, ranks)
        return {"updates_done": learner.updates_done, "last_step": learner.last_step}
    samples = make_groups(0)
    with leading(ranks):
        ratios = [
            learner.update(samples, step=step, version=OF_LATER)["actor/skipped_ratio"]
            for step in (1, 2)
        ]
        is_same = bool((weights(policy) == before).all())
        try:
            learner.update(samples, step=3, version=OF_LATER)
            ending = None
        except RlgymError as error:
            ending = str(error)
    return {
        "ratios": ratios,
        "notes": notes,
        "is same": is_same,
        "last_step": learner.last_step,
        "ending": ending,
    }


class Heard:
    """A learner, and the errors that its updates end with, on whatever rank."""

    def __init__(self, learner):
        self.learner, self.errors = learner, []

    def __getattr__(self, name):
        return getattr(self.learner, name)

    def update(self, *args, **kwargs):
        try:
            return self.learner.update(*args, **kwargs)
        except RlgymError as error:
            self.errors.append(str(error))
            raise


def updated(learner, samples, *, step):
    """The step's metrics, none where it ends with an error."""
    try:
        return learner.update(samples, step=step, version=OF_LATER)
    except RlgymError:
        return {}


def failing(ranks):
    """A loss that fails on rank 1 alone, in the second of its three micro-batches of step 2."""
    real, calls = LOSSES["ppo_clip"], []

    def fails(inputs, *, reduce, **options):
        calls.append(inputs)
        if ranks.rank == 1 and len(calls) == 3 + 2:
            raise PluginError("the loss has no mood")
        return real(inputs, reduce=reduce, **options)

    LOSSES["fails"] = fails
    bare, policy = make_learner(ranks, loss="fails", micro=1)
    learner = Heard(bare)
    if not ranks.is_first:
        serve({"actor": learner}, ranks)
    else:
        samples = make_groups(0)
        with leading(ranks), tempfile.TemporaryDirectory() as folder:
            first = updated(learner, samples, step=1)
            before = weights(policy)
            updated(learner, samples, step=2)
            is_same = bool((weights(policy) == before).all())
            learner.save(f"{folder}/state")
            third = updated(learner, samples, step=3)
            learner.load(f"{folder}/state")
            is_loaded = bool((weights(policy) == before).all())
    found = {"errors": learner.errors, "calls": len(calls), "updates": learner.updates_done}
    if not ranks.is_first:
        return found
    return found | {
        "norms": [metrics["actor/grad_norm"] for metrics in (first, third)],
        "is same": is_same,
        "is loaded": is_loaded,
    }


def broken(ranks):
    """An update that leaves no number in any weight."""
    bare, policy = make_learner(ranks, optim={"lr": 100.0, "weight_decay": 1e38})
    learner, before = Heard(bare), weights(policy)
    if not ranks.is_first:
        serve({"actor": learner}, ranks)
    else:
        with leading(ranks):
            updated(learner, make_groups(0), step=1)
    return {
        "errors": learner.errors,
        "last_step": learner.last_step,
        "is broken": learner._stepper.is_broken,
        "is told as broken": learner.is_broken,
        "is same": bool((weights(policy) == before).all()) if ranks.is_first else None,
    }


def critic(ranks):
    return critic_on_ranks(ranks, make_groups)


if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = open_ranks("cpu")
    results = {name: ranks.gather(globals()[name](ranks)) for name in sys.argv[2:]}
    if ranks.is_first:
        Path(sys.argv[1]).write_text(json.dumps(results))
    ranks.close()
    end_process(0)
