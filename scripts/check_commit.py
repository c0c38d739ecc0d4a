"""Check the subjects of commits: ``scope: imperative``, at most 72 characters.

``check_commit.py FILE`` checks a commit message, as Git passes it to the commit-msg hook. ``check_commit.py --range
A..B`` checks the commits of a range. Merge commits are skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUBJECT_CHARACTERS = 72

_SUBJECT = re.compile(r"[a-z0-9][a-z0-9/_.,-]*: \S.*")
_MERGE = re.compile(r"Merge (?:branch|commit|pull request|remote-tracking branch|tag)\b")
# `git rebase --autosquash` removes these commits before they are pushed.
_AUTOSQUASH = re.compile(r"(?:fixup|squash|amend)! ")


def problems(subject: str) -> Iterator[str]:
    """Yield the problems of a subject."""
    if not _SUBJECT.fullmatch(subject):
        yield "write 'scope: imperative', such as 'cache: relist after 410 Gone'"
    if len(subject) > SUBJECT_CHARACTERS:
        yield f"{len(subject)} characters, at most {SUBJECT_CHARACTERS} are allowed; explain the reason in the body"
    if subject.endswith("."):
        yield "remove the final period"


def message_problems(message: str) -> Iterator[str]:
    """Yield the problems of a message from an editor."""
    lines = [line for line in message.strip().splitlines() if not line.startswith("#")]
    subject = lines[0].rstrip() if lines else ""
    if _MERGE.match(subject) or _AUTOSQUASH.match(subject):
        return
    yield from (f"{subject!r}: {problem}" for problem in problems(subject))
    if lines[1:] and lines[1].strip():
        yield f"{subject!r}: separate the body from the subject by an empty line"


def range_problems(commits: str) -> Iterator[str]:
    """Yield the problems of the commits in ``A..B``."""
    command = ["git", "log", "--no-merges", "--reverse", "--format=%h %s", commits, "--"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        commit, _, subject = line.partition(" ")
        yield from (f"{commit} {subject!r}: {problem}" for problem in problems(subject))


def main() -> None:
    """Check a message file or a range."""
    match sys.argv[1:]:
        case ["--range", commits]:
            found = list(range_problems(commits))
        case [file]:
            found = list(message_problems(Path(file).read_text(encoding="utf-8")))
        case _:
            sys.exit("usage: check_commit.py FILE | --range A..B")
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
