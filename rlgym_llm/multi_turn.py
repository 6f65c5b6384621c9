"""MultiTurnEnv: an environment that answers, turn after turn, out of a state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.types import Action, Message, Task

__all__ = ["MultiTurnEnv", "Reply"]

State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What `MultiTurnEnv.respond` answers where a plain text does not say enough.

    An episode that goes on needs at least one message.

    >>> Reply(messages=(Message(role="user", content="Lower."),), reward=0.5).reward
    0.5
    """

    messages: tuple[Message, ...] = ()
    """What the policy reads next."""
    reward: float | None = None
    """The environment's own reward for this turn, None where it gives none."""
    terminated: bool = False
    """The task is over."""
    truncated: bool = False
    """A budget ran out."""
    spoken: Message | None = None
    """The action as the conversation remembers it, with its tool calls say; None: its text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))


class MultiTurnEnv(TextEnv, Generic[State]):
    """Plays several turns: override `respond`, and `start` where an episode has a state.

    ``self.state`` is what `start` returned. It may be changed in place or replaced, is copied by
    `get_state` and `clone`, and pickles with the environment.

    Args:
        max_turns: The episode is truncated after so many turns; None for no limit.
        options: Arguments of `TextEnv`, such as ``tasks`` and ``rewards``.

    >>> from rlgym_llm.tasks import ListTasks
    >>> class Echo(MultiTurnEnv[int]):
    ...     def start(self, task):
    ...         return 2                                # times to echo
    ...     def respond(self, state, action):
    ...         self.state -= 1
    ...         return f"{action.text}!" if state else Reply(reward=1.0, terminated=True)
    >>> env = Echo(tasks=ListTasks([Task(prompt=(Message(role="user", content="Hi"),))]))
    >>> _ = env.reset()
    >>> [env.step(text)[4]["reply"] for text in ("a", "b")][1][0].content
    'b!'
    >>> env.step("c")[2:4], env.turns[-1].env_reward
    ((True, False), 1.0)
    """

    state: State
    """The episode's own state, from the first `reset` on."""

    def __init__(self, *, max_turns: int | None = 10, **options: Any) -> None:
        super().__init__(max_turns=max_turns, **options)

    def start(self, task: Task) -> State:
        """The state that an episode of this task starts in; chance from ``self.np_random`` only."""
        return None  # type: ignore[return-value]

    def respond(
        self, state: State, action: Action
    ) -> Reply | Sequence[Message] | str | TurnOutcome | None:
        """The answer to an action that stopped by itself.

        Text is one message of the user; None says that the task is over; a `TurnOutcome` is taken
        as it is. An episode that goes on needs at least one message. Override this.
        """
        raise NotImplementedError(f"{type(self).__name__} must define respond(state, action)")

    def begin(self, task: Task) -> None:
        """Starts the state of an episode."""
        self.state = self.start(task)

    def advance(self, action: Action) -> TurnOutcome:
        """The outcome that `respond` stands for.

        Raises TypeError for what is no answer, ValueError for one that leaves nothing to read.
        """
        outcome = self._outcome(self.respond(self.state, action))
        if not (outcome.reply or outcome.terminated or outcome.truncated):
            raise ValueError("a reply without a message leaves the policy nothing to answer")
        return outcome

    def _outcome(self, answer: Any) -> TurnOutcome:
        if answer is None:
            return TurnOutcome(terminated=True)
        if isinstance(answer, TurnOutcome):
            return answer
        if isinstance(answer, str):
            answer = Reply(messages=(Message(role="user", content=answer),))
        elif not isinstance(answer, Reply):
            answer = Reply(messages=_messages(answer, type(self).__name__))
        return TurnOutcome(
            reply=answer.messages,
            env_reward=answer.reward,
            terminated=answer.terminated,
            truncated=answer.truncated,
            spoken=answer.spoken,
        )


def _messages(answer: Any, env_name: str) -> tuple[Message, ...]:
    is_list = isinstance(answer, Sequence) and all(isinstance(one, Message) for one in answer)
    if not is_list:
        raise TypeError(
            f"{env_name}.respond returned {type(answer).__name__}; "
            "return text, messages, a Reply, or None where the task is over"
        )
    return tuple(answer)
