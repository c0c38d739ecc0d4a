"""What a member has and its group has not, as far as it knows: nobody may give that up but a person."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .decision import View


class Apart:
    """Kept in `file` on the volume: a server that does not start cannot be asked any more.

    `errant` is what the group surely has not. Without being sure, too, the member is apart.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.errant = ""
        self.holds = file.exists()

    def learn(self, view: View) -> None:
        """From what was seen just now."""
        if view.group is not None:
            self.errant = str(view.errant)
            self._keep(str(view.unknown))
        elif view.me.state == "Online":
            self.forget()

    def forget(self) -> None:
        """It has the group's data alone."""
        self.errant = ""
        self._keep("")

    def _keep(self, unknown: str) -> None:
        if self.holds != bool(unknown):
            # A full volume keeps nothing: then it is known for as long as this process lives.
            with contextlib.suppress(OSError):
                self._file.write_text(f"{unknown}\n") if unknown else self._file.unlink(missing_ok=True)
        self.holds = bool(unknown)
