"""Our advantages, losses, KLs and corrections beside verl's and TRL's own functions.

    python benchmarks/conformance.py --peers DIR

Each peer runs in an environment of its own below ``--peers``, made on the first run, and its own
installed functions are called on random inputs: every number of ours is theirs within 1e-6 in
float64, losses in value and gradient; or it is a deviation that docs/conformance.md argues for,
and theirs again once what the argument names is undone. Anything else fails. Half a minute on one
core, once the environments are there.
"""

from __future__ import annotations

from pathlib import Path

from shim_peers import run_inside

SIDES = {"verl": "conformance_verl.py", "trl": "conformance_trl.py"}


def main() -> int:
    """Runs both sides; 1 where either finds what it cannot explain."""
    folder = Path(__file__).absolute().parent
    codes = [run_inside(name, str(folder / script)) for name, script in SIDES.items()]
    return max(map(abs, codes))


if __name__ == "__main__":
    raise SystemExit(main())
