import dataclasses
import hashlib
import importlib.util
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rlgym_llm_envs.prompts import SYSTEM_PROMPT
from rlgym_llm_envs.starter_problems import starter_problem, starter_row
from rlgym_llm_trainers.models.starter import starter_model_path

SCRIPT = Path(__file__).parents[3] / "scripts" / "build_starter.py"
MARGIN = 0.2
"""Another machine rounds differently, which acts like another seed of the warm start."""


def script() -> ModuleType:
    if str(SCRIPT.parent) not in sys.path:
        sys.path.append(str(SCRIPT.parent))  # where a script finds the modules beside it
    spec = importlib.util.spec_from_file_location("build_starter", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def starter_recipe() -> dict[str, Any]:
    """What stands beside the starter model: its recipe, hashes and measured accuracies."""
    record: dict[str, Any] = json.loads((starter_model_path() / "recipe.json").read_text("utf-8"))
    return record


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_weights_and_the_tokenizer_are_those_of_the_recipe() -> None:
    record, folder = starter_recipe(), starter_model_path()
    assert sha256((folder / "model.safetensors").read_bytes()) == record["model_sha256"]
    assert sha256((folder / "tokenizer.json").read_bytes()) == record["tokenizer_sha256"]
    assert sha256(json.dumps(record["recipe"], sort_keys=True).encode()) == record["recipe_sha256"]


def test_the_script_holds_the_recipe_the_model_was_built_by() -> None:
    pytest.importorskip("torch")
    assert (
        json.loads(json.dumps(dataclasses.asdict(script().Recipe()))) == starter_recipe()["recipe"]
    )


def test_the_folder_is_small_enough_to_ship() -> None:
    assert sum(f.stat().st_size for f in starter_model_path().iterdir()) <= 4_000_000


def test_the_measured_accuracies_leave_room() -> None:
    measured = starter_recipe()["measured"]
    assert 0.10 <= measured["greedy_strict"] <= 0.40
    assert measured["greedy_lenient"] <= 0.45
    assert measured["stepwise_lenient"] >= 0.75


def test_the_model_is_an_ordinary_llama_that_vllm_can_serve() -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(starter_model_path())
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.head_dim == 32
    assert model.config.tie_word_embeddings
    assert {str(p.dtype) for p in model.parameters()} == {"torch.float32"}
    assert sum(p.numel() for p in model.parameters()) == starter_recipe()["num_parameters"]


def test_the_tokenizer_keeps_any_text_and_its_special_tokens_apart() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(starter_model_path())
    config = transformers.AutoConfig.from_pretrained(starter_model_path())
    assert tokenizer.pad_token == "<|pad|>"
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert (config.pad_token_id, config.eos_token_id) == (
        tokenizer.pad_token_id,
        tokenizer.eos_token_id,
    )
    assert len(tokenizer) <= config.vocab_size
    for text in (
        "Tom has 12,345.5 pens.\n#### 12",
        "héllo 漢字 \U0001f642\t\n\n  x ",
        "\x00\x7f\u200f",
        "½ ٣ 1/2 $5 €7%",
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.decode(i) for i in tokenizer.encode(" 1234")] == [" 1", "2", "3", "4"]


def test_the_chat_template_takes_the_three_roles() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(starter_model_path())
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
    ]
    opened = tokenizer.apply_chat_template(messages[:2], tokenize=False, add_generation_prompt=True)
    assert (
        opened
        == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    )
    closed = tokenizer.apply_chat_template(messages, tokenize=False)
    assert closed == opened + "A<|im_end|>\n"


def test_a_conversation_is_at_most_100_tokens_on_average() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(starter_model_path())
    lengths = []
    for index in range(500):
        row = starter_row(starter_problem(index, split="train"))
        messages = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": row["answer"]},
        ]
        lengths.append(
            len(tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False)))
        )
    assert statistics.mean(lengths) <= 100


def test_where_the_model_lies_is_known_without_torch() -> None:
    source = Path(sys.modules["rlgym_llm_trainers.models.starter"].__file__ or "").read_text(
        encoding="utf-8"
    )
    assert "torch" not in source.replace("no torch here", "")


@pytest.mark.slow
def test_the_shipped_model_measures_as_its_recipe_says() -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(starter_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(starter_model_path())
    assert script().measure(model, tokenizer) == pytest.approx(
        starter_recipe()["measured"], abs=0.02
    )


@pytest.mark.slow
def test_a_rebuild_is_as_good(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    build_starter = script()
    record = build_starter.build(tmp_path / "starter", build_starter.Recipe())
    assert record["tokenizer_sha256"] == starter_recipe()["tokenizer_sha256"]
    assert record["measured"] == pytest.approx(starter_recipe()["measured"], abs=MARGIN)
