"""The MySQL engine: `contents` is its front, `survey` looks, `users`, `databases` and `grants` plan.

`statements` holds the SQL, `claims` the marks, `session` and `pool` the connections, `names` what may be named how.
"""

from .contents import MySQL

__all__ = ["MySQL"]
