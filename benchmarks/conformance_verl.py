"""The side of verl: run by conformance.py under verl's own interpreter."""

from __future__ import annotations

import sys

from conformance_ledger import Ledger


def main() -> int:
    """All comparisons with verl; 1 where one is unexplained."""
    from importlib.metadata import version

    import conformance_verl_advantages as advantages
    import conformance_verl_corrections as corrections
    import conformance_verl_losses as losses
    import conformance_verl_terms as terms
    import conformance_verl_weights as weights
    import torch

    torch.set_num_threads(1)
    parts = (advantages, losses, weights, corrections)
    arguments = {name: words for part in parts for name, words in part.ARGUMENTS.items()}
    ledger = Ledger(f"verl {version('verl')}", arguments)
    advantages.compare_advantages(ledger)
    losses.compare_losses(ledger)
    weights.compare_weighed(ledger)
    terms.compare_terms(ledger)
    corrections.compare_corrections(ledger)
    return ledger.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["--inside"]:
        sys.exit("run benchmarks/conformance.py")
    raise SystemExit(main())
