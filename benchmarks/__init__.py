"""What Nacre costs, and how far that is from what it has to reach."""
