"""What a member tried in vain, for people and for its next choice. In memory alone: another process tries anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

CERTIFICATES = "taking new certificates"
MEMBERSHIP = "staying in the group"
_LONGEST = 300  # characters: it stands in an annotation and in a condition
# An applier's words end with the statement, in which there may be a password's verifier.
_STATEMENT = " Query: "
_NOT_ALIKE = frozenset(
    {
        *(1007, 1008, 1049),  # a database that is there, or is not
        *(1050, 1051, 1146),  # a table
        *(1054, 1060, 1061, 1091, 1677),  # a column or a key, or one of another type
        *(1032, 1062, 1451, 1452),  # a row
        1396,  # an account
        *(1034, 1712, 1812, 1813, 1877),  # files that cannot be read, are missing, or are there already
    }
)
"""Errors in applying that say that the data are others than where it was executed first: a copy has none of them.

Source: MySQL 9.7 Error Message Reference, "Server Error Message Reference".
"""


@dataclass
class Failures:
    """Each thing with the words of its last failure, until it succeeds or all is well.

    `donors` are the instances of which no copy could be had, who failed last at the end. `diverged`: what the group
    has cannot be applied to its data.
    """

    donors: Sequence[int] = ()
    diverged: bool = False
    _words: dict[str, str] = field(default_factory=dict[str, str])

    def failed(self, what: str, words: object, *, donor: int | None = None) -> None:
        """`what` was tried, and `words` came of it; `donor` is whom it was tried with, where it is a copy."""
        said = " ".join(str(words).split()).partition(_STATEMENT)[0]
        self._words[what] = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
        if donor is not None:
            self.donors = [*(other for other in self.donors if other != donor), donor]

    def not_applied(self, errors: Collection[int]) -> None:
        """These are the numbers of what ended the applying of what the group has."""
        numbers = " and ".join(map(str, sorted(errors)))
        self.failed(MEMBERSHIP, f"error {numbers} in what it receives; the server's log says more")
        self.diverged = self.diverged or not _NOT_ALIKE.isdisjoint(errors)

    def applies(self) -> None:
        """What the group has is being applied, and nothing has come of it yet that ended that."""
        self.succeeded(MEMBERSHIP)
        self.diverged = False

    def succeeded(self, what: str) -> None:
        """`what` was done."""
        self._words.pop(what, None)

    def all_is_well(self) -> None:
        """It is online and has nothing to do: what went wrong on the way is of no interest any more."""
        self.donors, self.diverged = (), False
        self._words = {what: words for what, words in self._words.items() if what == CERTIFICATES}

    @property
    def words(self) -> str:
        """All that has failed and why; empty where nothing has."""
        return "; ".join(f"{what} failed: {words}" for what, words in self._words.items())
