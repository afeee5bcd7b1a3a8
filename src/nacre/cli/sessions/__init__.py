"""The commands of `nacre sessions`."""
