"""Commands for imports."""
