"""The system as a whole, built from a configuration."""
