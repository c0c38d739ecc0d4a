"""Commit messages are checked in the commit-msg hook and in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.check_commit import message_problems

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_commit.py"


@pytest.mark.parametrize(
    "message",
    [
        "cache: relist after 410 Gone\n",
        "docs/how-to,tests: run the examples of each page\n\nThe reason.\n",
        "# A comment of Git.\nclient: retry requests after 429\n# Another comment.\n",
        "Merge branch 'main' into orders\n",
        "fixup! Anything, since autosquash removes it\n",
        "cache: " + "x" * 65,
    ],
)
def test_message_within_the_rules_is_accepted(message: str) -> None:
    assert list(message_problems(message)) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "write 'scope: imperative'"),
        ("Relist after 410 Gone", "write 'scope: imperative'"),
        ("Cache: relist after 410 Gone", "write 'scope: imperative'"),
        ("the cache: relist after 410 Gone", "write 'scope: imperative'"),
        ("cache:relist after 410 Gone", "write 'scope: imperative'"),
        ("cache: relist after 410 Gone.", "remove the final period"),
        ("cache: " + "x" * 66, "73 characters, at most 72"),
        ("cache: relist\nafter 410 Gone", "separate the body"),
    ],
)
def test_message_against_a_rule_is_refused(message: str, problem: str) -> None:
    (found,) = message_problems(message)
    assert problem in found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "Before the range.")
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=orders", "-c", "user.email=orders@example.com")
    subprocess.run(["git", "-C", str(repository), *identity, *arguments], check=True, capture_output=True)


def run(repository: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_range_skips_merge_commits(repository: Path) -> None:
    git(repository, "switch", "--quiet", "--create", "orders")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "cache: relist after 410 Gone")
    git(repository, "switch", "--quiet", "main")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "docs: list the metrics")
    git(repository, "merge", "--quiet", "--no-edit", "--no-ff", "orders")
    assert run(repository, "--range", "HEAD~2..HEAD") == (0, "")


def test_range_names_the_commit(repository: Path) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "Relists")
    code, problems = run(repository, "--range", "HEAD~1..HEAD")
    assert code == 1
    assert "'Relists': write 'scope: imperative'" in problems


def test_message_file_sets_the_exit_code(repository: Path) -> None:
    message = repository / "COMMIT_EDITMSG"
    message.write_text("Relists\n")
    assert run(repository, str(message))[0] == 1
    message.write_text("cache: relist\n")
    assert run(repository, str(message)) == (0, "")
