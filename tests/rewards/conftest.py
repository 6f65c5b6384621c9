"""What tests of rewards that ask a model share: a real HTTP server, and tiny real models."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass
class ModelServer:
    """A server on a port of its own; what it answers is the test's to say."""

    url: str = ""
    answer: Callable[[Any, int], Answer] = lambda request, number: (404, "nothing here")
    """Takes the request's JSON and its number from 0, gives status, body and headers."""
    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)
    """The address of each client that connected."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end, for answers that hang."""
    now: int = 0
    most: int = 0
    """How many requests were inside at once."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with self.lock:
            number = len(self.requests)
            self.requests.append(json.loads(body))
            self.headers.append(headers)
            self.paths.append(path)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return self.answer(self.requests[number], number)
        finally:
            with self.lock:
                self.now -= 1


@pytest.fixture
def model_server(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Any]
) -> Iterator[ModelServer]:
    """A real HTTP server in threads of this process, gone at the end of the test."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    model = ModelServer()

    with serve(model.handle, on_connect=model.connections.append) as url:
        model.url = url
        yield model
        model.released.set()


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """The starter model's tokenizer: byte-level pieces, control tokens, a chat template."""
    import rlgym_llm_trainers
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(rlgym_llm_trainers.__file__).parent / "starter_model")


@pytest.fixture(scope="session")
def make_model(tokenizer: Any) -> Callable[..., Path]:
    """Saves a tiny Llama with random weights, ``make_model(folder, "TokenClassification")``."""
    import torch
    from transformers import LlamaConfig, models

    def make(folder: Path, head: str, **config: Any) -> Path:
        torch.manual_seed(0)
        settings = LlamaConfig(
            vocab_size=len(tokenizer) + 8,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            pad_token_id=config.pop("pad_token_id", tokenizer.pad_token_id),
            initializer_range=0.3,  # large, so that texts differ in their scores
            **config,
        )
        getattr(models.llama, f"LlamaFor{head}")(settings).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make
