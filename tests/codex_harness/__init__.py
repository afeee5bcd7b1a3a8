"""The Codex harness, with the real binary where it matters."""
