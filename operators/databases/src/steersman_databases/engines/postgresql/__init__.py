"""The PostgreSQL engine: `engine` holds the rules, `session` the connections, `names` what may be named how."""

from .engine import PostgreSQL

__all__ = ["PostgreSQL"]
