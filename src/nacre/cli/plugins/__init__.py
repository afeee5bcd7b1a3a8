"""The commands of `nacre plugins`."""
