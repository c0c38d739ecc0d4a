"""What a member tried in vain, for people and for its next choice. In memory alone: another process tries anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

CERTIFICATES = "taking new certificates"
MEMBERSHIP = "staying in the group"
_LONGEST = 300  # characters: it stands in an annotation and in a condition
# An applier's words end with the statement, in which there may be a password's verifier.
_STATEMENT = " Query: "


@dataclass
class Failures:
    """Each thing with the words of its last failure, until it succeeds or all is well.

    `donors` are the instances of which no copy could be had, who failed last at the end.
    """

    donors: Sequence[int] = ()
    _words: dict[str, str] = field(default_factory=dict[str, str])

    def failed(self, what: str, words: object, *, donor: int | None = None) -> None:
        """`what` was tried, and `words` came of it; `donor` is whom it was tried with, where it is a copy."""
        said = " ".join(str(words).split()).partition(_STATEMENT)[0]
        self._words[what] = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
        if donor is not None:
            self.donors = [*(other for other in self.donors if other != donor), donor]

    def succeeded(self, what: str) -> None:
        """`what` was done."""
        self._words.pop(what, None)

    def all_is_well(self) -> None:
        """It is online and has nothing to do: what went wrong on the way is of no interest any more."""
        self.donors = ()
        self._words = {what: words for what, words in self._words.items() if what == CERTIFICATES}

    @property
    def words(self) -> str:
        """All that has failed and why; empty where nothing has."""
        return "; ".join(f"{what} failed: {words}" for what, words in self._words.items())
