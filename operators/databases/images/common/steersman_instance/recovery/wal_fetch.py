"""The ``restore_command`` of a replay, and why it failed.

PostgreSQL takes every failure up to exit code 125 for the end of the archive, and a damaged record for the end of
WAL. So the command ends with 255 where the archive cannot be read, and compares each segment with its checksum:
pgBackRest appends the SHA-1 of a segment to its name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """A file that could not be fetched.

    Args:
        code: exit code of pgBackRest; 0 where the file differs from its checksum.
    """

    name: str
    code: int

    @property
    def sentence(self) -> str:
        """The failure for users."""
        problem = f"cannot be read: pgBackRest ended with code {self.code}" if self.code else "is damaged"
        return f"WAL segment {self.name} of the archive {problem}."


class WalFetch:
    """Fetches WAL from an archive during a replay.

    Args:
        directory: of the server's pod, lost with it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._checksums, self._failure = directory / "wal-checksums", directory / "wal-failure"

    def expect(self, paths: Iterable[str]) -> None:
        """Remember the checksums of archived segments. Segments that are archived later are not compared."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = (path.rpartition("/")[2].partition(".")[0] for path in paths)
        self._checksums.write_text("".join(f"{name.replace('-', ' ')}\n" for name in names))

    def command(self, archive_get: str) -> str:
        """Return ``restore_command``.

        Args:
            archive_get: the command of pgBackRest, without its arguments.
        """
        checksums, failure = shlex.quote(str(self._checksums)), shlex.quote(str(self._failure))
        return (
            f'{archive_get} "%f" "%p"; code=$?; '
            f'[ $code -le 1 ] || {{ echo "%f $code" > {failure}; exit 255; }}; [ $code = 0 ] || exit 1; '
            f'if [ -s {checksums} ] && grep -q "^%f " {checksums}; then set -- $(sha1sum < "%p"); '
            f'grep -qx "%f $1" {checksums} || {{ echo "%f 0" > {failure}; exit 255; }}; fi'
        )

    def failure(self) -> FetchFailure | None:
        """Return the file that could not be fetched, or None."""
        try:
            name, code = self._failure.read_text().split()
        except (OSError, ValueError):
            return None
        return FetchFailure(name, int(code))
