"""Tests of semantic search are collected only where its extra is installed."""

from importlib.util import find_spec

# Here and not in the folder itself: all its modules import numpy.
collect_ignore = [] if find_spec("numpy") else ["semantic"]
