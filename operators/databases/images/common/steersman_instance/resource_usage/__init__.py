"""Report of the use of CPU, memory and disk."""
