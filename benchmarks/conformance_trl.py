"""The side of TRL: run by conformance.py under TRL's own interpreter."""

from __future__ import annotations

import logging
import sys

from conformance_ledger import Ledger


def main() -> int:
    """All comparisons with TRL; 1 where one is unexplained."""
    from importlib.metadata import version

    import conformance_trl_advantages as advantages
    import conformance_trl_losses as losses
    import torch

    torch.set_num_threads(1)
    # It tells of every completion without a reward, which are meant to be there.
    logging.getLogger("trl").setLevel(logging.ERROR)
    ledger = Ledger(f"trl {version('trl')}", losses.ARGUMENTS)
    losses.compare_losses(ledger)
    advantages.compare_advantages(ledger)
    return ledger.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["--inside"]:
        sys.exit("run benchmarks/conformance.py")
    raise SystemExit(main())
