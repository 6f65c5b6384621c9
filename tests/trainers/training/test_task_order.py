"""Which tasks a step trains on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.training.task_order import epoch_of, task_indices, tasks_mark

from rlgym_llm.types import Task


def test_unshuffled_batches_wrap_and_drop_the_remainder():
    batches = [
        task_indices(step, num_tasks=10, batch_size=4, seed=0, shuffle=False) for step in (1, 2, 3)
    ]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]


@given(
    batch_size=st.integers(1, 7),
    batches=st.integers(1, 5),
    extra=st.integers(0, 6),
    seed=st.integers(0, 2**32),
)
def test_an_epoch_repeats_no_task(batch_size, batches, extra, seed):
    num_tasks = batch_size * batches + min(extra, batch_size - 1)
    seen = [
        index
        for step in range(1, batches + 1)
        for index in task_indices(step, num_tasks=num_tasks, batch_size=batch_size, seed=seed)
    ]
    assert len(set(seen)) == len(seen) == batch_size * batches
    assert set(seen) <= set(range(num_tasks))


def test_epochs_have_orders_of_their_own_and_a_step_is_a_pure_function():
    first = task_indices(1, num_tasks=100, batch_size=50, seed=3)
    assert first == task_indices(1, num_tasks=100, batch_size=50, seed=3)
    assert first != task_indices(3, num_tasks=100, batch_size=50, seed=3)
    assert first != task_indices(1, num_tasks=100, batch_size=50, seed=4)


def test_epoch_of_a_step():
    assert [epoch_of(step, num_tasks=10, batch_size=4) for step in (1, 2, 3, 4, 5)] == [
        0,
        0,
        1,
        1,
        2,
    ]


def test_one_task_more_another_order_and_another_answer_are_other_tasks():
    tasks = [Task(prompt="2 + 3 = ?", answer="5"), Task(prompt="2 + 4 = ?", answer="6")]
    same = [Task(prompt=task.prompt, answer=task.answer) for task in tasks]
    assert tasks_mark(same) == tasks_mark(tasks)
    others = [[*tasks, tasks[0]], tasks[::-1], [tasks[0], Task(prompt="2 + 4 = ?", answer="7")]]
    assert all(tasks_mark(other) != tasks_mark(tasks) for other in others)


def test_too_few_tasks_are_refused():
    with pytest.raises(ValueError, match="3 tasks do not fill a batch of 4"):
        task_indices(1, num_tasks=3, batch_size=4, seed=0)
