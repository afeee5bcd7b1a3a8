"""The commands that run an agent in this process: `nacre run` and `nacre chat`."""
