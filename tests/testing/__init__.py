"""Tests of `nacre.testing`."""
