"""Benchmarks of Nacre, with a target for each figure."""
