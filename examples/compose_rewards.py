"""Weighs several rewards into one, as a mapping and as an expression, and shows what each said.

python examples/compose_rewards.py
"""

from __future__ import annotations

import rlgym_llm
from rlgym_llm.composition.expressions import Clip, Gate, R
from rlgym_llm.reward_config import read_rewards

REWARDS = {
    "components": {
        "correct": {"reward": "math", "weight": 1.0},
        "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
        "brevity": {
            "reward": "length",
            "weight": -0.001,
            "options": {"unit": "chars"},
            "gate": {"on": "correct"},  # to be short and wrong earns nothing
        },
    },
    "clip": [-1, 2],
}

CORRECT = R("math", name="correct")
BREVITY = Gate(of=R("length", name="brevity", unit="chars"), on=CORRECT)
EXPRESSION = Clip(1.0 * CORRECT + 0.2 * R("format", style="hash") - 0.001 * BREVITY, -1, 2)


def main() -> None:
    """Answers one starter problem twice, well and badly."""
    assert EXPRESSION.to_config() == read_rewards(REWARDS), "two ways to say the same"
    env = rlgym_llm.make("math-gsm8k", source="starter", split="val", rewards=EXPRESSION)
    for action in ("Think: 13 + 24 = 37.\n#### 37", "The answer is 40."):
        (*_, question), info = env.reset(options={"index": 0})
        _, reward, terminated, _, info = env.step(action)
        print(f"{question.content}\n> {action!r}: reward {reward:.3f}, terminated {terminated}")
        for name, part in info["score"].components.items():
            raw = "not called" if part.raw is None else f"{part.raw:10.3f}"
            print(f"  {name:8} raw {raw} x weight {part.weight:6.3f} = {part.contribution:6.3f}")


if __name__ == "__main__":
    main()
