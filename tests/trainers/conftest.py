"""A tiny random Llama with a character tokenizer, made in memory, for tests of real models."""

from __future__ import annotations

import string
import textwrap

import pytest
import torch
import torch.nn.functional as F
from rlgym_llm_trainers.models.policy import Policy
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from rlgym_llm.config import parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.plugins import Plugins
from rlgym_llm.types import Completion, Rollout, RolloutGroup, Task, Turn

# Two threads beside any other load are slower than one, and these models are tiny.
torch.set_num_threads(1)

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
SPECIAL = ["<pad>", "<eos>", "<s>", "<u>", "<a>", "<t>"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *string.printable])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        chat_template=CHAT_TEMPLATE,
    )


def make_policy(*, seed: int = 0, tied: bool = True, dtype: torch.dtype = torch.float32) -> Policy:
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(dtype).eval()
    return Policy(
        model=model,
        tokenizer=tokenizer,
        path="tiny",
        eos_token_ids=frozenset({tokenizer.eos_token_id}),
        pad_token_id=tokenizer.pad_token_id,
    )


@pytest.fixture
def policy() -> Policy:
    return make_policy()


class ExactNorm(LlamaRMSNorm):
    """The norm in the states' own precision: transformers' rounds to float32 inside."""

    def forward(self, hidden_states):
        shape = hidden_states.shape[-1:]
        return F.rms_norm(hidden_states, shape, self.weight, self.variance_epsilon)


def exact(policy: Policy) -> Policy:
    """The policy in float64 throughout, for what has to be equal beyond float32."""
    for module in policy.model.double().modules():
        if isinstance(module, LlamaRMSNorm):
            module.__class__ = ExactNorm
    return policy


@pytest.fixture
def exact_policy(policy) -> Policy:
    """`exact`, of the tiny policy."""
    return exact(policy)


@pytest.fixture
def plugin_file(tmp_path):
    """Writes the source of a plugin and returns its path, as ``--plugin`` takes it."""

    def write(source: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(textwrap.dedent(source))
        return str(path)

    return write


@pytest.fixture
def run_settings():
    """The configuration and the plugins of ``rlgym-train --plugin FILE FLAGS...``."""

    def read(plugin: str, *flags: str) -> tuple[TrainConfig, Plugins]:
        config = parse_command(["--plugin", plugin, *flags]).config
        return config, Plugins.discover(config.plugins)

    return read


@pytest.fixture
def group_of():
    """Makes a group with one rollout of one token for each policy version that it is given."""

    def make(*versions: int, name: str = "g") -> RolloutGroup:
        task = Task(prompt="?")
        rollouts = tuple(
            Rollout(
                id=f"{name}-{place}",
                task=task,
                group_id=name,
                sample_index=place,
                seed=0,
                turns=(
                    Turn(
                        new_prompt_token_ids=(1,),
                        completion=Completion(
                            text="a",
                            token_ids=(2,),
                            logprobs=(0.0,),
                            version_spans=((0, 1, version),),
                        ),
                    ),
                ),
            )
            for place, version in enumerate(versions)
        )
        return RolloutGroup(group_id=name, task=task, rollouts=rollouts)

    return make
