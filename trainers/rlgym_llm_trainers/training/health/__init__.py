"""Rules over the metrics of a run's last steps, that name what looks wrong and the key to turn."""
