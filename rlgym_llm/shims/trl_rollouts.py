"""What TRL hands a reward function, as rollouts: strings or messages, columns, siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlgym_llm.errors import DataError, did_you_mean
from rlgym_llm.layouts.conversations import is_conversation, to_messages, to_prompt
from rlgym_llm.shims.shared_composer import answer_text
from rlgym_llm.types import Completion, FinishReason, Message, Rollout, Task, Turn

__all__ = ["TrlBatch"]

_ANSWERS = ("answer", "solution", "ground_truth")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrlBatch:
    """How the arguments of one call are read.

    >>> read = TrlBatch()
    >>> reply = [{"role": "assistant", "content": "5"}]
    >>> rows = read(["2 + 3?"] * 2, ["5", reply], None, {"solution": ["5", "5"]})
    >>> [row.text for row in rows], rows[1].task.answer, rows[1].sample_index
    (['5', '5'], '5', 1)
    """

    answer: str | None = None
    """The column of the ground truth; None takes ``answer``, ``solution`` or ``ground_truth``."""
    num_generations: int | None = None
    """G of GRPOConfig; None takes neighbours of equal prompts for siblings."""
    eos_token_ids: tuple[int, ...] = ()
    """Ids that end a completion; one that ends in none of them was cut short. Empty: not known."""

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Any],
    ) -> list[Rollout]:
        """One rollout per completion, in order.

        Raises DataError where lengths differ (a column repeated n times too often is never
        zipped with the completions of other prompts), where the named answer column is missing,
        and where a text is neither a string nor messages.
        """
        lists = {name: value for name, value in columns.items() if isinstance(value, list | tuple)}
        self._check_lengths(prompts, completions, completion_ids, lists)
        answer = self._answer_column(lists)
        groups = self._groups(prompts, "environments" in lists)
        lists.pop("environments", None)  # the environments themselves are no data
        rollouts = []
        for row, (group, index) in enumerate(groups):
            info = {name: values[row] for name, values in lists.items()}
            try:
                task = Task(
                    prompt=to_prompt(prompts[row]),
                    answer=answer_text(info[answer]) if answer else None,
                    data_source=str(info.get("data_source") or "unknown"),
                    info=info,
                )
                turns = self._turns(
                    completions[row], tuple(completion_ids[row]) if completion_ids else ()
                )
            except ValueError as wrong:
                raise DataError(f"row {row} of TRL's batch: {wrong}") from wrong
            rollouts.append(
                Rollout(
                    id=f"{group}-{index}",
                    task=task,
                    group_id=str(group),
                    sample_index=index,
                    seed=0,
                    turns=turns,
                    terminated=True,
                )
            )
        return rollouts

    def _check_lengths(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        lists: Mapping[str, Sequence[Any]],
    ) -> None:
        count = len(completions)
        lengths = {"prompts": len(prompts), **{name: len(rows) for name, rows in lists.items()}}
        if completion_ids is not None:
            lengths["completion_ids"] = len(completion_ids)
        for name, length in lengths.items():
            if length != count:
                raise DataError(
                    f"TRL's {name} holds {length} rows for {count} completions; there is one row "
                    "per completion, so repeat nothing: TRL has done so"
                )

    def _answer_column(self, lists: Mapping[str, Any]) -> str | None:
        if self.answer is None:
            return next((name for name in _ANSWERS if name in lists), None)
        if self.answer not in lists:
            hint = did_you_mean(self.answer, lists)
            raise DataError(
                f"TRL's data set has no column {self.answer!r} for the answer{hint} "
                f"(columns: {', '.join(lists) or 'none'})"
            )
        return self.answer

    def _groups(self, prompts: Sequence[Any], prompts_may_differ: bool) -> list[tuple[int, int]]:
        """Each row's group (the row that it starts at) and place in it."""
        size, starts = self.num_generations, [0] * len(prompts)
        if size is not None and len(prompts) % size:
            raise DataError(
                f"{len(prompts)} completions are no whole groups of num_generations {size}: "
                "a process must hold whole groups for rewards that compare siblings"
            )
        for row in range(1, len(prompts)):
            is_same = prompts[row] == prompts[row - 1]
            joins = is_same if size is None else row % size > 0
            # In an environment each sibling's prompt is that of its own reset.
            if joins and not is_same and not prompts_may_differ:
                raise DataError(
                    f"rows {row - 1} and {row} of TRL's batch are siblings under num_generations "
                    f"{size}, but their prompts differ"
                )
            starts[row] = starts[row - 1] if joins else row
        return [(start, row - start) for row, start in enumerate(starts)]

    def _turns(self, completion: Any, ids: tuple[int, ...]) -> tuple[Turn, ...]:
        """The assistant's messages as turns, what came between them as replies.

        The ids of several messages hold those of the tools between them, and nobody says which are
        whose: such turns carry none.
        """
        ended = not ids or not self.eos_token_ids or ids[-1] in self.eos_token_ids
        if isinstance(completion, str):
            said: list[tuple[str, list[Message]]] = [(completion, [])]
        elif is_conversation(completion) or completion == []:
            said = []
            for message in to_messages(completion):
                if message.role == "assistant":
                    said.append((message.content, []))
                elif said:
                    said[-1][1].append(message)
            said = said or [("", [])]
        else:
            kind = type(completion).__name__
            raise ValueError(f"a completion is text or a list of messages, not {kind}")
        *before, (text, reply) = said
        last = Completion(
            text=text,
            token_ids=() if before or reply else ids,
            finish_reason=FinishReason.STOP if ended else FinishReason.LENGTH,
        )
        return (
            *(_turn(Completion(text=text), reply) for text, reply in before),
            _turn(last, reply),
        )


def _turn(completion: Completion, reply: list[Message]) -> Turn:
    return Turn(new_prompt_token_ids=(), completion=completion, reply=tuple(reply))
