"""What runs inside worker processes: the engine, hostile programs, and nothing of the supervisor."""
