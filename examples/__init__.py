"""Programs to read and to run, from the repository's root: `python -m examples.openai_loop`."""
