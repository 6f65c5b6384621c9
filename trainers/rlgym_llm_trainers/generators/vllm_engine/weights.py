"""New weights into a vLLM model that is loaded, by the loaders of the model itself.

On a GPU this is vLLM's layerwise reload. On a CPU vLLM packs each matrix for its products and
throws the plain one away; its reload builds all layers anew for that. Here each plain matrix is a
scratch that is filled, packed, and used again for the next one of its shape, which takes a third of
the time. Heads keep the plain matrix beside the packed one, and a head that is tied to the
embedding is loaded as no matrix of its own: it is packed again at the end, or it would stay old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rlgym_llm.errors import WeightSyncError

__all__ = ["ModelWeights"]


class ModelWeights:
    """The weights of one engine's model, in this process: `start`, `update` once or more, `finish`.

    ``packs_heads`` False leaves packed heads as they were, as vLLM's own reload does: then a
    canary must catch what samples. It is there for that test.
    """

    def __init__(self, llm: Any, *, packs_heads: bool = True) -> None:
        runner = llm.llm_engine.model_executor.driver_worker.model_runner
        self._model: nn.Module = runner.model
        self._config = runner.vllm_config
        self._packs_heads = packs_heads
        self._packed = _packed_layers(self._model)
        self._scratch = _Scratch()  # kept, so that its pages are warm
        self._is_layerwise = not self._packed and _is_on_gpu(self._model)
        self._loaded: set[str] = set()

    def start(self) -> None:
        """Makes every weight ready to be loaded; also after an update that broke off."""
        self._loaded = set()
        for layer, form in self._packed:
            _make_loadable(layer, form, self._scratch)
        if self._is_layerwise:
            from vllm.model_executor.model_loader.reload.layerwise import (
                initialize_layerwise_reload,
            )

            initialize_layerwise_reload(self._model)

    @torch.inference_mode()
    def update(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Loads whole tensors under their Hugging Face names, module by module."""
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(self._config):
            model: Any = self._model
            self._loaded |= model.load_weights(iter(weights))

    def finish(self) -> None:
        """Packs what is left. Raises WeightSyncError where a weight has not come."""
        if self._is_layerwise:
            from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload

            finalize_layerwise_reload(self._model, self._config.model_config)
        if absent := sorted(self._wanted() - self._loaded):
            raise WeightSyncError(
                f"{len(absent)} weights of vLLM's model did not come, such as {absent[0]}"
            )
        if self._packs_heads:
            for layer in _packed_heads(self._model):
                _pack(layer)

    def _wanted(self) -> set[str]:
        # A tied head is the embedding's parameter, which has one name here.
        return {name for name, _ in self._model.named_parameters()}


class _Scratch:
    """Plain matrices that are filled, packed, and used again."""

    def __init__(self) -> None:
        self._idle: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = defaultdict(list)

    def take(self, like: Tensor) -> Tensor:
        idle = self._idle[like.shape, like.dtype]
        return idle.pop() if idle else torch.empty(like.shape, dtype=like.dtype)

    def give_back(self, matrix: Tensor) -> None:
        self._idle[matrix.shape, matrix.dtype].append(matrix)


def _packed_layers(model: nn.Module) -> list[tuple[Any, Tensor]]:
    """Layers of which only the packed matrix is left, each with the plain one's form."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    found = []
    for layer in model.modules():
        weight = layer._parameters.get("weight")
        if weight is not None and not weight.numel() and hasattr(layer, "cpu_linear"):
            found.append((layer, get_layerwise_info(layer).restore_metadata[0]["weight"]))
    return found


def _packed_heads(model: nn.Module) -> list[Any]:
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    return [
        layer
        for layer in model.modules()
        if isinstance(layer, ParallelLMHead) and hasattr(layer, "cpu_linear")
    ]


def _pack(layer: Any) -> None:
    layer.cpu_linear = None  # gives the old pack's memory back first, for the new one
    layer.quant_method.process_weights_after_loading(layer)


def _make_loadable(layer: Any, form: Tensor, scratch: _Scratch) -> None:
    """Gives the layer a plain weight that packs itself as soon as the last part of it is there."""
    from vllm.model_executor.model_loader.reload.layerwise import _get_original_loader
    from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

    weight: Any = torch.empty(0, dtype=form.dtype)
    weight.__class__ = form.__class__
    weight.__dict__ = dict(form.__dict__)
    weight = restore_layer_refs(weight, layer)
    load: Callable[..., Any] = _get_original_loader(weight)
    num_left = form.numel()

    def load_and_pack(param: Any, loaded: Tensor, *where: Any, **how: Any) -> None:
        nonlocal num_left
        if not param.numel():
            param.data = scratch.take(form)
        load(param, loaded, *where, **how)
        num_left -= loaded.numel()
        if num_left <= 0:
            plain = param.data
            _pack(layer)
            scratch.give_back(plain)

    weight.weight_loader = load_and_pack
    layer.register_parameter("weight", weight)


def _is_on_gpu(model: nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in model.parameters())
