"""What the operator does."""
