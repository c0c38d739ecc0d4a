"""Bugs after which the state differs from the declared one."""
