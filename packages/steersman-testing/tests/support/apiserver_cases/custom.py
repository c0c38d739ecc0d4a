"""Custom resources: schemas, and the definitions themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver_cases.api import AGGREGATED, GROUP, Api, gadget, widget

SHORT_NAMES = {
    "": "configmaps=cm endpoints=ep events=ev limitranges=limits namespaces=ns nodes=no persistentvolumeclaims=pvc "
    "persistentvolumes=pv pods=po resourcequotas=quota secrets= serviceaccounts=sa services=svc",
    "apiextensions.k8s.io": "customresourcedefinitions=crd,crds",
    "apps": "controllerrevisions= daemonsets=ds deployments=deploy replicasets=rs statefulsets=sts",
    "batch": "cronjobs=cj jobs=",
    "events.k8s.io": "events=ev",
    "networking.k8s.io": "ingressclasses= ingresses=ing networkpolicies=netpol",
    "policy": "poddisruptionbudgets=pdb",
    "scheduling.k8s.io": "priorityclasses=pc",
    "storage.k8s.io": "storageclasses=sc",
}


async def case_unknown_fields_are_pruned(api: Api) -> None:
    made = await api.create("widgets", widget("a", {"size": 1, "odd": 1, "free": {"any": {"thing": 1}}}))
    spec = made.expect_success().body["spec"]
    assert "odd" not in spec
    assert spec["free"] == {"any": {"thing": 1}}


async def case_unknown_fields_are_rejected_in_strict_mode(api: Api) -> None:
    rejected = await api.create("widgets", widget("a", {"size": 1, "odd": 1}), fieldValidation="Strict")
    prefix = 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
    assert rejected.expect_error(400, "BadRequest").message == prefix + 'unknown field "spec.odd"'
    body: dict[str, Any] = {**widget("a", {"size": 1, "parts": [{"name": "p", "odd": 1}]}), "odd": 1}
    body["metadata"] = {"name": "a", "odd": 1}
    rejected = await api.create("widgets", body, fieldValidation="Strict")
    text = 'unknown field "metadata.odd", unknown field "odd", unknown field "spec.parts[0].odd"'
    assert rejected.expect_error(400, "BadRequest").message == prefix + text


async def case_defaults_are_set(api: Api) -> None:
    spec = (
        (await api.create("widgets", widget("a", {"size": 1, "parts": [{"name": "p"}]})))
        .expect_success()
        .body["spec"]
    )
    assert spec["mode"] == "safe"
    assert spec["rollout"] == {"pace": "slow"}
    assert spec["parts"] == [{"name": "p", "weight": 1}]


async def case_nulls_are_dropped_where_they_are_not_allowed(api: Api) -> None:
    spec = (
        (await api.create("widgets", widget("a", {"size": 1, "mode": None, "name": None, "note": None})))
        .expect_success()
        .body["spec"]
    )
    assert spec["mode"] == "safe"
    assert "name" not in spec
    assert spec["note"] is None


async def case_schemas_are_enforced(api: Api) -> None:
    invalid: list[tuple[dict[str, Any], str, str, str]] = [
        ({}, "spec.size", "FieldValueRequired", "spec.size: Required value"),
        (
            {"size": "x"},
            "spec.size",
            "FieldValueTypeInvalid",
            'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
        (
            {"size": -1},
            "spec.size",
            "FieldValueInvalid",
            "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
        ),
        (
            {"size": 101},
            "spec.size",
            "FieldValueInvalid",
            "spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100",
        ),
        (
            {"size": 1, "mode": "odd"},
            "spec.mode",
            "FieldValueNotSupported",
            'spec.mode: Unsupported value: "odd": supported values: "fast", "safe"',
        ),
        (
            {"size": 1, "name": "UP"},
            "spec.name",
            "FieldValueInvalid",
            "spec.name: Invalid value: \"UP\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            {"size": 1, "name": "a"},
            "spec.name",
            "FieldValueInvalid",
            'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long',
        ),
        (
            {"size": 1, "name": "abcdef"},
            "spec.name",
            "FieldValueTooLong",
            "spec.name: Too long: may not be more than 5 bytes",
        ),
        (
            {"size": 1, "parts": [{"name": n} for n in "abcd"]},
            "spec.parts",
            "FieldValueTooMany",
            "spec.parts: Too many: 4: must have at most 3 items",
        ),
        (
            {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
            "spec.parts[1]",
            "FieldValueDuplicate",
            'spec.parts[1]: Duplicate value: {"name":"a"}',
        ),
        (
            {"size": 1, "limits": {"cpu": "x"}},
            "spec.limits.cpu",
            "FieldValueTypeInvalid",
            'spec.limits.cpu: Invalid value: "string": spec.limits.cpu in body must be of type integer: "string"',
        ),
        (
            {"size": 1, "port": True},
            "spec.port",
            "FieldValueTypeInvalid",
            'spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
        ),
    ]
    for spec, field, reason, text in invalid:
        rejected = await api.create("widgets", widget("a", spec))
        rejected.expect_error(422, "Invalid")
        assert (field, reason) in rejected.causes(), rejected.body
        assert text in rejected.message, rejected.message


async def case_all_errors_are_reported(api: Api) -> None:
    rejected = await api.create("widgets", widget("a", {"size": -1, "mode": "odd"}))
    rejected.expect_error(422, "Invalid", f'Widget.{GROUP} "a" is invalid: [')
    assert {f for f, _ in rejected.causes()} == {"spec.size", "spec.mode"}
    details = rejected.body["details"]
    assert (details["name"], details["group"], details["kind"]) == ("a", GROUP, "Widget")


async def case_updates_are_validated(api: Api) -> None:
    await api.create("widgets", widget("a"))
    (await api.merge("widgets", "a", {"spec": {"size": 101}})).expect_error(422, "Invalid")
    (await api.apply("widgets", widget("a", {"size": 101}), force=True)).expect_error(422, "Invalid")


async def case_status_is_validated(api: Api) -> None:
    await api.create("widgets", widget("a"))
    rejected = await api.merge("widgets", "a", {"status": {"ready": "x"}}, "status")
    text = 'status.ready: Invalid value: "string": ready in body must be of type integer: "string"'
    rejected.expect_error(422, "Invalid", text)
    rejected = await api.merge("widgets", "a", {"status": {"conditions": [{"type": "a"}]}}, "status")
    rejected.expect_error(422, "Invalid", "status.conditions[0].status: Required value")


async def case_without_the_status_subresource_status_is_a_field(api: Api) -> None:
    made = (await api.create("gadgets", gadget("a", status={"ready": 1}))).expect_success()
    assert made.body["status"] == {"ready": 1}
    changed = await api.merge("gadgets", "a", {"status": {"ready": 2}})
    assert changed.metadata["generation"] == 2


async def case_maps_and_int_or_string(api: Api) -> None:
    spec = {"size": 1, "limits": {"cpu": 1, "memory": 2}, "port": "http"}
    made = (await api.create("widgets", widget("a", spec))).expect_success()
    assert made.body["spec"]["limits"] == {"cpu": 1, "memory": 2}
    changed = await api.merge("widgets", "a", {"spec": {"port": 80}})
    assert changed.expect_success().body["spec"]["port"] == 80


async def case_definitions_report_established(api: Api) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{GROUP}"
    found = (await api.call("GET", path)).expect_success().body
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert found["status"]["storedVersions"] == ["v1"]
    names = found["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("widget", "WidgetList")


async def case_definitions_are_validated(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    body: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "wrong"},
        "spec": {
            "group": "odd.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Odd", "plural": "odds"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {}}],
        },
    }
    rejected = await api.call("POST", path, body)
    rejected.expect_error(
        422, "Invalid", 'metadata.name: Invalid value: "wrong": must be spec.names.plural+"."+spec.group'
    )


async def case_discovery_lists_kinds(api: Api) -> None:
    found = (await api.call("GET", f"/apis/{GROUP}/v1")).expect_success().body
    entries = {r["name"]: r for r in found["resources"]}
    assert {"widgets", "widgets/status", "gadgets"} <= set(entries)
    assert "gadgets/status" not in entries
    assert entries["widgets"]["kind"] == "Widget"
    assert entries["widgets"]["singularName"] == "widget"
    groups = (await api.call("GET", "/apis")).expect_success().body["groups"]
    assert {"apps", GROUP} <= {g["name"] for g in groups}


async def case_aggregated_discovery_lists_kinds(api: Api) -> None:
    (core,) = (await api.call("GET", "/api", accept=AGGREGATED)).expect_success().body["items"]
    listed = (await api.call("GET", "/apis", accept=AGGREGATED)).expect_success().body["items"]
    assert core["metadata"] == {}
    groups = {g["metadata"]["name"]: g for g in listed}
    groups[""] = core
    served = {
        (name, version["version"], resource["resource"]): resource
        for name, group in groups.items()
        for version in group["versions"]
        for resource in version["resources"]
    }
    widget = served[GROUP, "v1", "widgets"]
    assert (widget["responseKind"]["kind"], widget["scope"]) == ("Widget", "Namespaced")
    assert widget["singularResource"] == "widget"
    assert [s["subresource"] for s in widget["subresources"]] == ["status"]
    assert served["", "v1", "namespaces"]["scope"] == "Cluster"
    for group, reported in SHORT_NAMES.items():
        for plural, _, names in (entry.partition("=") for entry in reported.split()):
            assert ",".join(served[group, "v1", plural].get("shortNames", [])) == names, plural


async def case_the_most_stable_version_is_preferred(api: Api) -> None:
    group = "many.cases.steersman.dev"
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = ("v1alpha2", "v1", "v10", "v2beta1", "v2", "v1alpha10")
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"manies.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Many", "plural": "manies"},
            "versions": [{"name": n, "served": True, "storage": n == "v1alpha2", "schema": schema} for n in names],
        },
    }
    created = await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert created.code in (201, 409)
    async with asyncio.timeout(30):
        while len((found := await api.call("GET", f"/apis/{group}")).body.get("versions", ())) < len(names):
            await asyncio.sleep(0.05)
    assert [v["version"] for v in found.expect_success().body["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v2beta1",
        "v1alpha10",
        "v1alpha2",
    ]
    assert found.body["preferredVersion"]["version"] == "v10"
