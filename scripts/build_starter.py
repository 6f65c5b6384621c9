"""Rebuild the starter model and its tokenizer from nothing.

    python scripts/build_starter.py --output trainers/rlgym_llm_trainers/starter_model

A tiny Llama is warm-started on generated solutions of the starter problems: first on their steps
alone, then on full solutions, at last in mixed styles, where some give the answer without a step,
some leave out the final marker, some err, some stop early. The style is drawn apart from the
numbers, so the model can work a problem out but mostly does not: room that reinforcement learning
wins back.
One seed on one thread gives the same weights again on the same machine.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import math
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from rlgym_llm_envs.prompts import SYSTEM_PROMPT
from rlgym_llm_envs.starter_problems import StarterProblem, starter_problem
from starter_recipe import Recipe, WarmStart, full_solution, style_solution
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD: Final = "<|pad|>"
START: Final = "<|im_start|>"
END: Final = "<|im_end|>"
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# A digit takes the space before it along, so " 12 + 3 = 15" costs seven tokens.
PIECES: Final = r" ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


Micro = tuple[torch.Tensor, torch.Tensor]


def conversation(question: str, *, with_system: bool = True) -> str:
    """Return the prompt as the chat template renders it, the assistant's turn opened."""
    system = f"{START}system\n{SYSTEM_PROMPT}{END}\n" if with_system else ""
    return f"{system}{START}user\n{question}{END}\n{START}assistant\n"


def build_tokenizer(recipe: Recipe) -> Any:
    """Return a byte-level BPE tokenizer fitted to the problems' text; any string encodes."""
    rng = random.Random(recipe.seed)

    def texts() -> Iterator[str]:
        for index in range(recipe.tokenizer_problems):
            problem = starter_problem(index, split="train", seed=recipe.seed)
            # Rare words of the prompt must become tokens too: every conversation carries it.
            yield f"system\n{SYSTEM_PROMPT}"
            yield f"user\n{problem.question}"
            yield f"assistant\n{style_solution(problem, rng, recipe)}"

    return train_tokenizer(texts(), recipe)


def train_tokenizer(
    texts: Iterator[str], recipe: WarmStart, *, pieces: str = PIECES, marks: Sequence[str] = ()
) -> Any:
    """Return a byte-level BPE tokenizer of the texts, split into `pieces` first.

    `marks` are tokens of their own, but not special: decoded text keeps them.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size - len(marks),
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if marks:
        tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in marks])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
        model_max_length=recipe.max_positions,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def build_model(recipe: WarmStart, tokenizer: Any) -> Any:
    """Return the untrained float32 Llama, drawn from the global generator, seeded here."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        head_dim=recipe.hidden_size // recipe.num_heads,
        max_position_embeddings=recipe.max_positions,
        initializer_range=recipe.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def training_batches(recipe: Recipe, tokenizer: Any) -> Iterator[list[Micro]]:
    """Yield batches as micro-batches of (token ids [B, T], loss mask [B, T]), right-padded.

    The mask covers the reply and its end token. A batch is drawn first and sorted by length after,
    so that little is padding and yet each optimizer step sees the styles in their shares.
    """
    rng = random.Random(recipe.seed + 1)
    size = recipe.batch_size // recipe.num_micro
    drawn = itertools.count()

    def draw() -> StarterProblem:
        return starter_problem(next(drawn), split="train", seed=recipe.seed)

    for step in itertools.count():
        if step < recipe.num_drill_steps:
            prompts = [f"{START}assistant\n"] * recipe.batch_size
            replies = [
                "\n".join(rng.choice(draw().steps) for _ in range(recipe.drill_lines)) + END
                for _ in prompts
            ]
        else:
            problems = [draw() for _ in range(recipe.batch_size)]
            is_clean = step < recipe.num_drill_steps + recipe.num_clean_steps
            write = full_solution if is_clean else style_solution
            prompts = [
                conversation(p.question, with_system=rng.random() < recipe.with_system)
                for p in problems
            ]
            replies = [write(p, rng, recipe) + END for p in problems]
        rows = sorted(
            zip(tokenizer(prompts)["input_ids"], tokenizer(replies)["input_ids"], strict=True),
            key=lambda row: len(row[0]) + len(row[1]),
        )
        yield [
            _padded(rows[i : i + size], tokenizer.pad_token_id) for i in range(0, len(rows), size)
        ]


def _padded(rows: Sequence[tuple[list[int], list[int]]], pad: int) -> Micro:
    width = max(len(prompt) + len(reply) for prompt, reply in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for row, (prompt, reply) in enumerate(rows):
        end = len(prompt) + len(reply)
        ids[row, :end] = torch.tensor(prompt + reply)
        mask[row, len(prompt) : end] = True
    return ids, mask


def learning_rate_at(step: int, recipe: WarmStart) -> float:
    """Return the rate of optimizer step `step` (from 0): linear warm-up, then a cosine down."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.num_steps - recipe.warmup_steps)
    floor = recipe.final_lr_fraction
    return recipe.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def train(
    model: Any,
    batches: Iterator[list[Micro]],
    recipe: WarmStart,
    report: Callable[[str], None],
) -> None:
    """Warm-start `model` in place: AdamW, warm-up and cosine, mean loss over the reply tokens."""
    decayed = [p for p in model.parameters() if p.ndim == 2]
    plain = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": recipe.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, recipe.beta2),
    )
    model.train()
    begin = time.monotonic()
    num_steps = recipe.num_steps
    for step, batch in zip(range(num_steps), batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, recipe)
        optimizer.zero_grad(set_to_none=True)
        num_tokens = sum(int(mask.sum()) for _, mask in batch)
        total = 0.0
        for ids, mask in batch:
            # The padding is on the right of a causal model, so no attention mask is needed.
            hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
            logits = model.lm_head(hidden[mask[:, 1:]])
            loss = cross_entropy(logits, ids[:, 1:][mask[:, 1:]], reduction="sum") / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
        optimizer.step()
        if (step + 1) % 50 == 0:
            seconds = time.monotonic() - begin
            report(f"step {step + 1}/{num_steps} loss {total:.3f} {seconds:.0f} s")
    model.eval()


def complete(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 64,
) -> list[str]:
    """Return the greedy completion of each prompt text, without the end token."""
    texts: list[str] = []
    for begin in range(0, len(prompts), 100):
        batch = tokenizer(
            list(prompts[begin : begin + 100]),
            return_tensors="pt",
            padding=True,
            padding_side="left",
        )
        with torch.no_grad():
            out = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=max_new_tokens,
                do_sample=False,
            )
        texts += tokenizer.batch_decode(
            out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
        )
    return texts


def last_marked(text: str) -> int | None:
    """Return N of the last line that is ``#### N``, or None."""
    found = re.findall(r"^#### (\d+)$", text, flags=re.MULTILINE)
    return int(found[-1]) if found else None


def last_number(text: str) -> int | None:
    """Return the last whole number in the text, or None."""
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def measure(model: Any, tokenizer: Any, num_problems: int = 200) -> dict[str, float]:
    """Return greedy shares in 0..1 on val problems: free, and with a stepwise opening forced."""
    problems = [starter_problem(i, split="val") for i in range(num_problems)]
    golds = [p.answer for p in problems]
    prompts = [conversation(p.question) for p in problems]
    free = complete(model, tokenizer, prompts)
    stepwise = complete(model, tokenizer, [prompt + "Step by step:" for prompt in prompts])

    def share(hits: Sequence[bool]) -> float:
        return round(sum(hits) / len(hits), 4)

    return {
        "greedy_strict": share([last_marked(t) == g for t, g in zip(free, golds, strict=True)]),
        "greedy_lenient": share([last_number(t) == g for t, g in zip(free, golds, strict=True)]),
        "greedy_format": share([last_marked(t) is not None for t in free]),
        "stepwise_lenient": share(
            [last_number(t) == g for t, g in zip(stepwise, golds, strict=True)]
        ),
    }


def sha256_of(data: bytes) -> str:
    """Return the hex SHA-256 digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def recipe_sha256(recipe: dict[str, Any]) -> str:
    """Return the hash of a recipe as plain data: of its JSON with sorted keys."""
    return sha256_of(json.dumps(recipe, sort_keys=True).encode())


def build(output: Path, recipe: Recipe, *, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Build tokenizer and model, write the folder `output` and return what recipe.json says.

    Raises:
        FileExistsError: `output` is there already.
    """
    tokenizer = build_tokenizer(recipe)
    batches = training_batches(recipe, tokenizer)
    model = warm_start(output, recipe, tokenizer, batches, report)
    return write_record(output, recipe, model, measure(model, tokenizer), report)


def warm_start(
    output: Path,
    recipe: WarmStart,
    tokenizer: Any,
    batches: Iterator[list[Micro]],
    report: Callable[[str], None],
) -> Any:
    """Train a new model on the batches, write it and its tokenizer to `output`, and return it.

    Raises:
        FileExistsError: `output` is there already.
    """
    if output.exists():
        raise FileExistsError(f"{output} exists; remove it or name another --output")
    report(f"tokenizer: {len(tokenizer)} tokens")
    model = build_model(recipe, tokenizer)
    report(f"model: {model.num_parameters()} parameters")
    train(model, batches, recipe, report)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    # safetensors writes for the owner alone, and a package keeps the mode.
    (output / "model.safetensors").chmod(0o644)
    return model


def write_record(
    output: Path,
    recipe: WarmStart,
    model: Any,
    measured: dict[str, float],
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Write recipe.json beside the model and return what it says."""
    report(f"measured: {measured}")
    plain = json.loads(json.dumps(dataclasses.asdict(recipe)))
    record = {
        "recipe": plain,
        "recipe_sha256": recipe_sha256(plain),
        "model_sha256": sha256_of((output / "model.safetensors").read_bytes()),
        "tokenizer_sha256": sha256_of((output / "tokenizer.json").read_bytes()),
        "num_parameters": model.num_parameters(),
        "measured": measured,
    }
    (output / "recipe.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def run(what: str, build_into: Callable[[Path, Callable[[str], None]], object]) -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=f"Rebuild {what} from nothing.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--replace", action="store_true", help="remove the folder first if it is there"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="CPU threads; the weights depend on it slightly"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    if args.replace and args.output.exists():
        shutil.rmtree(args.output)
    build_into(args.output, lambda line: print(line, flush=True))


if __name__ == "__main__":
    run("the starter model", lambda output, report: build(output, Recipe(), report=report))
