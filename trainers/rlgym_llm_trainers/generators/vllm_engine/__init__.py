"""vLLM as a generator: in this process, or in a worker's. Importing this does not import it."""
