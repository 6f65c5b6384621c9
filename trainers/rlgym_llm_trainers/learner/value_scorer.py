"""A critic as the learner sees it: a module that gives the values of a batch's states."""

from __future__ import annotations

from torch import Tensor, nn

from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.forward import can_pack, enable_packing
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.states import on_trained_tokens, states_before
from rlgym_llm_trainers.models.critic import ValueModel

__all__ = ["ValueScorer", "state_probe"]


class ValueScorer(nn.Module):
    """V(s_t) of a batch: at t stands what the state is worth in which token t was sampled.

    The state of token t is all before it, so its value is read at t - 1, as its log-prob is. Body
    and head are one module, for whoever shards its parameters.
    """

    def __init__(self, model: ValueModel) -> None:
        super().__init__()
        self.model = model
        enable_packing(model.body)

    @property
    def is_packed(self) -> bool:
        """Whether it computes no padding, and a prompt that siblings share only once."""
        return can_pack(self.model.body)

    def forward(self, batch: Batch) -> Tensor:
        """Values [B, T] of the states before the trained tokens, 0 elsewhere."""
        values: Tensor = self.model(states_before(self.model.body, batch))
        return on_trained_tokens(values, batch)


def state_probe(sample: TrainingSample, *, with_end: bool = False) -> TrainingSample:
    """The ids of a sample alone, to be asked for its states; ``with_end`` asks for one state more.

    That is the one after its last token, from which an episode would have gone on that a budget cut
    off. Of the ids (1, 2, 4, 5), with (4, 5) trained, it makes (1, 2, 4, 5, 5) with (4, 5, 5)
    trained: what then stands at place 4 speaks of the state 1 2 4 5. The last id is never read.
    """
    num_more = int(with_end)
    return TrainingSample(
        token_ids=sample.token_ids + sample.token_ids[-1:] * num_more,
        loss_mask=sample.loss_mask + (True,) * num_more,
        rollout_logprobs=(0.0,) * (sample.num_tokens + num_more),
        policy_versions=sample.policy_versions + (max(sample.policy_versions),) * num_more,
        rollout_id=sample.rollout_id,
        group_id=sample.group_id,
        sample_index=sample.sample_index,
    )
