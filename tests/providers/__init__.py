"""Tests of `nacre.providers`."""
