"""Failed operations of a member, for users and for its next decision.

They are in memory only, so a new process tries again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

CERTIFICATE_RELOAD = "taking new certificates"
ACCOUNTS_RESTORE = "restoring the system accounts"
GROUP_MEMBERSHIP = "staying in the group"
_WHILE_SERVING = (CERTIFICATE_RELOAD, ACCOUNTS_RESTORE)  # operations of a healthy member
_MAX_MESSAGE_LENGTH = 300  # characters, because it is part of an annotation and of a condition
# An applier's message ends with the statement, which may contain a password verifier.
_STATEMENT_MARKER = " Query: "
_DIVERGENCE_ERRORS = frozenset(
    {
        *(1007, 1008, 1049),  # a database that exists, or does not
        *(1050, 1051, 1146),  # a table
        *(1054, 1060, 1061, 1091, 1677),  # a column or a key, missing or of another type
        *(1032, 1062, 1451, 1452),  # a row
        1396,  # an account
        *(1034, 1712, 1812, 1813, 1877),  # files that are unreadable, missing, or exist already
    }
)
"""Errors of an applier that imply different data than on the primary.

A copy does not have them. Source: MySQL 9.7 Error Message Reference, "Server Error Message Reference".
"""


@dataclass
class FailureLog:
    """Last failure of each operation until it succeeds.

    A healthy member has none.

    Attributes:
        failed_donors: instances that could not be copied, the latest failure last.
        has_diverged: the group's transactions cannot be applied to its data.
    """

    failed_donors: Sequence[int] = ()
    has_diverged: bool = False
    _messages: dict[str, str] = field(default_factory=dict[str, str])

    def record(self, operation: str, error: object, *, donor: int | None = None) -> None:
        """Record a failed operation.

        Args:
            donor: source of a failed copy.
        """
        message = " ".join(str(error).split()).partition(_STATEMENT_MARKER)[0]
        self._messages[operation] = (
            message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[: _MAX_MESSAGE_LENGTH - 1]}…"
        )
        if donor is not None:
            self.failed_donors = [*(other for other in self.failed_donors if other != donor), donor]

    def record_applier_errors(self, errors: Collection[int]) -> None:
        """Record error numbers that stopped the applier."""
        numbers = " and ".join(map(str, sorted(errors)))
        self.record(GROUP_MEMBERSHIP, f"error {numbers} in what it receives; the server's log says more")
        self.has_diverged = self.has_diverged or not _DIVERGENCE_ERRORS.isdisjoint(errors)

    def clear_applier_errors(self) -> None:
        """Record that the applier runs without errors so far."""
        self.clear(GROUP_MEMBERSHIP)
        self.has_diverged = False

    def clear(self, operation: str) -> None:
        """Record that the operation succeeded."""
        self._messages.pop(operation, None)

    def clear_all(self) -> None:
        """Forget all failures: the member is online and idle."""
        self.failed_donors, self.has_diverged = (), False
        self._messages = {what: message for what, message in self._messages.items() if what in _WHILE_SERVING}

    @property
    def message(self) -> str:
        """All failed operations with their errors, or ""."""
        return "; ".join(f"{operation} failed: {message}" for operation, message in self._messages.items())
