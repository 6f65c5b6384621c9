"""Mathematics: rewards to advantages, log-probs to losses; no model, nothing that runs."""
