"""What `test_sharded_state.py` has torchrun start: saves and loads a module over several ranks.

``sharded_state.py FOLDER``: loads ``FOLDER/one``, which one rank wrote, trains a step, writes
``FOLDER/two``; then fails to write on rank 0. Each rank tells of itself in ``FOLDER/rank_N.json``.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

SHAPES = (5, 3, 1)  # over two ranks: uneven, and nothing at all for the second


def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    layers = [nn.Linear(a, b) for a, b in pairwise(SHAPES)]
    module = nn.Sequential(nn.Embedding(7, SHAPES[0]), *layers)
    return module, torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)


def train(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    module(torch.tensor([1, 2, 5])).square().mean().backward()
    optimizer.step()


def main(folder: Path) -> None:
    import torch.distributed as dist
    from rlgym_llm_trainers.learner import stored_state
    from rlgym_llm_trainers.learner.ranks import open_ranks
    from rlgym_llm_trainers.learner.stored_state import load_state, save_state

    from rlgym_llm.errors import RlgymError

    ranks = open_ranks("cpu")
    module, _ = made(1)
    fully_shard(module, mesh=ranks.mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    found: dict[str, object] = {}
    found["counts"] = load_state(folder / "one", module, optimizer, ranks=ranks)
    train(module, optimizer)  # the same samples on both: their mean is the gradient of one rank
    save_state(folder / "two", module, optimizer, {"updates_done": 2}, ranks=ranks)

    try:  # as on two machines that share no storage
        save_state(folder / f"own_{ranks.rank}", module, optimizer, {}, ranks=ranks)
    except RlgymError as error:
        found["apart"] = str(error)

    class Failing(stored_state.HuggingFaceStorageWriter):
        def write_data(self, plan, planner):
            if ranks.is_first:
                raise OSError(28, "No space left on device")
            return super().write_data(plan, planner)

    stored_state.HuggingFaceStorageWriter = Failing
    try:
        save_state(folder / "three", module, optimizer, {}, ranks=ranks)
    except RlgymError as error:
        found["save"] = str(error)
    try:  # a folder that only this rank lacks
        here = folder / ("two" if ranks.is_first else "nowhere")
        load_state(here, module, optimizer, ranks=ranks)
    except RlgymError as error:
        found["load"] = str(error)
    (folder / f"rank_{ranks.rank}.json").write_text(json.dumps(found))
    dist.barrier()
    ranks.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
