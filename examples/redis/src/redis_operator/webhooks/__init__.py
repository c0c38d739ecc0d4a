"""What the API server asks about writes."""
