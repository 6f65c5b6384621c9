"""The subcommands of ``rlgym`` that the rewards bring."""
