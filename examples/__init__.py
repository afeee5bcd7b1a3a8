"""Examples; run them from the root of the repository: `python -m examples.openai_loop`."""
