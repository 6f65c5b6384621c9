"""Two real ranks over gloo: what they learn is what one rank learns; see `two_ranks.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks, launched_as, open_ranks
from rlgym_llm_trainers.learner.sample import TrainingSample

PROGRAM = Path(__file__).with_name("two_ranks.py")
CASES = (
    *("recorded_batches", "batches_in_order", "adapters", "recomputed"),
    *("gradients", "uneven", "not_finite", "failing", "broken", "critic"),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Case -> what each rank says; one start of torchrun, which takes longest, for all."""
    file = tmp_path_factory.mktemp("ranks") / "results.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(PROGRAM), str(file), *CASES],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize(
    ("case", "count"),
    [("recorded_batches", 20), ("batches_in_order", 2), ("adapters", 3), ("recomputed", 2)],
)
def test_batches_on_two_ranks_are_those_of_one(results, case, count):
    rows, _ = results[case]
    assert len(rows) == count
    for row in rows:
        for name in ("loss", "grad_norm", "parameters", "streams"):
            assert row[name] < 1e-5, name
        assert row["metrics"] < 1e-4
        assert row["has same keys"]
        assert row["is in order"]


def test_no_loss_and_no_aggregation_depends_on_the_number_of_ranks(results):
    errors, _ = results["gradients"]
    assert len(errors) == 7 * 5 * 2
    assert max(errors.values()) < 1e-12  # in float64


def test_a_critic_on_two_ranks_is_that_of_one(results):
    (rows, apart), _ = results["critic"]
    for row in rows:
        assert row["is in order"]
        assert row["has same keys"]
        assert row["values"] < 1e-5 * max(row["size"], 1.0)
        assert row["metrics"] < 1e-4
    assert apart < 1e-5  # what was saved, whole


def test_a_rank_with_less_to_do_keeps_the_others_company(results):
    errors, _ = results["uneven"]
    assert len(errors) == 6
    assert max(errors) < 1e-5


def test_what_is_not_finite_on_one_rank_skips_the_step_on_all(results):
    first, second = results["not_finite"]
    assert first["ratios"] == [1.0, 1.0]
    assert first["is same"]
    assert first["last_step"] == 0
    assert first["notes"] == [
        "actor: update 1 was skipped: loss nan in micro-batch 1 of rank 1",
        "actor: update 2 was skipped: norm of the gradient nan",
    ]
    assert first["ending"] == (
        "actor: update 3 was skipped: loss nan in micro-batch 1 of rank 1; so were the 2 before it "
        "(--actor.max_skipped_steps): lower --actor.optim.lr"
    )
    assert second == {"updates_done": 3, "last_step": 0}


def test_a_loss_that_fails_on_one_rank_ends_the_update_on_all(results):
    first, second = results["failing"]
    assert first["errors"] == second["errors"] == ["rank 1: the loss has no mood"]
    assert first["calls"] == second["calls"] == 9  # the step goes on to its end, then is left out
    assert first["is same"]
    assert first["is loaded"]  # all that it learns with was still saved
    assert all(norm > 0 for norm in first["norms"])


def test_weights_that_are_not_finite_stay_where_they_are(results):
    first, second = results["broken"]
    assert first["errors"] == second["errors"]
    (error,) = first["errors"]
    assert error.startswith("actor: the weights are not finite after update 1 (norm ")
    assert first["is broken"]
    assert second["is broken"]
    assert first["last_step"] == 0
    assert first["is same"]  # what is sampled from, and saved
    assert not first["is told as broken"]


def sample(number, *, num_tokens, prompt=(1, 2, 3)):
    reply = tuple(range(10, 10 + num_tokens))
    return TrainingSample(
        token_ids=(*prompt, *reply),
        loss_mask=(False,) * len(prompt) + (True,) * num_tokens,
        rollout_logprobs=(0.0,) * (len(prompt) + num_tokens),
        policy_versions=(-1,) * len(prompt) + (0,) * num_tokens,
        rollout_id=str(number),
        group_id=str(prompt),
        sample_index=0,
        advantages=(1.0,) * (len(prompt) + num_tokens),
    )


def shares(samples, **settings):
    """Rollout ids of each micro-batch, of each of two ranks; stand-ins have none."""
    settings = {"is_packed": True, "pad_token_id": 0, "device": torch.device("cpu"), **settings}
    return [
        [
            [one.rollout_id for one in part]
            for part, _ in Batching(ranks=Ranks(rank=rank, world_size=2), **settings).parts(samples)
        ]
        for rank in (0, 1)
    ]


def test_each_rank_has_equally_many_micro_batches_and_about_as_many_tokens():
    samples = [sample(i, num_tokens=n, prompt=(i, i)) for i, n in enumerate((8, 3, 3, 2))]
    first, second = shares(samples, max_sequences=1)
    assert first == [["0"], [""], [""]]  # ten tokens; the others have five, five and four
    assert sorted(second) == [["1"], ["2"], ["3"]]


def test_unbalanced_shares_come_in_the_order_given():
    samples = [sample(i, num_tokens=n) for i, n in enumerate((2, 9, 4))]
    assert shares(samples, max_sequences=4, balances=False) == [[["0"]], [["1", "2"]]]


def test_a_stand_in_trains_nothing_and_has_the_streams_of_the_others():
    samples = [sample(0, num_tokens=2)]
    parts = Batching(
        max_sequences=1,
        is_packed=False,
        pad_token_id=0,
        device=torch.device("cpu"),
        ranks=Ranks(rank=1, world_size=2),
    ).parts(samples)
    ((_, batch),) = list(parts)
    assert not batch.loss_mask.any()
    assert batch.advantages is not None


def test_ranks_are_those_of_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert launched_as() == (0, 1)  # some scheduler's RANK is no torchrun
    monkeypatch.setenv("MASTER_PORT", "1")
    assert launched_as() == (1, 1)


def test_one_rank_is_alone_and_what_it_starts_is_no_rank(monkeypatch):
    values = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in (values | {"MASTER_ADDR": "x", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    assert open_ranks("cpu") is ALONE
    assert "WORLD_SIZE" not in os.environ
    assert ALONE.gather("a") == ["a"]
    assert ALONE.broadcast("b") == "b"
