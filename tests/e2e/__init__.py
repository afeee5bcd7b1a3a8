"""A gateway process, a scripted model behind it over HTTP, and clients in front of it."""
