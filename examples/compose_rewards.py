"""Weighs several rewards into one, and shows what each of them said.

python examples/compose_rewards.py
"""

from __future__ import annotations

import rlgym_llm

REWARDS = {
    "components": {
        "correct": {"reward": "math", "weight": 1.0},
        "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
        "brevity": {"reward": "length", "weight": -0.001, "options": {"unit": "chars"}},
    },
    "clip": [-1, 2],
}


def main() -> None:
    """Answers one starter problem twice, well and badly."""
    env = rlgym_llm.make("math-gsm8k", source="starter", split="val", rewards=REWARDS)
    for action in ("Think: 13 + 24 = 37.\n#### 37", "The answer is 40."):
        (*_, question), info = env.reset(options={"index": 0})
        _, reward, terminated, _, info = env.step(action)
        print(f"{question.content}\n> {action!r}: reward {reward:.3f}, terminated {terminated}")
        for name, part in info["score"].components.items():
            print(f"  {name:8} raw {part.raw:7.3f} x weight {part.weight:6.3f}")


if __name__ == "__main__":
    main()
