"""Tables of expressions, definitions and values with their results.

The tables in ``responses`` have the responses of the real server. Generated names of types are masked in them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from apiserver_cases.api import GROUP, Api, ApiResponse, Json, definition
from apiserver_cases.waiting import create_and_wait

_RESPONSES = Path(__file__).parent / "responses"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OBJECT = 'Invalid value: "object": '


@cache
def _response_table(name: str) -> Any:
    return json.loads((_RESPONSES / f"{name}.json").read_text())


def _error_texts(response: ApiResponse) -> list[list[str]]:
    """Return path and text of each error."""
    details: Json = response.body.get("details") or {}
    found: list[Json] = details.get("causes") or []
    return [[c.get("field", ""), re.sub(r"selfType\d+", "selfType", c.get("message", ""))] for c in found]


def _ruled(kind: str, rules: list[Json]) -> Json:
    return definition(
        kind, {"spec": {**_response_table("expressions")["schema"], "x-kubernetes-validations": rules}}, {}
    )


async def _rule_errors(api: Api, kind: str, rules: list[Json]) -> list[str]:
    """Return the errors of the rules for the object of the table."""
    definition = _ruled(kind, rules)
    path = await create_and_wait(api, definition)
    spec = _response_table("expressions")["object"]
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    reply = await api.call("POST", path, body, {"dryRun": "All"})
    (await api.call("DELETE", f"{_DEFINITIONS}/{definition['metadata']['name']}")).expect_success()
    return [text for _, text in _error_texts(reply)]


async def case_expression_results(api: Api) -> None:
    for part, expected in enumerate(_response_table("expressions")["evaluated"]):
        rules = [{"rule": rule, "message": f"#{n}#"} for n, rule in enumerate(expected)]
        outcomes = dict.fromkeys(expected, "true")
        for text in await _rule_errors(api, f"Evaluated{part}", rules):
            reported = text.removeprefix(_OBJECT).removeprefix("Invalid value: ")
            number = re.search(r"#(\d+)#$", reported)
            assert number is not None, text
            because = re.sub(r"( evaluating rule:| for rule:)? ?#\d+#$", "", reported)
            outcomes[list(expected)[int(number[1])]] = because or "false"
        assert outcomes == expected


async def case_expression_strings(api: Api) -> None:
    for part, expected in enumerate(_response_table("expressions")["texts"]):
        rules = [
            {"rule": f"({text}).size() < 0", "messageExpression": text, "message": f"#{n}#"}
            for n, text in enumerate(expected)
        ]
        reported = await _rule_errors(api, f"Text{part}", rules)
        created = [re.sub(r" evaluating rule: #\d+#$", "", t.removeprefix(_OBJECT)) for t in reported]
        assert [t.removeprefix("Invalid value: ") for t in created] == list(expected.values())


async def case_expression_errors(api: Api) -> None:
    expected: dict[str, str] = _response_table("expressions")["refused"]
    rules = [{"rule": rule} for rule in expected]
    rejected = await api.call("POST", _DEFINITIONS, _ruled("Refused", rules), {"dryRun": "All"})
    rejected.expect_error(422, "Invalid")
    outcomes: dict[str, list[str]] = {rule: [] for rule in expected}
    for place, text in _error_texts(rejected):
        position = re.search(r"validations\[(\d+)\]\.rule$", place)
        assert position is not None, place
        reported = re.sub(r"^Invalid value: \{.*?\}: (compilation failed: )?", "", text)
        outcomes[list(expected)[int(position[1])]].append(reported)
    assert {rule: "\n".join(reported) for rule, reported in outcomes.items()} == expected


async def case_definition_errors(api: Api) -> None:
    for row in _response_table("definitions"):
        spec = {"type": "object", "properties": {"x": row["schema"]}}
        body = definition("Probe", {"spec": spec}, {})
        reply = await api.call("POST", _DEFINITIONS, body, {"dryRun": "All"})
        assert sorted(_error_texts(reply)) == row["errors"], row["schema"]


async def case_value_errors(api: Api) -> None:
    table = _response_table("values")
    properties = {f"p{n}": row["schema"] for n, row in enumerate(table)}
    body = definition("Valued", {"spec": {"type": "object", "properties": properties}}, {})
    path = await create_and_wait(api, body)
    for number, row in enumerate(table):
        place = f"p{number}"
        for case in row["values"]:
            spec = {place: case["value"]}
            obj = {"apiVersion": f"{GROUP}/v1", "kind": "Valued", "metadata": {"name": "a"}, "spec": spec}
            errors = _error_texts(await api.call("POST", path, obj, {"dryRun": "All"}))
            reported = sorted([part.replace(f"spec.{place}", "spec.p") for part in error] for error in errors)
            assert reported == case["errors"], (row["schema"], case["value"])
    (await api.call("DELETE", f"{_DEFINITIONS}/{body['metadata']['name']}")).expect_success()


async def case_rule_violations(api: Api) -> None:
    body = definition("Changed", {"spec": _response_table("transitions")["schema"]}, {})
    path = await create_and_wait(api, body)
    for number, steps in enumerate(_response_table("transitions")["sequences"]):
        name, merge = f"c{number}", "application/merge-patch+json"
        first: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Changed", "metadata": {"name": name}}
        for position, step in enumerate(steps):
            if position == 0:
                reply = await api.call("POST", path, {**first, "spec": step["spec"]})
            else:
                reply = await api.call("PATCH", f"{path}/{name}", {"spec": step["spec"]}, {}, merge)
            assert (reply.code, sorted(_error_texts(reply))) == (step["code"], step["errors"]), step["spec"]
    (await api.call("DELETE", f"{_DEFINITIONS}/{body['metadata']['name']}")).expect_success()


def _owned_crd() -> Json:
    status = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return definition("Owned", {"spec": _response_table("applies")["schema"], "status": status}, {"status": {}})


CRD = _owned_crd()


async def case_ownership_after_writes(api: Api) -> None:
    for number, steps in enumerate(_response_table("applies")["sequences"]):
        for step in steps:
            reply = await _run_step(api, f"o{number}", step)
            assert reply.code == step["code"], (step, reply.body)


async def _run_step(api: Api, name: str, step: Json) -> ApiResponse:
    """Send one write. A merge patch or a PUT of a missing object creates it."""
    path, query = f"{api.path('owneds', name)}", {"fieldManager": step["manager"]}
    if "subresource" in step:
        path += f"/{step['subresource']}"
    body: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Owned", **step["body"]}
    body["metadata"] = {"name": name, **body.get("metadata", {})}
    if step["verb"] == "apply":
        query["force"] = str(step.get("force", False)).lower()
        return await api.call("PATCH", path, body, query, "application/apply-patch+yaml")
    found = await api.call("GET", path)
    if found.code == 404:
        return await api.call("POST", api.path("owneds"), body, query)
    if step["verb"] == "merge":
        return await api.call("PATCH", path, step["body"], query, "application/merge-patch+json")
    return await api.call("PUT", path, {**body, "metadata": found.metadata}, query)
