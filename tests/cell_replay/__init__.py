"""Tests of `nacre.cell_replay`."""
