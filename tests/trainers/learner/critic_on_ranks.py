"""The case of a critic for `two_ranks.py`: what two ranks learn beside what one does."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace

import torch
from conftest import make_policy
from rlgym_llm_trainers.learner.critic import Critic
from rlgym_llm_trainers.learner.led import serve
from rlgym_llm_trainers.learner.ranks import ALONE
from rlgym_llm_trainers.models.critic import ValueModel, load_value_model

from rlgym_llm.config_critic import CriticConfig


def make_critic(ranks):
    policy = make_policy()
    model = ValueModel(copy.deepcopy(policy.model.base_model))
    torch.manual_seed(0)
    model.head.weight.data.normal_()
    critic = Critic(
        model,
        policy,
        CriticConfig.model_validate({"optim": {"lr": 1e-3}}),
        loss_agg_mode="token-mean",
        mini_batch_prompts=2,
        micro_batch_size=2,
        num_epochs=2,
        max_response_length=10,
        num_updates=100,
        ranks=ranks,
    )
    return critic, policy


def critic_on_ranks(ranks, make_groups):
    """Five steps: relative differences from one rank, and the model that is saved at the end."""
    critic, policy = make_critic(ranks)
    if not ranks.is_first:
        return serve({"critic": critic}, ranks)
    alone, _ = make_critic(ALONE)
    rows = []
    for number in range(5):
        samples = make_groups(number)
        cut_off = {samples[0].rollout_id, samples[-1].rollout_id}
        (ours, bootstrap), (theirs, right) = (
            one.add_values(samples, cut_off=cut_off) for one in (critic, alone)
        )
        pairs = zip(ours, theirs, strict=True)
        values = [(a, b) for x, y in pairs for a, b in zip(x.values, y.values, strict=True)]
        values += [(bootstrap[name], right[name]) for name in sorted(cut_off)]
        learned, expected = (
            one.update([replace(s, returns=s.advantages) for s in scored], step=number + 1)
            for one, scored in ((critic, ours), (alone, theirs))
        )
        rows.append(
            {
                "is in order": [s.rollout_id for s in ours] == [s.rollout_id for s in samples],
                "values": max(abs(a - b) for a, b in values),
                "size": max(abs(b) for _, b in values),
                "has same keys": learned.keys() == expected.keys(),
                "metrics": max(
                    abs(learned[k] - expected[k]) / max(abs(expected[k]), 1e-3) for k in expected
                ),
            }
        )
    with tempfile.TemporaryDirectory() as folder:
        critic.save_model(f"{folder}/critic")
        saved = load_value_model(f"{folder}/critic", policy=policy, num_positions=1).state_dict()
    ranks.broadcast(None)
    right = alone._scorer.model.state_dict()
    return rows, max(float((saved[name] - right[name]).abs().max()) for name in right)
