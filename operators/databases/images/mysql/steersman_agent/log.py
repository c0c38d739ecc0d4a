"""Log of the container without repeated lines."""

from __future__ import annotations

import sys


class DeduplicatedLog:
    """Last line of each topic."""

    def __init__(self) -> None:
        self._last_messages: dict[str, str] = {}

    def log(self, topic: str, message: str) -> None:
        """Write a line unless it repeats the topic's last one."""
        if self._last_messages.get(topic) != message:
            self._last_messages[topic] = message
            sys.stderr.write(f"steersman-agent: {message}\n")
