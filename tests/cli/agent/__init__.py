"""Tests of the commands that run an agent."""
