"""Tests of the agent: turns, sessions, steering, aborts."""
