"""The built-in environments by name: what their plugin brings, and Gymnasium knows from the start.

One table for both, and none of them is imported: ``import rlgym_llm`` announces them.
"""

from __future__ import annotations

from rlgym_llm.specs import EnvSpec

__all__ = ["BUILTIN_ENVS"]


def _env(name: str, entry_point: str, description: str) -> EnvSpec:
    return EnvSpec(name=name, entry_point=f"rlgym_llm_envs.{entry_point}", description=description)


BUILTIN_ENVS: tuple[EnvSpec, ...] = (
    _env(
        "math-gsm8k",
        "math_gsm8k:MathGsm8kEnv",
        "Grade-school maths word problems; the reply ends in '#### <number>'.",
    ),
    _env(
        "math-generic",
        "math_generic:MathGenericEnv",
        "Mathematics from any file with a prompt and an answer; the reply has its answer in "
        "\\boxed{}.",
    ),
    _env(
        "arithmetic",
        "arithmetic:ArithmeticEnv",
        "Sums of whole numbers in five levels; the reply ends in '#### <number>'.",
    ),
    _env(
        "countdown",
        "countdown:CountdownEnv",
        "Reach a target with the given numbers; the reply ends in <answer>expression</answer>.",
    ),
    _env(
        "text-match",
        "text_match:TextMatchEnv",
        "Replies compared with the answer as text, exactly or by a regular expression.",
    ),
    _env(
        "format-only",
        "format_only:FormatOnlyEnv",
        "A smoke test for pipelines: only the layout of the reply counts.",
    ),
    _env(
        "guess-number",
        "guess_number:GuessNumberEnv",
        "Guess a whole number; every guess is answered higher or lower.",
    ),
    _env(
        "gsm8k-calculator",
        "gsm8k_calculator:Gsm8kCalculatorEnv",
        "GSM8K word problems with a calculator to call; the last turn ends in '#### <number>'.",
    ),
    EnvSpec(
        name="mixture",
        entry_point="rlgym_llm.mixture:Mixture",
        description="Several environments as one, with weights and a curriculum.",
    ),
    _env(
        "reasoning-gym",
        "adapters.reasoning_gym:ReasoningGymEnv",
        "Every generator of reasoning-gym, scored by its own score_answer.",
    ),
    _env("gem", "adapters.gem:GemEnv", "Environments of GEM (gem-llm)."),
    _env(
        "verifiers",
        "adapters.verifiers:VerifiersEnv",
        "Tasksets and environments of verifiers.",
    ),
    _env(
        "gymnasium-text",
        "adapters.gymnasium_text:GymnasiumTextEnv",
        "Any Gymnasium environment that speaks in text.",
    ),
)
"""Our own first, then those that play another package's."""
