"""The environments of the shims' and adapters' benchmarks: the peer, and this project."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from peer_environment import InstallError, peer_environment

ROOT = Path(__file__).absolute().parents[1]
TORCH = "torch==2.13.0"
PEERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "trl": ((TORCH, "transformers>=5.16.1,<5.20", "trl==1.16.0"),),
    "verl": ((TORCH, "verl==0.9.1"),),
    "openrlhf": (
        (TORCH, "transformers==5.15.0", "aiohttp", "pylatexenc"),
        # its dependencies build for GPUs; what calls a reward function needs none of them
        ("--no-deps", "openrlhf==0.11.2"),
    ),
    "reasoning_gym": (("-r", str(ROOT / "benchmarks" / "envs" / "reasoning_gym.txt")),),
    "gem": (("-r", str(ROOT / "benchmarks" / "envs" / "gem_adapter.txt")),),
    "verifiers": (("-r", str(ROOT / "benchmarks" / "envs" / "verifiers.txt")),),
}
"""What ``pip install`` is called with, one call after the other."""


def make_environment(folder: Path, name: str) -> Path:
    """The interpreter of the environment ``folder/name``, made now if it is not there."""
    try:
        return peer_environment(folder / name, (*PEERS[name], ("--editable", str(ROOT))))
    except InstallError as failure:
        raise SystemExit(f"{name} does not install:\n{failure}") from None


def run_inside(name: str, script: str) -> int:
    """Runs the script of a benchmark again, with ``--inside``, under the peer's interpreter."""
    parser = argparse.ArgumentParser(description=f"Runs beside the real {name}.")
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers"), help="where its environment is or goes"
    )
    python = make_environment(parser.parse_args().peers, name)
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    command = [str(python), str(Path(script).absolute()), "--inside"]
    return subprocess.run(command, env={**os.environ, **quiet}).returncode


def check(claim: bool, words: str) -> None:
    """Says what holds, or ends the benchmark with what does not."""
    if not claim:
        sys.exit(f"FAILED: {words}")
    print(f"ok  {words}", flush=True)
