"""What Nacre costs: measures, each in a process of its own, and how far they are from their reach."""
