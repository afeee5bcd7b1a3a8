"""What runs inside worker processes: the engine and hostile programs, not the supervisor."""
