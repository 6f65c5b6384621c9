"""New weights into a vLLM model from another GPU, by vLLM's own transports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TransferredWeights"]


class TransferredWeights:
    """The weights of one engine made with ``weight_transfer_config``; as `ModelWeights` otherwise.

    vLLM's processes of all its GPUs take part, so it serves tensor parallel engines as well.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm

    def init(self, info: Mapping[str, Any]) -> None:
        """Joins the transport that the sender describes; once. For nccl it waits for all others."""
        self._llm.init_weight_transfer_engine({"init_info": dict(info)})

    def start(self) -> None:
        """Makes every weight ready to be loaded."""
        self._llm.start_weight_update()

    def update(self, info: Any) -> None:
        """Takes in what ``info`` describes, as it is sent."""
        self._llm.update_weights({"update_info": info})

    def finish(self) -> None:
        """Puts the weights in place; a canary must see whether all have come."""
        self._llm.finish_weight_update()
