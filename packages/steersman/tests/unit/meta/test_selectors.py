"""Selectors in the client.

The cases of the in-memory API server compare them with the real one.
"""

from __future__ import annotations

import pytest

from steersman.meta.selectors import SelectorError, label_matcher, matches_fields, parse_field_selector

LABELS = {"app": "web", "tier": "2", "example.com/on": ""}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("app=web", True),
        ("app == web , tier=2", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (web, api)", True),
        ("app in (api)", False),
        ("app notin (web)", False),
        ("other notin (web)", True),
        ("app in (api,web),tier>1", True),
        ("tier<2", False),
        ("app>1", False),
        ("other>1", False),
        ("example.com/on", True),
        ("!example.com/on", False),
        ("!other", True),
        ("example.com/on=", True),
    ],
)
def test_labels(selector: str, fits: bool) -> None:
    assert label_matcher(selector)(LABELS) is fits


@pytest.mark.parametrize("selector", ["a b", "app in web", "=x", "a=b,,c=d", "app in (a"])
def test_label_selector_invalid_raises(selector: str) -> None:
    with pytest.raises(SelectorError, match="unable to parse requirement"):
        label_matcher(selector)


OBJECT = {"metadata": {"name": "a", "namespace": "orders"}, "spec": {"on": True}, "status": {"n": 3, "text": "x,y=z"}}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name!=a", False),
        ("metadata.name=a,metadata.namespace==lake", False),
        ("spec.on=true", True),
        ("status.n=3", True),
        ("status.none=", True),
        ("status.none.deeper!=x", True),
        (r"status.text=x\,y\=z,status.n=3", True),
        ("spec.hostNetwork=false", True),
        ("status.successful=0", True),
    ],
)
def test_fields(selector: str, fits: bool) -> None:
    assert matches_fields(parse_field_selector(selector), OBJECT) is fits


def test_field_selector_invalid_raises() -> None:
    with pytest.raises(SelectorError, match=r"can't understand 'metadata\.name'"):
        parse_field_selector("metadata.name")
