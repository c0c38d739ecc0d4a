"""The container's log: each thing once, until there is another to say of it."""

from __future__ import annotations

import sys


class Log:
    """Lines by what they are about."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, about: str, words: str) -> None:
        """Says it, unless it was the last that was said of this."""
        if self._said.get(about) != words:
            self._said[about] = words
            sys.stderr.write(f"steersman-agent: {words}\n")
