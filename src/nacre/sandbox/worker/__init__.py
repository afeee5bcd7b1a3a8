"""The code of a worker process: the engine that runs untrusted programs."""
