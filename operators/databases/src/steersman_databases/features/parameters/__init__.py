"""Server parameters and access rules."""
