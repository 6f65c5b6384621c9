"""Ray that cannot be had is told in one line and soon. What can is in test_real_ray.py."""

from __future__ import annotations

import socket

import pytest
import ray
from rlgym_llm_trainers.generators.ray_pool import cluster
from rlgym_llm_trainers.generators.ray_pool.cluster import open_cluster

from rlgym_llm.errors import ConfigError, UserError


@pytest.fixture
def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def no_init(monkeypatch):
    """Fails where Ray itself is asked: it would try for minutes."""

    def init(**options):
        raise AssertionError(f"ray.init({options})")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"rlgym-llm\[train\].*rollout.num_workers 0"):
        open_cluster()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_answers_is_refused_before_ray_is_asked(no_init, free_port, scheme):
    with pytest.raises(ConfigError, match="no Ray cluster answers there") as raised:
        open_cluster(f"{scheme}127.0.0.1:{free_port}")
    assert f"rollout.workers.address {scheme}127.0.0.1:{free_port}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_auto_looks_where_the_environment_says(no_init, free_port, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port}")
    with pytest.raises(ConfigError, match=r"address auto: no Ray cluster answers"):
        open_cluster("auto")


def test_auto_looks_where_the_last_cluster_of_this_machine_was(
    no_init, free_port, monkeypatch, tmp_path
):
    left = tmp_path / "ray" / "ray_current_cluster"  # what a killed `ray start --head` leaves
    left.parent.mkdir()
    left.write_text(f"127.0.0.1:{free_port}")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"address auto: no Ray cluster answers"):
        open_cluster("auto")
    left.unlink()
    with pytest.raises(ConfigError, match=r"ray\.init"):  # without one Ray says so itself, soon
        open_cluster("auto")


def test_an_interrupt_while_ray_starts_leaves_nothing_of_it_open(monkeypatch):
    events = []

    def init(**options):
        events.append("init")
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: events.append("shutdown"))
    with pytest.raises(KeyboardInterrupt):
        open_cluster()
    assert events == ["init", "shutdown"]


@pytest.mark.parametrize("address", ["what is this", "host:port", "ray://"])
def test_an_address_that_is_none_is_refused(no_init, address):
    with pytest.raises(ConfigError, match="no Ray cluster answers there"):
        open_cluster(address)


def test_where_ray_does_not_start_its_reason_is_told(monkeypatch):
    def init(**options):
        raise RuntimeError("no space\nleft")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match="no Ray on this machine: no space left"):
        open_cluster()


def test_a_cluster_that_asks_for_a_token_is_told_apart(monkeypatch):
    def init(**options):
        try:
            raise RuntimeError("no GCS: ray.exceptions.AuthenticationError: InvalidAuthToken")
        except RuntimeError as error:
            raise ConnectionError("Failed to connect") from error

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match="Failed to connect; it asks for a token: set RAY_AUTH"):
        open_cluster()
