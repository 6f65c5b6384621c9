"""Composes rewards on rows that exist, in Python; for files of any size there is `rlgym score`.

python examples/score_offline.py generations.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rlgym_llm import Plugins, RewardComposer
from rlgym_llm.composition.expressions import R
from rlgym_llm.layouts.layout import recognise
from rlgym_llm.offline.rollouts import to_rollout

REWARDS = 1.0 * R("math") + 0.2 * R("format", style="hash") - 0.001 * R("length", unit="chars")


def main() -> None:
    """Prints each row's reward, and every component's raw score."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    layout = recognise(rows)  # which column is the prompt, the completion, the answer
    samples = [s for number, row in enumerate(rows, 1) for s in layout.to_samples(row, number)]
    rollouts = [to_rollout(sample) for sample in samples]
    # Every row is wanted, also those that cannot be scored: their reward is None.
    with RewardComposer(REWARDS.to_config(max_error_rate=1.0), Plugins.discover()) as composer:
        for sample, card in zip(samples, composer(rollouts), strict=True):
            raw = {name: part.raw for name, part in card.components.items()}
            print(json.dumps({"id": sample.id, "reward": card.reward, "raw": raw}))


if __name__ == "__main__":
    main()
