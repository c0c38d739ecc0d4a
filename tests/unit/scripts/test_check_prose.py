"""Each rule of ``scripts/check_prose.py`` finds its example and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
from scripts.check_prose import findings, prose, sentences

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_prose.py"
THIRTEEN = "Return the name, the kind, the namespace and the uid of the given owner"
LONG = "Widgets " + "and orders " * 13
TOO_LONG = "Widgets " + "and orders " * 18


def check(path: str, text: str) -> list[str]:
    found = (finding for part in prose(PurePosixPath(path), text) for finding in findings(part))
    return [f"{line}: {message}" for line, message in sorted(found)]


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("a.py", '"""What a widget is."""', "1: docstring starts with What"),
        ("a.py", 'class A:\n    x = 1\n    """Whether it is ready."""', "3: docstring starts with Whether"),
        ("a.py", f'def f():\n    """{THIRTEEN}."""', "2: summary has 14 words"),
        ("a.py", f'"""A widget.\n\n{TOO_LONG}.\n"""', "3: sentence has 37 words"),
        ("a.py", '"""A widget.\n\nArgs:\n    name: The name\n        that the server is told.\n"""', "5: told"),
        ("a.py", "x = 1\n# Servers are\n# told.", "3: told"),
        ("a.py", 'app.option(help="Whoever writes")', "1: Whoever"),
        ("a.py", 'log.info("watch goes on", kind="Widget")', "1: goes on"),
        ("a.py", 'Condition(message=f"{name} is no Widget")', "1: is no: write is not a"),
        ("a.py", 'raise ValueError(f"{name} " "was made anew")', "1: anew"),
        ("docs/a.md", "Orders.\n\nThe server\nis asked.", "3: server is asked"),
        ("docs/a.md", "- The list.\n- What was deleted is listed.", "2: What was …"),
        ("docs/a.md", "| a | the former leader |\n| --- | --- |", "1: former"),
        ("docs/a.md", "Ten unless\ntold otherwise.", "1: unless told"),
        ("a.md.jinja", "{{ kind }} is kept for good.", "1: for good"),
        ("a.py.jinja", '{% if x %}\n"""How it is."""', "2: docstring starts with How"),
        ("a.yaml.jinja", "kind: Widget\n# Nobody reads {{ kind }}.", "2: Nobody"),
        ("changelog.d/1.fixed.md", "Widgets. " * 41, "1: fragment has 41 words"),
    ],
)
def test_prose_against_a_rule_is_found(path: str, text: str, finding: str) -> None:
    assert any(found.startswith(finding) for found in check(path, text)), check(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", '"""Return True if the widget is ready."""'),
        ("a.py", '"""Return ``the name, the kind, the namespace, the uid, the labels`` of the given owner."""'),
        ("a.py", f'"""A widget.\n\n{LONG}. {LONG}.\n"""'),
        ("a.py", '"""A widget.\n\nExample:\n    tell(somebody, news)\n\nDefaults to 1.\n"""'),
        ("a.py", "# A ``told`` flag.\ntold = anew(beside)  # noqa: told"),
        ("a.py", 'told = {"whoever goes": "is no key"}\nlog.info("watch resumed", told=news)'),
        ("a.py", 'raise ValueError("told")'),
        ("docs/a.md", "```py\ntell(somebody)\n```\n\nSee [the guide](told.md) or `anew`."),
        ("docs/a.md", "| a | `told` |\n| --- | --- |\n| the leader | is no longer Ready |"),
        ("docs/a.md", "## What is cached\n\nThere is no leader. What is a Lease?"),
        ("a.py.jinja", '{# told #}\n"""Return the {{ kind }}."""'),
        ("changelog.d/1.fixed.md", "Widgets. " * 40),
    ],
)
def test_prose_within_the_rules_is_accepted(path: str, text: str) -> None:
    assert check(path, text) == []


def test_sentences_keep_their_lines() -> None:
    lines = [(7, "A pod, e.g. `a.`"), (8, "or two. The next"), (9, "one.")]
    assert [(s.line, s.words) for s in sentences(lines)] == [(7, 6), (8, 3)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty repository."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for directory in ("docs", "operators/databases/tests"):
        (tmp_path / directory).mkdir(parents=True)
    return tmp_path


def run(tree: Path, *arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_share_of_long_sentences_is_limited_per_area(tree: Path) -> None:
    (tree / "docs" / "a.md").write_text(f"{LONG}.\n\n" * 2 + "A widget. " * 37)
    (tree / "README.md").write_text(f"{LONG}.\n\n" * 2 + "A widget. " * 38)
    code, lines = run(tree)
    assert code == 1
    assert lines == [
        ".: 0 findings; 5.0 % of 40 sentences have more than 25 words",
        "docs/a.md:1: sentence has 27 words, too many of docs have more than 25",
        "docs/a.md:3: sentence has 27 words, too many of docs have more than 25",
        "docs: 1 findings; 5.1 % of 39 sentences have more than 25 words, at most 5 % are allowed",
        "1 findings",
    ]


def test_paths_and_exemptions_choose_the_files(tree: Path) -> None:
    for name in ("docs/a.md", "README.md", "operators/databases/tests/README.md"):
        (tree / name).write_text("Nobody.\n")
    assert run(tree, "docs")[1][0].startswith("docs/a.md:1: Nobody")
    assert run(tree, "operators") == (0, ["0 findings"])
    assert run(tree, "operators", "--exempt")[0] == 1
    assert run(tree)[1][-1] == "2 findings"
