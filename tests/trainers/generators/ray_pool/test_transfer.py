"""Weights sent to all processes at once: in order, in time, and to all of them or none."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rlgym_llm_trainers.generators.ray_pool.transfer import PoolTransfer
from rlgym_llm_trainers.generators.ray_pool.weights import Weights

from rlgym_llm.errors import ConfigError, GeneratorError, WeightSyncError


class Sender:
    """Drives the four calls as vLLM's NCCL sender does: a broadcast runs beside ``update``."""

    def __init__(self, client, num_gpus):
        self.client, self.num_gpus = client, num_gpus
        self.hangs = False
        self.closed = threading.Event()
        client.init_weight_transfer_engine({"world_size": 1 + num_gpus, "rank_offset": 1})

    def send(self, version):
        self.client.start_weight_update()
        with ThreadPoolExecutor(1) as beside:
            update = beside.submit(self.client.update_weights, {"names": ["w"]})
            if self.hangs:  # a broadcast to one that is dead ends only when it is left
                self.closed.wait()
            update.result()
        self.client.finish_weight_update(str(version))

    def close(self):
        self.closed.set()


@pytest.fixture
def transfer():
    """One whose sender, once it is opened, is its attribute ``sender``."""

    def open_sender(client, num_gpus):
        made.sender = Sender(client, num_gpus)
        made.sender.hangs = made.hangs
        return made.sender

    made = PoolTransfer("nccl", open_sender)
    made.hangs = False
    yield made
    made.close()


@pytest.fixture
def sent(transfer):
    """``sent(version)``: the `Weights` that come by the transfer."""

    def make(version, **more):
        return Weights(version=version, transfer=transfer, **more)

    return make


def one_sync(version):
    update = ("update", {"names": ["w"]})
    return [("start", None), update, ("finish", str(version))]


def test_every_process_joins_once_and_then_takes_part_in_order(world, say, sent, transfer):
    pool = world.pool(version=None)
    scored = []
    for version in (0, 1):
        pool.load(sent(version, canary=((1, 2),), check=lambda *one: scored.append(one)))
        assert pool.policy_version == version
        found = say.results([pool.submit(say.request(5)) for _ in range(8)])
        assert {span for one in found for span in one.version_spans} == {(0, 1, version)}
    assert transfer.sender.num_gpus == 2
    for actor in world.actors:
        asked = [event for event in actor.events if event[0] != "sample"]
        join = ("init", {"world_size": 3, "rank_offset": 1 + actor.place})
        assert asked == [join, *one_sync(0), ("score",), *one_sync(1), ("score",)]
    assert sorted(scored) == [
        (name, [[float(version)]]) for name in ("actor-0", "actor-1") for version in (0, 1)
    ]


def test_processes_of_several_gpus_have_a_rank_for_each(world):
    transfer = PoolTransfer("nccl", Sender, gpus_each=2)
    pool = world.pool(num_actors=3, version=None)
    pool.load(Weights(version=0, transfer=transfer))
    joined = {actor.place: actor.events[0][1] for actor in world.actors}
    assert joined == {i: {"world_size": 7, "rank_offset": 1 + 2 * i} for i in range(3)}


def test_a_process_that_dies_in_the_middle_ends_the_transfer_and_the_run(
    world, say, sent, transfer
):
    pool = world.pool(version=None)
    pool.load(sent(0))
    transfer.sender.hangs = True
    world.acts["update"] = say.fail_for("actor-1", say.gone("actor-1"))
    with pytest.raises(WeightSyncError, match=r"nccl transfer broke off .* actor-1 is gone"):
        pool.load(sent(1))
    assert transfer.sender.closed.wait(20)  # or the learner would wait in its broadcast
    assert [actor.is_killed for actor in world.actors] == [True, True]
    with pytest.raises(GeneratorError, match="no generator process is left"):
        pool.submit(say.request(5)).result(20)
    with pytest.raises(WeightSyncError, match="no generator process is left"):
        pool.load(sent(1))
    assert len(world.actors) == 2  # none was replaced: it could not join


def test_weights_that_do_not_arrive_in_time_end_it_as_well(world, sent, transfer):
    pool = world.pool(version=None, sync_timeout_s=0.2)
    transfer.hangs = True
    with pytest.raises(WeightSyncError, match=r"broke off .* did not arrive within 0.2 s"):
        pool.load(sent(0))
    assert all(actor.is_killed for actor in world.actors)
    assert pool.policy_version is None


def test_a_process_lost_between_syncs_is_not_replaced_and_the_next_sync_says_so(world, say, sent):
    pool = world.pool(version=None)
    pool.load(sent(0))
    world.acts["sample"] = say.fail_for("actor-0", say.gone())
    found = say.results([pool.submit(say.request(i)) for i in range(8)])
    assert {one.sampled_by for one in found} == {"actor-1"}  # nothing is lost meanwhile
    with pytest.raises(
        WeightSyncError, match=r"actor-0 was lost \(actor-0 is gone: killed\).* shared_memory"
    ):
        pool.load(sent(1))
    assert len(world.actors) == 2
    assert ("start", None) not in world.actor("actor-1").events[4:]  # it was left as it was
    (after,) = say.results([pool.submit(say.request(9))])
    assert after.version_spans == ((0, 1, 0),)


def test_a_process_that_does_not_start_is_replaced_before_the_first_sync(world, say, sent):
    world.acts["ready"] = say.fail_for("actor-0", GeneratorError("out of memory"))
    pool = world.pool(version=None)
    pool.load(sent(0))
    assert [actor.version for actor in world.actors] == [None, 0, 0]
    ranks = {a.name: a.events[0][1]["rank_offset"] for a in world.actors if a.events}
    assert sorted(ranks) == ["actor-1", "actor-2"]
    assert sorted(ranks.values()) == [1, 2]


def test_a_canary_that_does_not_agree_ends_the_run(world, sent):
    def check(name, scores):
        if scores == [[1.0]]:
            raise WeightSyncError(f"generator {name} does not sample from the learner's weights")

    pool = world.pool(version=None)
    pool.load(sent(0, canary=((1, 2),), check=check))
    with pytest.raises(WeightSyncError, match="does not sample from the learner's weights"):
        pool.load(sent(1, canary=((1, 2),), check=check))
    assert pool.policy_version == 0
    assert all(actor.is_killed for actor in world.actors)


def test_what_keeps_the_sender_from_opening_is_said(world):
    def refuse(client, num_gpus):
        raise ConfigError("needs GPUs with CUDA and there is none here")

    pool = world.pool(version=None)
    transfer = PoolTransfer("ipc", refuse)
    with pytest.raises(WeightSyncError, match=r"version 0: the ipc transfer .* there is none here"):
        pool.load(Weights(version=0, transfer=transfer))
