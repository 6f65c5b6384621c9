"""Public bug reports of the peers about several ranks, as cases; the numbers are theirs."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.ranks import Ranks
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.score import add_scores

pytestmark = pytest.mark.data

TESTED = {
    "dist-micro_batch_count_per_rank",
    "dist-shard_order_restored",
    "dist-eval_loop_length_differs",
}


def test_every_case_is_tested(test_data):
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    assert {case["id"] for case in map(json.loads, lines) if case["area"] == "dist"} == TESTED


def sample(number, *, num_computed=1):
    """A prompt of one token of its own, and a reply; all but the last token are computed."""
    return TrainingSample(
        token_ids=(number, *[5] * num_computed),
        loss_mask=(False,) + (True,) * num_computed,
        rollout_logprobs=(0.0,) * (num_computed + 1),
        policy_versions=(-1,) + (0,) * num_computed,
        rollout_id=str(number),
        group_id=str(number),
        sample_index=0,
    )


def batching(ranks, **settings):
    return Batching(
        is_packed=True,
        pad_token_id=0,
        device=torch.device("cpu"),
        ranks=ranks,
        balances=False,
        **settings,
    )


def parts(samples, *, world_size, **settings):
    """Rollout ids of each micro-batch of each rank."""
    found = []
    for rank in range(world_size):
        ranks = Ranks(rank=rank, world_size=world_size)
        own = batching(ranks, **settings).parts(samples)
        found.append([[one.rollout_id for one in part] for part, _ in own])
    return found


def test_dynamic_batches_are_equally_many_on_all_ranks(bug_report):
    case = bug_report("dist-micro_batch_count_per_rank")
    sizes = [[2000, 1000, 1000, 600, 600], [1820] * 5]
    assert [sum(of_rank) for of_rank in sizes] == case["input"]["tokens_per_rank"]
    numbered = enumerate(size for of_rank in sizes for size in of_rank)
    samples = [sample(number, num_computed=size) for number, size in numbered]
    found = parts(samples, world_size=2, max_tokens=case["input"]["max_tokens"])
    assert [len(of_rank) for of_rank in found] == case["right"]["values"]["micro_batches"]
    real = [[part for part in of_rank if part != [""]] for of_rank in found]
    assert [len(of_rank) for of_rank in real] == case["right"]["known_wrong"]["micro_batches"]
    assert sorted(name for of_rank in real for part in of_rank for name in part) == [
        str(number) for number in range(10)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads(Ranks):
    """Ranks that are threads of this process."""

    meeting: threading.Barrier
    said: dict[int, Any]

    def gather(self, data):
        self.said[self.rank] = data
        self.meeting.wait(timeout=60)
        return [self.said[rank] for rank in range(self.world_size)]


def scored_by_all(samples, *, world_size):
    """The samples that each rank ends with, valued by their numbers, and how often each ran."""
    found, num_runs = {}, [0] * world_size
    shared = {"meeting": threading.Barrier(world_size), "said": {}}

    def run(rank):
        def score(batch):
            num_runs[rank] += 1
            return batch.input_ids[:, :1].float().expand(batch.input_ids.shape)

        ranks = Threads(rank=rank, world_size=world_size, **shared)
        found[rank] = add_scores(samples, "values", score, batching(ranks, max_sequences=1))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(world_size)], num_runs


def test_what_ranks_computed_comes_back_in_the_order_given(bug_report):
    case = bug_report("dist-shard_order_restored")
    samples = [sample(number) for number in case["input"]["samples"]]
    everyones, _ = scored_by_all(samples, world_size=case["input"]["world"])
    for found in everyones:
        assert [int(one.rollout_id) for one in found] == case["right"]["values"]["order"]
        assert [int(one.values[0]) for one in found] == case["right"]["values"]["order"]


def test_scoring_runs_equally_often_on_all_ranks_over_real_samples_only(bug_report):
    case = bug_report("dist-eval_loop_length_differs")
    num_samples = sum(case["input"]["batches_per_rank"])
    everyones, num_runs = scored_by_all([sample(n) for n in range(num_samples)], world_size=2)
    assert num_runs == case["right"]["values"]["iterations"]
    assert [len(found) for found in everyones] == [num_samples] * 2
