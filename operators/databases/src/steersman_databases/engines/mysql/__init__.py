"""The MySQL engine: `engine` holds the rules, `session` the connections, `names` what may be named how."""

from .engine import MySQL

__all__ = ["MySQL"]
