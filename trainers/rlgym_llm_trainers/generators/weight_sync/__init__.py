"""New weights from the learner to generators: gathered, carried over, taken in, and checked."""
