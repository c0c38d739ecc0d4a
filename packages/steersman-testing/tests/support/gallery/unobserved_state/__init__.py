"""Bugs of operators that miss intermediate states."""
