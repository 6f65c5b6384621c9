"""A tokenizer and a model with all its weights, loaded by transformers from folder or hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from rlgym_llm.errors import UserError
from rlgym_llm.quiet_hub import quiet_hub
from rlgym_llm_trainers.models.token_side import load_failure

__all__ = ["DType", "load_pretrained"]

DType = Literal["auto", "float32", "bfloat16"]


def load_pretrained(
    auto_class: Any,
    path: Path,
    *,
    flag: str = "--model",
    dtype: DType = "auto",
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """(tokenizer, model) that ``auto_class`` (`AutoModel`, `AutoModelForCausalLM`) makes of a path.

    ``auto`` is float32: in bfloat16 an update of one part in 300 rounds to nothing. Raises
    UserError, in one line that names ``flag``, where it does not load or lacks weights.
    """
    transformers_logging: Any = logging
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
            model, loading = auto_class.from_pretrained(
                path,
                dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
            )
    except Exception as error:  # the loaders raise anything from KeyError to safetensors' own
        raise load_failure(path, error, "does not load", flag=flag) from error
    if absent := sorted([*loading["missing_keys"], *map(str, loading["mismatched_keys"])]):
        raise UserError(
            f"{flag} {path}: {len(absent)} weights are missing or of another shape, such as "
            f"{absent[0]}"
        )
    return tokenizer, model
