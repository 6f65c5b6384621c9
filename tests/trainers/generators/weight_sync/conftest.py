"""A tiny Llama, tied or not, and an engine that takes weights in as vLLM does."""

from __future__ import annotations

import copy

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.canary import learner_scores
from rlgym_llm_trainers.generators.weight_sync.source import tied_weights
from transformers import LlamaConfig, LlamaForCausalLM


def make_llama(*, tied=True, seed=0, num_layers=2):
    config = LlamaConfig(
        vocab_size=33,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


@pytest.fixture
def llama():
    return make_llama


class Engine:
    """A receiver with a model of its own, whose head is a copy even where it is tied.

    ``fails_in`` is a method that raises, ``refusals`` how often the cache is not reset, and
    ``stale_head`` leaves the copy as it was. Requests that never end (``num_stuck``) end by abort.
    """

    def __init__(self, policy, *, refusals=0, num_stuck=0, fails_in=None, stale_head=False):
        self.policy = copy.deepcopy(policy)
        self.tied = tied_weights(policy.model)
        model = self.policy.model
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        self.refusals, self.num_in_flight = refusals, num_stuck
        self.fails_in, self.stale_head = fails_in, stale_head
        self.version = 0
        self.calls = []
        self.prefix_cache = {}
        self.is_paused = self.is_updating = False

    def _called(self, name):
        self.calls.append(name)
        if name == self.fails_in:
            self.fails_in = None
            raise RuntimeError("cut off")

    def generate(self, prompt):
        """The log-probs of the prompt, from the cache where it stands there."""
        assert not self.is_paused
        if prompt not in self.prefix_cache:
            self.prefix_cache[prompt] = self.score([prompt])
        return self.prefix_cache[prompt]

    def init_weight_transfer(self, info):
        raise AssertionError("there is nothing to make ready")

    def pause(self, *, abort=False):
        self._called("abort" if abort else "pause")
        self.is_paused = True
        if abort:
            self.num_in_flight = 0

    def start_weight_update(self):
        self._called("start")
        assert self.is_paused
        self.is_updating = True

    @torch.no_grad()
    def update_weights(self, weights):
        assert self.is_updating
        state = self.policy.model.state_dict()
        copies = {sent: name for name, sent in self.tied.items() if not self.stale_head}
        for name, tensor in weights:
            state[name].copy_(tensor)
            if name in copies:
                state[copies[name]].copy_(tensor)
            if self.fails_in == "update":
                break  # half-way
        self._called("update")

    def finish_weight_update(self, weight_version):
        self._called("finish_update")
        self.is_updating, self.version = False, weight_version

    def reset_prefix_cache(self):
        self._called("reset_prefix_cache")
        assert not self.is_updating
        if self.num_in_flight or self.refusals:
            self.refusals = max(self.refusals - 1, 0)
            return False
        self.prefix_cache.clear()
        return True

    def resume(self):
        self._called("resume")
        self.is_paused = False

    def score(self, sequences):
        return learner_scores(self.policy, sequences)


@pytest.fixture
def engine_of():
    return Engine
