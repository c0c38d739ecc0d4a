"""Cost of CEL rules in definitions.

The table in ``responses`` has the responses of the real server. Each of its rules is for the items of a list, whose
size makes the rule exceed the budget slightly. So the factor in the error reveals the cost of the rule.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from apiserver_cases.api import GROUP, Api, Json, definition
from apiserver_cases.waiting import create_and_wait

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PLACE = "spec.validation.openAPIV3Schema.properties[spec]."
_RULE = "Forbidden: estimated rule cost exceeds budget by factor of "
_ADVICE = (
    " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings "
    "are declared)"
)


@cache
def _cost_table() -> Any:
    return json.loads((Path(__file__).parent / "responses" / "costs.json").read_text())


async def _cost_errors(api: Api, properties: Json) -> list[list[str]]:
    """Return path and text of each error. All budget errors have the same advice."""
    body = definition("Costly", {"spec": {"type": "object", "properties": properties}}, {})
    response = (await api.call("POST", _DEFINITIONS, body, {"dryRun": "All"})).expect_error(422, "Invalid")
    causes: list[Json] = response.body["details"]["causes"]
    assert all(("budget" in c["message"]) == c["message"].endswith(_ADVICE) for c in causes)
    return sorted([c["field"], c["message"].removesuffix(_ADVICE)] for c in causes)


async def case_rule_costs(api: Api) -> None:
    expected: dict[str, list[Any]] = _cost_table()["rules"]
    properties: Json = {}
    for number, (rule, (times, _)) in enumerate(expected.items()):
        items = {**_cost_table()["self"], "x-kubernetes-validations": [{"rule": rule}]}
        properties[f"p{number}"] = {"type": "array", "maxItems": times, "items": items}
    reported = dict.fromkeys(expected, "")
    for place, text in await _cost_errors(api, properties):
        if text.startswith(_RULE):
            number = re.search(r"properties\[p(\d+)\]", place)
            assert number is not None
            reported[list(expected)[int(number[1])]] = text.removeprefix(_RULE)
    assert reported == {rule: factor for rule, (_, factor) in expected.items()}


async def case_nested_rule_costs(api: Api) -> None:
    table: list[Json] = _cost_table()["schemas"]
    reported: list[list[list[str]]] = [[] for _ in table]
    for place, text in await _cost_errors(api, {f"s{n}": row["schema"] for n, row in enumerate(table)}):
        number = re.match(re.escape(_PLACE) + r"properties\[s(\d+)\]\.(.*)", place)
        # Other definitions show which rules cost most.
        if number is not None and "contributed" not in text:
            reported[int(number[1])].append([number[2], text.removeprefix("Forbidden: ")])
    assert reported == [row["errors"] for row in table]


_NESTED_RULE = "self.all(x, self.exists_one(y, x == y))"


async def case_object_budget(api: Api) -> None:
    items = {"type": "array", "maxItems": 1500, "items": {"type": "integer"}}
    ruled = {**items, "x-kubernetes-validations": [{"rule": _NESTED_RULE, "message": "twice"}]}
    body = definition("Budgeted", {"spec": {"type": "object", "properties": {"items": ruled}}}, {})
    path = await create_and_wait(api, body)
    names: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Budgeted", "metadata": {"name": "a"}}
    few, many = ({**names, "spec": {"items": list(range(count))}} for count in (100, 1500))
    (await api.call("POST", path, few, {"dryRun": "All"})).expect_success()
    rejected = await api.call("POST", path, many, {"dryRun": "All"})
    rejected.expect_error(
        422, "Invalid", "no further validation rules will be run due to call cost exceeds limit for rule: twice"
    )
    (await api.call("DELETE", f"{_DEFINITIONS}/{body['metadata']['name']}")).expect_success()


async def case_total_rule_cost(api: Api) -> None:
    for row in _cost_table()["totals"]:
        reported = [
            [place, text.removeprefix("Forbidden: ")] for place, text in await _cost_errors(api, row["properties"])
        ]
        assert reported == row["errors"]
