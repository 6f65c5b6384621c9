"""Checkpoints over ranks: written by one and read by two, and the other way round."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.learner.stored_state import load_state, save_state

SCRIPT = Path(__file__).parent / "sharded_state.py"
_spec = importlib.util.spec_from_file_location("sharded_state", SCRIPT)
sharded_state = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sharded_state)


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    module, optimizer = sharded_state.made(0)
    sharded_state.train(module, optimizer)
    save_state(folder / "one", module, optimizer, {"updates_done": 1})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    return folder, module, optimizer, said


def test_two_ranks_go_on_from_one_and_one_from_two(of_two_ranks):
    folder, module, optimizer, said = of_two_ranks
    assert [one["counts"] for one in said] == [{"updates_done": 1}] * 2
    assert len(list((folder / "two").glob("*.safetensors"))) == 2
    again, its_optimizer = sharded_state.made(2)
    assert load_state(folder / "two", again, its_optimizer) == {"updates_done": 2}
    sharded_state.train(module, optimizer)  # the step that the two ranks did
    for one, other in zip(module.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        for slot, value in optimizer.state[one].items():
            torch.testing.assert_close(
                value, its_optimizer.state[other][slot], rtol=1e-6, atol=1e-9
            )


def test_what_one_rank_cannot_do_is_told_on_all_and_nobody_hangs(of_two_ranks, bug_report):
    right = bug_report("ckpt-full_state_dict_collective")["right"]["values"]
    _, _, _, said = of_two_ranks
    hangs = any("save" not in one or "load" not in one for one in said)
    assert hangs is right["hang"]
    assert all("No space left on device" in one["save"] for one in said)
    assert all("not the same folder on all ranks" in one["apart"] for one in said)
    assert all("nowhere" in one["load"] or "absent" in one["load"] for one in said)
