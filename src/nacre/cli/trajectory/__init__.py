"""The commands of `nacre trajectory`."""
