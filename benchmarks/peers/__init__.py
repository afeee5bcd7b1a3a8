"""Other code modes and gateways, measured beside Nacre in one run."""
