"""Offline scoring: rewards on files of any size, as a stream.

    command -> score_files: file -> Chunk (about 1 MiB of lines) -> worker, one of several processes
                                                                        |
        Unit (rows scored in one call) -> composer -> cards -> lines and fixed-size records
                                                                        |
    summary <- records of all parts <- Part (what came of a chunk, with a journal) -> output
"""
