"""Tests of hooks, and the calls that they are told about."""
