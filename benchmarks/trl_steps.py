"""TRL's ``GRPOTrainer``, one optimizer step at a time, with a clock for its parts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turns import Turns

__all__ = ["SteppedTrainer", "config_of"]

_MOST_STEPS = 1000


def config_of(folder: str, **settings: Any) -> GRPOConfig:
    """Float32 on a CPU, no activation checkpointing, every step logged, nothing saved."""
    return GRPOConfig(
        output_dir=folder,
        model_init_kwargs={"dtype": "float32"},
        # Its default multiplies the KL term by the ratio: the same value with another gradient.
        use_bias_correction_kl=False,
        lr_scheduler_type="constant",
        max_steps=_MOST_STEPS,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        shuffle_dataset=False,
        **settings,
    )


class SteppedTrainer(GRPOTrainer):
    """A trainer that waits where a step begins and answers where its weights are new."""

    question: Mapping[str, Any]
    """What the step under way was asked with."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seconds: Counter[str] = Counter()
        """Of the step under way: all of it, and its parts ``gen`` and ``reward``."""
        self._turns = Turns(lambda turns: self.train())
        self.add_callback(_Step(self, self._turns))

    def step(self, question: Mapping[str, Any]) -> dict[str, float]:
        """One step: ``seconds``, ``gen`` and ``reward``, and all that the trainer logs of it."""
        return self._turns.ask(question)

    def _generate(self, prompts: list[Any]) -> Any:
        with self._timed("gen"):
            return super()._generate(prompts)

    def _calculate_rewards(self, *arguments: Any) -> Any:
        with self._timed("reward"):
            return super()._calculate_rewards(*arguments)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started


class _Step(TrainerCallback):
    """The trainer's turns; before a step begins nothing of it has been generated."""

    def __init__(self, trainer: SteppedTrainer, turns: Turns) -> None:
        self._trainer = trainer
        self._turns = turns
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.question = self._turns.wait()
        self._trainer.seconds.clear()
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer.seconds["seconds"] = time.perf_counter() - self._started

    def on_log(self, *_: Any, logs: Mapping[str, float], **__: Any) -> None:
        if "grad_norm" in logs:  # of a step, not of the whole run
            self._turns.tell({**logs, **self._trainer.seconds})
