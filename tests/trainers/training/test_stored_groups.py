"""Where sampling stands: what was drawn is neither drawn again nor skipped after a resume."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import pytest
from rlgym_llm_trainers.training.collector import Collector
from rlgym_llm_trainers.training.stored_groups import load_collector_state, save_collector_state

WAIT_S = 20.0


class Sampler:
    """Samples the places of ``ready``, a set a step; the others never come."""

    def __init__(self, group_of, ready=None):
        self.group_of = group_of
        self.ready = ready
        self.asked = []
        self.has_offered = threading.Event()

    def __call__(self, step, indices, *, on_group, caller, places=None):
        self.asked.append((step, tuple(indices), places))
        wanted = range(len(indices)) if places is None else sorted(places)
        for place in wanted:
            if self.ready is None or place in self.ready.get(step, ()):
                on_group(place, self.group_of(step - 1, name=f"{step}.{place}"))
        if step > 1:
            self.has_offered.set()


def collector_of(sampler, order, batch):
    def draw(step):
        return order[(step - 1) * batch : step * batch]

    return Collector(draw=draw, sample=sampler, batch_size=batch, total_steps=3, max_staleness=1)


@pytest.mark.parametrize("ready", [(0, 1), (1,), ()])
def test_a_resume_in_the_middle_of_an_epoch_takes_up_what_was_drawn(
    tmp_path, group_of, bug_report, ready
):
    case = bug_report("ckpt-mid_epoch_position")
    order, batch = case["input"]["order"], case["input"]["batch"]
    sampler = Sampler(group_of, {1: (0, 1), 2: ready})
    with closing(collector_of(sampler, order, batch)) as collector:
        assert collector.collect(1, version=0).indices == tuple(order[:batch])
        assert sampler.has_offered.wait(WAIT_S)  # the prefetched step, as far as it comes
        state = collector.state()
    data = json.loads(json.dumps(save_collector_state(state, tmp_path)))
    assert load_collector_state(data, tmp_path) == state

    sampler = Sampler(group_of)
    with closing(collector_of(sampler, order, batch)) as collector:
        collector.load(load_collector_state(data, tmp_path))
        found = [collector.collect(step, version=step - 1) for step in (2, 3)]
    assert [list(one.indices) for one in found] == case["right"]["values"]["next"]
    missing = frozenset({0, 1} - set(ready))
    again = [asked for asked in sampler.asked if asked[2] is not None]
    assert again == ([(2, tuple(order[2:4]), missing)] if missing else [])


def test_the_counts_of_what_was_taken_and_dropped_go_on(group_of):
    sampler = Sampler(group_of)
    options = {"batch_size": 1, "total_steps": 9, "max_staleness": 1, "stale": "drop"}
    with closing(Collector(draw=lambda step: [step], sample=sampler, **options)) as collector:
        first = collector.collect(1, version=0)
        state = collector.state()
    assert (state.buffer.num_taken, first.indices) == (1, (1,))
    with closing(Collector(draw=lambda step: [step], sample=sampler, **options)) as collector:
        collector.load(state)
        taken = [collector.collect(step, version=step - 1).indices for step in (2, 3, 4)]
    assert taken == [(2,), (3,), (4,)], "no step is sampled twice, and none is left out"
