"""Load a causal language model with its tokenizer, copy it as a reference, save it whole."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm_trainers.models.model_path import check_model_path
from rlgym_llm_trainers.models.pretrained import DType, load_pretrained
from rlgym_llm_trainers.models.token_side import eos_ids
from rlgym_llm_trainers.models.whole_folder import whole_folder

__all__ = [
    "Policy",
    "disable_dropout",
    "load_policy",
    "make_reference",
    "pick_device",
    "save_policy",
    "weights_digest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal language model, its tokenizer, and the ids that end its turns."""

    model: PreTrainedModel
    tokenizer: Any
    path: str
    """Where it was loaded from."""
    eos_token_ids: frozenset[int]
    """Every id that ends a turn: the tokenizer's and all of the generation config's."""
    pad_token_id: int
    """Only ever stands under mask 0; may equal an end-of-text id."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def num_parameters(self) -> int:
        """Number of weights, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def num_ids(self) -> int:
        """How many token ids the model has, some of which its tokenizer may not know."""
        embeddings: Any = self.model.get_input_embeddings()
        return int(embeddings.num_embeddings)

    @property
    def max_positions(self) -> int | None:
        """Longest sequence the model was made for, where its config tells."""
        value = getattr(self.model.config, "max_position_embeddings", None)
        return value if isinstance(value, int) else None


def pick_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is CUDA where there is one, else the CPU.

    Raises ConfigError for a device that this machine does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # the meta device holds no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ConfigError(f"--trainer.device {name}: not on this machine ({reason})") from error
    return device


def load_policy(
    path: str | Path,
    *,
    device: torch.device,
    dtype: DType = "auto",
    trust_remote_code: bool = False,
    gradient_checkpointing: bool = False,
) -> Policy:
    """Loads a Hugging Face folder or hub id, dropout off, in evaluation mode.

    ``auto`` is float32: in bfloat16 an update of one part in 300 rounds to nothing. Raises
    UserError, in one line that names ``--model``, where it does not load or lacks weights.
    """
    check_model_path(path)
    path = Path(path).expanduser()
    tokenizer, model = load_pretrained(
        AutoModelForCausalLM, path, dtype=dtype, trust_remote_code=trust_remote_code
    )
    largest = max(tokenizer.get_vocab().values(), default=0)
    num_rows = model.get_input_embeddings().num_embeddings
    if largest >= num_rows:
        raise UserError(
            f"--model {path}: the tokenizer has ids up to {largest}, the model only {num_rows}; "
            "they are not of one model"
        )
    disable_dropout(model)
    model.to(device)
    model.eval()
    if gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    eos_token_ids = eos_ids(tokenizer.eos_token_id, model.generation_config.eos_token_id)
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = min(eos_token_ids, default=0)
    return Policy(
        model=model,
        tokenizer=tokenizer,
        path=str(path),
        eos_token_ids=eos_token_ids,
        pad_token_id=int(pad),
    )


def make_reference(policy: Policy) -> nn.Module:
    """A frozen copy of the policy's weights, to measure the KL divergence against."""
    reference: nn.Module = copy.deepcopy(policy.model)
    return reference.eval().requires_grad_(False)


def save_policy(policy: Policy, folder: str | Path) -> None:
    """Saves model and tokenizer as an ordinary Hugging Face folder; whole or not at all.

    Written beside its place and renamed into it; an older save there is replaced.
    """
    with whole_folder(folder, what="the model") as partial:
        policy.model.save_pretrained(partial)
        policy.tokenizer.save_pretrained(partial)


def disable_dropout(model: nn.Module) -> None:
    """Turns dropout off for good: the learner's log-probs must be those of the generator."""
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def weights_digest(policy: Policy) -> str:
    """16 hex digits that tell models apart: SHA-256 over names, shapes and some of each tensor.

    The first and the last 1,024 numbers of every tensor count, so that a training step shows and a
    large model is not read again.
    """
    digest = hashlib.sha256()
    for name, tensor in policy.model.state_dict().items():
        flat = tensor.detach().reshape(-1)
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        for part in (flat[:1024], flat[-1024:]):
            digest.update(part.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
