"""Changes of typed objects applied to their documents."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from steersman.api.batch_v1 import JobTemplateSpec
from steersman.meta import FrozenDict, FrozenStruct, decode_builtins, to_builtins
from steersman.meta.json_patch import diff
from steersman.webhook.merge import merge_changes
from steersman_testing.apiserver.fields.patches import json_patch


class Port(FrozenStruct):
    name: str
    number: int = 80
    note: str | None = None


class Shop(FrozenStruct):
    replicas: int = 1
    domain: str = ""
    open: bool = True
    main: Port | None = None
    ports: tuple[Port, ...] = ()
    words: tuple[str, ...] = ()
    labels: FrozenDict[str, str] = FrozenDict()


PORTS = st.builds(Port, name=st.sampled_from("abc"), number=st.integers(0, 3), note=st.none() | st.just("n"))
SHOPS = st.builds(
    Shop,
    replicas=st.integers(0, 2),
    domain=st.sampled_from(("", "x")),
    open=st.booleans(),
    main=st.none() | PORTS,
    ports=st.lists(PORTS, max_size=3).map(tuple),
    words=st.lists(st.sampled_from("xyz"), max_size=3).map(tuple),
    labels=st.dictionaries(st.sampled_from("ab"), st.sampled_from("cd")).map(FrozenDict),
)


def with_more(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with unknown fields, as a newer client sends it."""
    result = copy.deepcopy(document)
    result["colour"] = {"deep": 1}
    for port in [*result.get("ports", ()), *([result["main"]] if "main" in result else [])]:
        port["protocol"] = "TCP"
    return result


@given(SHOPS, SHOPS)
def test_merged_document_decodes_to_declared_object(before: Shop, after: Shop) -> None:
    document = with_more(to_builtins(before))
    kept = copy.deepcopy(document)
    result = merge_changes(document, before, after)
    assert document == kept
    assert decode_builtins(result, Shop) == after
    assert result["colour"] == {"deep": 1}
    # The patch has the same result.
    operations = diff(document, result)
    patched = json_patch(copy.deepcopy(document), operations) if operations else document
    assert patched == result


@given(SHOPS)
def test_merge_without_change_has_no_difference(shop: Shop) -> None:
    document = with_more(to_builtins(shop))
    again = decode_builtins(copy.deepcopy(to_builtins(shop)), Shop)
    assert diff(document, merge_changes(document, shop, again)) == []


def test_merge_keeps_unknown_fields_of_items() -> None:
    a, b = Port(name="a"), Port(name="b", number=1)
    document = {"ports": [{"name": "a", "x": 1}, {"name": "b", "number": 1, "y": 2}]}
    before = Shop(ports=(a, b))
    swapped = merge_changes(document, before, Shop(ports=(b, a)))
    assert swapped["ports"] == [document["ports"][1], document["ports"][0]]
    changed = merge_changes(document, before, Shop(ports=(Port(name="b", number=9), Port(name="c"))))
    assert changed["ports"] == [{"name": "b", "number": 9, "y": 2}, {"name": "c"}]
    assert merge_changes(document, before, Shop())["ports"] == []


def test_merge_adds_complete_values() -> None:
    after = Shop(replicas=0, main=Port(name="m"), labels=FrozenDict({"a": "b"}))
    assert merge_changes({}, Shop(), after) == {"replicas": 0, "main": {"name": "m"}, "labels": {"a": "b"}}
    assert merge_changes({"labels": None, "ports": None}, Shop(), after)["labels"] == {"a": "b"}


def test_merge_keeps_required_empty_values() -> None:
    wanted: dict[str, Any] = {"spec": {"backoffLimit": 1, "template": {}}}
    before, after = decode_builtins({}, JobTemplateSpec), decode_builtins(wanted, JobTemplateSpec)
    assert merge_changes({}, before, after) == wanted
    assert merge_changes(wanted, after, after) == wanted


def test_merge_writes_whole_list_if_document_lacks_it() -> None:
    """The document does not contain the default items."""
    before, after = Shop(words=("x", "y")), Shop(words=("x", "z"))
    assert merge_changes({}, before, after) == {"words": ["x", "z"]}
