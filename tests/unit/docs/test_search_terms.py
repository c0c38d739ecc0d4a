"""Words that readers type into the search of the documentation."""

from __future__ import annotations

import re

import pytest

from framework_support.documented_code import DOCS

HEADINGS = "\n".join(
    heading
    for page in DOCS.rglob("*.md")
    if "decisions" not in page.parts
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
).lower()
FAQ = (DOCS / "faq.md").read_text().lower()


@pytest.mark.parametrize(
    "term",
    [
        *(
            "quick start",
            "high availability",
            "failover",
            "read replica",
            "backup",
            "pitr",
            "monitor",
            "grafana",
            "faq",
        ),
        *("roadmap", "supported versions", "production checklist", "sizing", "gitops"),
    ],
)
def test_term_is_in_a_heading(term: str) -> None:
    assert term in HEADINGS


@pytest.mark.parametrize("term", ["kind,", "ide?"])
def test_term_is_in_the_faq(term: str) -> None:
    assert term in FAQ
