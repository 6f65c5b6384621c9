"""Offline scoring: rewards on files of any size, as a stream.

The way of a row: `score_files` cuts each file into chunks of about 1 MiB (`chunks`),
which `run` shares out over worker processes. A `worker` reads a chunk's lines, turns them into
samples and rollouts (`samples`, `rollouts`), scores units of some hundred with the composer of
training, and writes lines and records of fixed size into the chunk's `part`, which keeps a journal.
Meanwhile `merge` moves the lines of finished parts into the output, and in the end `summary` reads
their records.
"""
