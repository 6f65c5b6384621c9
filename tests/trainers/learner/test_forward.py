"""Padded, packed and with shared prompts: the same log-probs and gradients on several models."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
import transformers
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.forward import can_pack, enable_packing, forward_hidden
from rlgym_llm_trainers.learner.packing import layout_of
from rlgym_llm_trainers.learner.sample import TrainingSample
from torch import nn

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 8},
    "Mistral": {"sliding_window": 4},
    "Gemma3": {"head_dim": 8, "sliding_window": 4, "layer_types": LAYERS},
}
REPLIES = [([5, 6, 7, 8], 6), ([9, 4], 3), ([5, 6, 7, 8], 2), ([9, 4], 3), ([3], 5), ([9, 4], 1)]
"""Prompts and lengths of replies: two prompts that two and three samples share, one alone.

The longer replies are of two turns: the third token from their end is the environment's.
"""


def make_model(name, **changes):
    config_class = getattr(transformers, f"{name}{'Text' if name == 'Gemma3' else ''}Config")
    config = config_class(**SIZES, **MODELS.get(name, {}), **changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}ForCausalLM")(config).double()
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms, which start at 0 and 1
                parameter.data += 0.1 * torch.randn_like(parameter)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(exact_norm, module)
    return model.eval()


def exact_norm(module, states):
    """The norm in the states' own float64; transformers' rounds to float32 inside."""
    scale = 1 + module.weight if "Gemma" in type(module).__name__ else module.weight
    eps = getattr(module, "variance_epsilon", None) or module.eps
    return nn.functional.rms_norm(states, states.shape[-1:], scale, eps)


def make_batch(pad_id=0):
    draw = torch.Generator().manual_seed(1)
    samples = []
    for i, (prompt, num_reply) in enumerate(REPLIES):
        reply = torch.randint(10, 50, (num_reply,), generator=draw).tolist()
        is_sampled = [num_reply < 5 or t != num_reply - 3 for t in range(num_reply)]
        mask = (False,) * len(prompt) + tuple(is_sampled)
        samples.append(
            TrainingSample(
                token_ids=(*prompt, *reply),
                loss_mask=mask,
                rollout_logprobs=(0.0,) * len(mask),
                policy_versions=tuple(0 if on else -1 for on in mask),
                rollout_id=str(i),
                group_id="g",
                sample_index=i,
            )
        )
    return collate(samples, pad_id)


def result(model, batch, *, share_prompts=True):
    """Log-probs, and the gradient of their sum under weights that differ from token to token."""
    model.zero_grad()
    found, entropy = batch_logprobs(
        model, batch, temperature=0.7, with_entropy=True, share_prompts=share_prompts
    )
    draw = torch.Generator().manual_seed(2)
    weights = torch.randn(2, *found.shape, dtype=found.dtype, generator=draw)
    (weights[0] * found + weights[1] * entropy).sum().backward()
    return found.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_padded_packed_and_shared_are_equal_and_so_are_their_gradients(name):
    model, batch = make_model(name), make_batch()
    logprobs, gradients = result(model, batch)
    assert not can_pack(model)
    assert enable_packing(model)
    for share_prompts in (False, True):
        found, changed = result(model, batch, share_prompts=share_prompts)
        assert torch.allclose(found, logprobs, rtol=0, atol=1e-10)
        for parameter, gradient in gradients.items():
            assert torch.allclose(changed[parameter], gradient, rtol=1e-10, atol=1e-10), parameter


def test_activation_checkpointing_changes_nothing():
    model, batch = make_model("Llama"), make_batch()
    assert enable_packing(model)
    logprobs, gradients = result(model, batch)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    found, changed = result(model, batch)
    assert torch.equal(found, logprobs)
    assert all(torch.equal(changed[name], gradient) for name, gradient in gradients.items())


def test_what_stands_in_the_padding_does_not_matter():
    model = make_model("Qwen2")
    assert enable_packing(model)
    found, gradients = result(model, make_batch(pad_id=0))
    other, changed = result(model, make_batch(pad_id=49))
    assert torch.equal(found, other)
    assert all(torch.equal(changed[name], gradient) for name, gradient in gradients.items())


def test_a_rank_without_trained_tokens_runs_the_model_and_has_gradients():
    model = make_model("Llama")
    assert enable_packing(model)
    batch = make_batch()
    batch.loss_mask[:] = False
    found, gradients = result(model, batch)
    assert not found.any()
    assert all(not gradient.any() for gradient in gradients.values())


def test_the_prompt_of_siblings_is_computed_once():
    model, batch = make_model("Llama"), make_batch()
    assert enable_packing(model)
    layout = layout_of(batch.input_ids, batch.loss_mask.roll(-1, 1))
    # Prompts 4 + 2 + 1, replies but for their last tokens 5 + 2 + 1 + 2 + 4 + 0.
    assert forward_hidden(model, layout).shape == (21, 32)


def test_generation_is_as_before():
    model = make_model("Llama")
    prompt = torch.tensor([[5, 6, 7], [0, 9, 4]])
    options = {
        "attention_mask": torch.tensor([[1, 1, 1], [0, 1, 1]]),
        "max_new_tokens": 8,
        "do_sample": False,
        "pad_token_id": 0,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    before = model.generate(prompt, **options)
    assert enable_packing(model)
    after = model.generate(prompt, **options)
    assert torch.equal(before.sequences, after.sequences)
    assert all(torch.equal(*pair) for pair in zip(before.logits, after.logits, strict=True))


def test_a_copy_packs_and_a_saved_model_knows_nothing_of_it(tmp_path):
    model = make_model("Llama")
    assert enable_packing(model)
    assert enable_packing(model)  # twice is once
    assert can_pack(copy.deepcopy(model))
    model.save_pretrained(tmp_path)
    assert "rlgym" not in (tmp_path / "config.json").read_text()
    assert not can_pack(transformers.LlamaForCausalLM.from_pretrained(tmp_path))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Gemma2", {"head_dim": 8}),  # caps its scores
        ("Llama", {"attn_implementation": "eager"}),
    ],
)
def test_models_that_do_not_pack_stay_as_they_are(name, changes):
    model = make_model(name, **changes)
    before = model.config._attn_implementation
    logprobs, _ = result(model, make_batch())
    assert not enable_packing(model)
    assert model.config._attn_implementation == before
    assert torch.equal(result(model, make_batch())[0], logprobs)


def test_a_model_that_mixes_tokens_on_its_own_does_not_pack():
    class Mixed(transformers.LlamaModel):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            hidden = output.last_hidden_state
            output.last_hidden_state = hidden + hidden.cumsum(1)
            return output

    model = make_model("Llama")
    model.model.__class__ = Mixed
    assert not enable_packing(model)


def test_a_window_that_stands_in_the_mask_alone_does_not_pack():
    model = make_model("Gemma3")
    for layer in model.model.layers:
        layer.self_attn.sliding_window = None
    assert not enable_packing(model)
