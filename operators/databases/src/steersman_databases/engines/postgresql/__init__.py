"""The PostgreSQL engine: `contents` is its front, `survey` looks, `roles`, `databases`, `inside` and `grants` plan.

`statements` holds the SQL, `session` and `pool` the connections, `names` what may be named how.
"""

from .contents import PostgreSQL

__all__ = ["PostgreSQL"]
