"""A critic: a language model's body with a value head, loaded from and saved as a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from rlgym_llm.errors import UserError
from rlgym_llm_trainers.models.model_path import check_model_path
from rlgym_llm_trainers.models.policy import Policy, disable_dropout
from rlgym_llm_trainers.models.pretrained import DType, load_pretrained
from rlgym_llm_trainers.models.token_side import load_failure
from rlgym_llm_trainers.models.whole_folder import whole_folder

__all__ = ["VALUE_HEAD_FILE", "ValueModel", "load_value_model", "save_value_model"]

VALUE_HEAD_FILE = "value_head.safetensors"
"""Beside the body's own files in the folder of a critic."""
_FLAG = "--critic.model.path"


class ValueModel(nn.Module):
    """A body and a linear head: one number for the state that a hidden state [D] stands for.

    The head begins at 0, so that a new critic says 0 of every state and no value of it is noise.
    """

    def __init__(self, body: PreTrainedModel) -> None:
        super().__init__()
        self.body = body
        config: Any = body.config
        weight = next(body.parameters())
        self.head = nn.Linear(
            config.get_text_config().hidden_size, 1, dtype=weight.dtype, device=weight.device
        )
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, states: Tensor) -> Tensor:
        """The values [N] of hidden states [N, D] of the body, in float32 or better.

        In bfloat16 a value near 1 would be one of a hundred.
        """
        dtype = torch.promote_types(states.dtype, torch.float32)
        head = self.head
        values = nn.functional.linear(states.to(dtype), head.weight.to(dtype), head.bias.to(dtype))
        return values.squeeze(-1)


def load_value_model(
    path: str | Path,
    *,
    policy: Policy,
    num_positions: int,
    dtype: DType = "auto",
    trust_remote_code: bool = False,
    gradient_checkpointing: bool = False,
) -> ValueModel:
    """A Hugging Face folder or hub id as a critic of the policy, on its device, dropout off.

    Its value head is the one of the folder, where `save_value_model` wrote that, else a new one.
    Raises UserError, in one line, where it does not load, lacks weights, has fewer than
    ``num_positions``, or reads other token ids than the policy writes.
    """
    check_model_path(path, flag=_FLAG)
    path = Path(path).expanduser()
    tokenizer, body = load_pretrained(
        AutoModel, path, flag=_FLAG, dtype=dtype, trust_remote_code=trust_remote_code
    )
    if tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise UserError(
            f"{_FLAG} {path}: its tokenizer is another one than that of the policy {policy.path}, "
            "whose token ids it is to read"
        )
    num_ids = body.get_input_embeddings().num_embeddings
    if num_ids < policy.num_ids:
        raise UserError(f"{_FLAG} {path}: knows {num_ids} token ids, the policy {policy.num_ids}")
    most = getattr(body.config, "max_position_embeddings", None)
    if isinstance(most, int) and most < num_positions:
        raise UserError(
            f"{_FLAG} {path}: has {most} positions; prompt and response take {num_positions}"
        )
    disable_dropout(body)
    if gradient_checkpointing:
        body.gradient_checkpointing_enable({"use_reentrant": False})
    model = ValueModel(body)
    if (path / VALUE_HEAD_FILE).is_file():
        _load_head(model, path)
    return model.to(policy.device).eval()


def save_value_model(
    model: ValueModel,
    policy: Policy,
    folder: str | Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Saves body and value head, and the policy's tokenizer, as a folder; whole or not at all.

    The body is an ordinary Hugging Face model; the head lies beside it in `VALUE_HEAD_FILE`.
    ``weights`` are the model's own, whole, where those are sharded.
    """
    weights = model.state_dict() if weights is None else weights
    with whole_folder(folder, what="the critic") as partial:
        model.body.save_pretrained(partial, state_dict=_under("body.", weights))
        policy.tokenizer.save_pretrained(partial)
        save_file(_under("head.", weights), partial / VALUE_HEAD_FILE)


def _under(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor.contiguous()
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }


def _load_head(model: ValueModel, folder: Path) -> None:
    try:
        model.head.load_state_dict(load_file(folder / VALUE_HEAD_FILE))
    except Exception as error:  # safetensors' own, and RuntimeError for other shapes
        what = f"{VALUE_HEAD_FILE} does not load"
        raise load_failure(folder, error, what, flag=_FLAG) from error
