"""CEL rules of custom resources."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import GROUP, Api, ApiResponse, Json, definition

_TEXT: Json = {"type": "string", "maxLength": 9}
_NUMBER: Json = {"type": "integer"}


def _rule(rule: str, message: str = "", **more: Any) -> Json:
    return {"rule": rule, **({"message": message} if message else {}), **more}


def _with_rules(schema: Json, *rules: Json) -> Json:
    return {**schema, "x-kubernetes-validations": list(rules)}


_PART = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _TEXT, "weight": _with_rules(_NUMBER, _rule("self >= oldSelf", "weight only grows"))},
}
_EMBEDDED: Json = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
_SPEC = _with_rules(
    {
        "type": "object",
        "properties": {
            "min": {**_NUMBER, "default": 1},
            "max": {**_NUMBER, "default": 10},
            "secret": _TEXT,
            "kind": _with_rules(_TEXT, _rule("self == oldSelf", "kind is immutable")),
            "ratio": _with_rules({"type": "number"}, _rule("self > 0.5 || self == 0.0")),
            "when": _with_rules(
                {"type": "string", "format": "date-time"},
                _rule("self > timestamp('2020-01-01T00:00:00Z')", "too early"),
            ),
            "period": _with_rules(
                {"type": "string", "format": "duration"}, _rule("self < duration('5m')", "too long")
            ),
            "tags": {
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "set",
                "items": _with_rules(_TEXT, _rule("self.startsWith('t')", "tags begin with t")),
            },
            "numbers": _with_rules(
                {"type": "array", "maxItems": 5, "items": _NUMBER},
                _rule("self.sum() < 10 && self.isSorted()", "small and sorted"),
            ),
            "parts": {
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": _PART,
            },
            "labels": _with_rules(
                {"type": "object", "maxProperties": 4, "additionalProperties": _TEXT},
                _rule("self.all(k, k.size() < 4)", "short keys"),
            ),
            "namespace": _TEXT,
            "a-b": _TEXT,
            "once": _with_rules(
                _TEXT,
                _rule("oldSelf.orValue('') == '' || oldSelf.value() == self", "set once", optionalOldSelf=True),
            ),
            "port": _with_rules(
                {"x-kubernetes-int-or-string": True},
                _rule("type(self) == int ? self > 0 : self != ''", "a port or its name"),
            ),
            "divisor": _with_rules(_NUMBER, _rule("100 / self > 0")),
            "note": {**_TEXT, "nullable": True},
            "objects": _with_rules(
                {"type": "array", "maxItems": 2, "items": _EMBEDDED},
                _rule("self.all(o, o.kind == 'Pod' && o.metadata.name.startsWith('p'))", "pods alone"),
            ),
            "named": _with_rules(
                {"type": "object", "maxProperties": 2, "additionalProperties": _EMBEDDED},
                _rule("self.all(n, self[n].metadata.name == n)", "each by its name"),
            ),
            "size": _with_rules(_TEXT, _rule("quantity(self).isGreaterThan(quantity('1Gi'))", "too small")),
        },
    },
    _rule("self.min <= self.max", "min must not exceed max"),
    _rule("!has(self.secret) || self.secret != 'x'"),
    _rule("has(self.kind) == has(oldSelf.kind)", "kind cannot be added or removed", fieldPath=".kind"),
    _rule(
        "self.min < 50",
        messageExpression="'min is ' + (self.min > 55 ? 'high' : 'low')",
        reason="FieldValueForbidden",
    ),
    _rule("self.min != 13", "unlucky", reason="FieldValueRequired", fieldPath=".min"),
    _rule("self.min != 14", "taken", reason="FieldValueDuplicate"),
    _rule("!has(self.__namespace__) || self.__namespace__ != 'bad'", "bad namespace"),
    _rule("!has(self.a__dash__b) || self.a__dash__b != 'bad'", "bad a-b"),
    _rule("!has(self.note) || self.note != 'bad'", "bad note"),
)
_STATUS = _with_rules(
    {"type": "object", "properties": {"n": _NUMBER}}, _rule("!has(oldSelf.n) || self.n >= oldSelf.n", "n grows")
)
CRD = definition("Ruled", {"spec": _SPEC, "status": _STATUS}, {"status": {}})
CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [
    _rule("self.metadata.name.size() < 9", "name too long"),
    _rule("!has(self.status) || self.status.n < 5", "n is less than 5"),
]


def _body(name: str, spec: Json) -> Json:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Ruled", "metadata": {"name": name}, "spec": spec}


def _expect_invalid(response: ApiResponse, text: str, *causes: tuple[str, str]) -> None:
    response.expect_error(422, "Invalid")
    name = response.body["details"]["name"]
    assert response.message == f'Ruled.{GROUP} "{name}" is invalid: {text}'
    if causes:
        assert response.causes() == list(causes)


async def case_valid_objects_are_accepted(api: Api) -> None:
    for spec in (
        {},
        {"ratio": 1},
        {"ratio": 0},
        {"when": "2022-01-01T00:00:00Z", "period": "1m"},
        {"tags": ["t", "ta"], "numbers": [1, 2], "labels": {"abc": "x"}},
        {"once": "x", "port": "a", "divisor": 1, "note": None, "size": "2Gi"},
    ):
        (await api.create("ruleds", _body("a", spec), dryRun="All")).expect_success()


async def case_violations_are_rejected(api: Api) -> None:
    broken: list[tuple[Json, str]] = [
        ({"min": 11}, "spec: Invalid value: min must not exceed max"),
        ({"secret": "x"}, "spec: Invalid value: failed rule: !has(self.secret) || self.secret != 'x'"),
        ({"min": 60, "max": 70}, "spec: Forbidden: min is high"),
        ({"min": 13, "max": 20}, "spec.min: Required value: unlucky"),
        ({"min": 14, "max": 20}, "spec: Duplicate value"),
        ({"min": 60, "max": 7}, "[spec: Invalid value: min must not exceed max, spec: Forbidden: min is high]"),
        ({"ratio": 0.2}, "spec.ratio: Invalid value: 0.2: failed rule: self > 0.5 || self == 0.0"),
        ({"when": "2019-01-01T00:00:00Z"}, 'spec.when: Invalid value: "2019-01-01T00:00:00Z": too early'),
        ({"period": "10m"}, 'spec.period: Invalid value: "10m": too long'),
        ({"tags": ["ta", "b"]}, 'spec.tags[1]: Invalid value: "b": tags begin with t'),
        ({"numbers": [3, 2]}, "spec.numbers: Invalid value: small and sorted"),
        ({"labels": {"abcd": "x"}}, "spec.labels: Invalid value: short keys"),
        ({"namespace": "bad"}, "spec: Invalid value: bad namespace"),
        ({"a-b": "bad"}, "spec: Invalid value: bad a-b"),
        ({"note": "bad"}, "spec: Invalid value: bad note"),
        ({"port": 0}, "spec.port: Invalid value: 0: a port or its name"),
        ({"port": ""}, 'spec.port: Invalid value: "": a port or its name'),
        (
            {"divisor": 0},
            'spec.divisor: Invalid value: "integer": division by zero evaluating rule: 100 / self > 0',
        ),
        ({"size": "1Gi"}, 'spec.size: Invalid value: "1Gi": too small'),
    ]
    for spec, text in broken:
        _expect_invalid(await api.create("ruleds", _body("a", spec)), text)


async def case_rules_of_the_whole_object_see_its_name(api: Api) -> None:
    rejected = await api.create("ruleds", _body("abcdefghi", {}))
    _expect_invalid(rejected, "<nil>: Invalid value: name too long", ("<nil>", "FieldValueInvalid"))


async def case_rules_wait_for_a_valid_object(api: Api) -> None:
    rejected = await api.create("ruleds", _body("a", {"min": "x", "max": 1}))
    assert rejected.causes() == [("spec.min", "FieldValueTypeInvalid"), ("<nil>", "FieldValueInvalid")]
    assert "some validation rules were not checked because the object was invalid" in rejected.message


async def case_transition_rules_are_evaluated(api: Api) -> None:
    spec = {"kind": "k", "once": "o", "parts": [{"name": "p", "weight": 5}]}
    (await api.create("ruleds", _body("a", spec))).expect_success()
    broken: list[tuple[Json, str]] = [
        ({"kind": "z"}, 'spec.kind: Invalid value: "z": kind is immutable'),
        ({"kind": None}, "spec.kind: Invalid value: kind cannot be added or removed"),
        ({"once": "p"}, 'spec.once: Invalid value: "p": set once'),
        ({"parts": [{"name": "p", "weight": 4}]}, "spec.parts[0].weight: Invalid value: 4: weight only grows"),
    ]
    for patch, text in broken:
        _expect_invalid(await api.merge("ruleds", "a", {"spec": patch}), text)
    for patch in ({"once": None}, {"parts": [{"name": "q", "weight": 4}]}, {"parts": [{"name": "q", "weight": 6}]}):
        (await api.merge("ruleds", "a", {"spec": patch})).expect_success()


async def case_status_write_evaluates_all_rules(api: Api) -> None:
    (await api.create("ruleds", _body("a", {}))).expect_success()
    (await api.merge("ruleds", "a", {"status": {"n": 4}}, "status")).expect_success()
    _expect_invalid(await api.merge("ruleds", "a", {"status": {"n": 3}}, "status"), "status: Invalid value: n grows")
    _expect_invalid(
        await api.merge("ruleds", "a", {"status": {"n": 7}}, "status"), "<nil>: Invalid value: n is less than 5"
    )


async def case_malformed_rules_are_rejected(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    for rule, text in (
        ("self.min ==", "Syntax error: mismatched input '<EOF>'"),
        ("nobody(self)", "undeclared reference to 'nobody' (in container '')"),
    ):
        body = definition("Faulty", {"spec": _with_rules({"type": "object"}, _rule(rule))}, {})
        rejected = await api.call("POST", path, body)
        rejected.expect_error(422, "Invalid", f"{place}: Invalid value: ")
        assert "compilation failed: ERROR: <input>:1:" in rejected.message
        assert text in rejected.message


async def case_embedded_objects_in_lists_and_maps(api: Api) -> None:
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    fine = {"objects": [pod], "named": {"p": pod}}
    (await api.create("ruleds", _body("a", fine))).expect_success()
    rejected = await api.create("ruleds", _body("b", {"objects": [{**pod, "kind": "Node"}]}))
    _expect_invalid(rejected, "spec.objects: Invalid value: pods alone")
    rejected = await api.create("ruleds", _body("b", {"named": {"q": pod}}))
    _expect_invalid(rejected, "spec.named: Invalid value: each by its name")
