"""The core's subcommands of ``rlgym``, one a file: each has ``main(argv) -> int``."""
