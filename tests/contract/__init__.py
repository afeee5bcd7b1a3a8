"""What the contract promises, and which tests hold it to that."""
