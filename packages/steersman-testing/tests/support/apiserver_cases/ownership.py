"""Managed fields after all kinds of writes."""

from __future__ import annotations

import json

from apiserver_cases.api import GROUP, Api, ApiResponse, Json, config_map, definition, deployment, widget
from apiserver_cases.apply import fields_by_manager
from apiserver_cases.waiting import create_and_wait

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _fields_of(response: ApiResponse, manager: str, operation: str = "Update", subresource: str = "") -> Json:
    return fields_by_manager(response)[manager, operation, subresource]


async def case_each_write_owns_its_changes(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"a": "1"}), fieldManager="maker")
    await api.put("configmaps", config_map("a", {"a": "1", "b": "2"}), fieldManager="putter")
    await api.merge("configmaps", "a", {"data": {"c": "3"}}, fieldManager="merger")
    path, content_type = api.path("configmaps", "a"), "application/json-patch+json"
    patch = [{"op": "add", "path": "/data/d", "value": "4"}]
    changed = await api.call("PATCH", path, patch, {"fieldManager": "patcher"}, content_type)
    assert fields_by_manager(changed) == {
        ("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
        ("putter", "Update", ""): {"f:data": {"f:b": {}}},
        ("merger", "Update", ""): {"f:data": {"f:c": {}}},
        ("patcher", "Update", ""): {"f:data": {"f:d": {}}},
    }


async def case_entries_have_version_type_and_time(api: Api) -> None:
    created = await api.create("widgets", widget("a"), fieldManager="maker")
    (entry,) = created.expect_success().metadata["managedFields"]
    assert entry["apiVersion"] == "cases.steersman.dev/v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["time"] == created.metadata["creationTimestamp"]
    assert set(entry) == {"apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "time"}


async def case_unchanged_update_takes_no_ownership(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}), fieldManager="one")
    same = await api.merge("configmaps", "a", {"data": {"x": "1"}}, fieldManager="two")
    assert set(fields_by_manager(same)) == {("one", "Update", "")}


async def case_apply_and_update_are_separate_entries(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}), fieldManager="one")
    applied = await api.apply("configmaps", config_map("a", {"y": "2"}), "one")
    assert _fields_of(applied, "one", "Apply") == {"f:data": {"f:y": {}}}
    assert _fields_of(applied, "one") == {"f:data": {".": {}, "f:x": {}}}
    rejected = await api.apply("configmaps", config_map("a", {"x": "2"}), "one")
    rejected.expect_error(409, "Conflict", 'conflict with "one" using v1: .data.x')


async def case_removed_fields_have_no_manager(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}), "one")
    changed = await api.merge("configmaps", "a", {"data": {"x": None}}, fieldManager="two")
    assert fields_by_manager(changed) == {("one", "Apply", ""): {"f:data": {"f:y": {}}}}


async def case_manager_without_fields_is_dropped(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    forced = await api.apply("configmaps", config_map("a", {"x": "2"}), "two", force=True)
    assert set(fields_by_manager(forced)) == {("two", "Apply", "")}
    emptied = await api.apply("configmaps", config_map("a"), "two")
    assert fields_by_manager(emptied) == {}
    assert "managedFields" not in emptied.metadata


async def case_shared_fields_need_no_force(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}), fieldManager="one")
    shared = await api.apply("configmaps", config_map("a", {"x": "1"}), "two")
    assert _fields_of(shared, "two", "Apply") == {"f:data": {"f:x": {}}}
    assert _fields_of(shared, "one") == {"f:data": {".": {}, "f:x": {}}}


async def case_ownership_is_transferred_by_sharing(api: Api) -> None:
    await api.apply("deployments", deployment("a", replicas=3), "owner")
    taken: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 3}}
    (await api.apply("deployments", taken, "scaler")).expect_success()
    left = await api.apply("deployments", deployment("a"), "owner")
    assert left.expect_success().body["spec"]["replicas"] == 3
    assert _fields_of(left, "scaler", "Apply") == {"f:spec": {"f:replicas": {}}}


async def case_managed_fields_can_be_cleared(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", {"x": "1"})), ("widgets", widget("a"))):
        await api.apply(plural, body, "one")
        cleared = await api.merge(plural, "a", {"metadata": {"managedFields": [{}]}}, fieldManager="two")
        assert "managedFields" not in cleared.expect_success().metadata


async def case_before_first_apply_owns_unmanaged_fields(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}), "one")
    patch: list[Json] = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
    (await api.json_patch("configmaps", "a", *patch)).expect_success()
    rejected = await api.apply("configmaps", config_map("a", {"x": "2"}), "two")
    rejected.expect_error(409, "Conflict", 'conflict with "before-first-apply" using v1: .data.x')
    forced = await api.apply("configmaps", config_map("a", {"x": "2"}), "two", force=True)
    assert fields_by_manager(forced) == {
        ("two", "Apply", ""): {"f:data": {"f:x": {}}},
        ("before-first-apply", "Update", ""): {"f:data": {".": {}, "f:y": {}}},
    }


async def case_managed_fields_can_be_written(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}), fieldManager="kubectl-client-side-apply")
    body = created.body
    entry = body["metadata"]["managedFields"][0]
    entry |= {"manager": "kubectl", "operation": "Apply"}
    written = (await api.put("configmaps", body, fieldManager="upgrade")).expect_success()
    assert fields_by_manager(written) == {("kubectl", "Apply", ""): {"f:data": {".": {}, "f:x": {}}}}
    changed = await api.apply("configmaps", config_map("a", {"y": "2"}), "kubectl")
    assert changed.expect_success().body["data"] == {"y": "2"}


async def case_omitted_managed_fields_stay(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    changed = await api.put("configmaps", config_map("a", {"x": "1", "y": "2"}), fieldManager="two")
    assert fields_by_manager(changed) == {
        ("one", "Apply", ""): {"f:data": {"f:x": {}}},
        ("two", "Update", ""): {"f:data": {"f:y": {}}},
    }


async def case_an_empty_list_of_managed_fields_clears_them(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    cleared = await api.put("configmaps", config_map("a", {"x": "1"}, managedFields=[]), fieldManager="two")
    assert "managedFields" not in cleared.expect_success().metadata


async def case_malformed_managed_fields_are_ignored(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    malformed: Json = {
        "manager": "m",
        "operation": "Odd",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
    }
    kept = (await api.merge("configmaps", "a", {"metadata": {"managedFields": [malformed]}})).expect_success()
    assert fields_by_manager(kept) == fields_by_manager(created)


async def case_an_atomic_map_has_one_owner(api: Api) -> None:
    def body(**selector: str) -> Json:
        spec = {"selector": selector, "ports": [{"port": 80}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}

    created = await api.apply("services", body(app="a"), "one")
    assert _fields_of(created, "one", "Apply")["f:spec"]["f:selector"] == {}
    rejected = await api.apply("services", body(tier="b"), "two")
    assert (".spec.selector", "FieldManagerConflict") in rejected.expect_error(409, "Conflict").causes()


async def case_items_of_a_list_are_owned_by_key(api: Api) -> None:
    spec = {"size": 1, "parts": [{"name": "p", "weight": 2}], "tags": ["t"]}
    created = await api.apply("widgets", widget("a", spec), "one")
    owned = _fields_of(created, "one", "Apply")["f:spec"]
    assert owned["f:parts"] == {'k:{"name":"p"}': {".": {}, "f:name": {}, "f:weight": {}}}
    assert owned["f:tags"] == {'v:"t"': {}}


async def case_ports_are_owned_by_number_and_protocol(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    created = await api.apply("services", body, "one")
    assert _fields_of(created, "one", "Apply") == {
        "f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}
    }


async def case_owners_are_owned_by_uid(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    created = await api.apply("configmaps", config_map("a", ownerReferences=[owner]), "one")
    assert _fields_of(created, "one", "Apply") == {"f:metadata": {"f:ownerReferences": {'k:{"uid":"u"}': {}}}}


async def case_creator_owns_defaults(api: Api) -> None:
    created = await api.create("widgets", widget("a"), fieldManager="maker")
    assert _fields_of(created, "maker")["f:spec"] == {
        ".": {},
        "f:mode": {},
        "f:rollout": {".": {}, "f:pace": {}},
        "f:size": {},
    }
    applied = await api.apply("widgets", widget("b"), "applier")
    assert _fields_of(applied, "applier", "Apply") == {"f:spec": {"f:size": {}}}


async def case_built_in_structs_have_no_manager(api: Api) -> None:
    created = await api.create("deployments", deployment("a"), fieldManager="maker")
    spec = _fields_of(created, "maker")["f:spec"]
    assert "." not in spec
    assert "." not in spec["f:template"]
    assert "." in spec["f:template"]["f:spec"]["f:containers"]['k:{"name":"app"}']


async def case_dry_run_changes_no_ownership(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    dry_run = await api.apply("configmaps", config_map("a", {"x": "2"}), "two", force=True, dryRun="All")
    assert set(fields_by_manager(dry_run)) == {("two", "Apply", "")}
    assert set(fields_by_manager(await api.get("configmaps", "a"))) == {("one", "Apply", "")}


async def case_apply_dry_run_creates_nothing(api: Api) -> None:
    dry_run = await api.apply("configmaps", config_map("a", {"x": "1"}), dryRun="All")
    assert dry_run.code == 201
    (await api.get("configmaps", "a")).expect_error(404, "NotFound")


async def case_apply_accepts_yaml(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'yes'\n"
    query = {"fieldManager": "tester"}
    created = await api.call("PATCH", api.path("configmaps", "a"), text, query, "application/apply-patch+yaml")
    assert (created.code, created.body["data"]) == (201, {"x": "yes"})


async def case_apply_needs_kind_and_version(api: Api) -> None:
    for field in ("kind", "apiVersion"):
        body = config_map("a")
        del body[field]
        assert (await api.apply("configmaps", body)).code in (400, 500)


async def case_apply_of_another_name_is_rejected(api: Api) -> None:
    query = {"fieldManager": "tester"}
    rejected = await api.call(
        "PATCH", api.path("configmaps", "a"), config_map("b"), query, "application/apply-patch+yaml"
    )
    rejected.expect_error(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")


async def case_force_requires_apply(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}))
    rejected = await api.merge("configmaps", "a", {"data": {"x": "2"}}, force="true")
    rejected.expect_error(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch")


async def case_managers_are_printable(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a"), fieldManager="a\u0001")
    rejected.expect_error(422, "Invalid", "fieldManager: Invalid value: ")


async def case_apply_refuses_unknown_fields_of_built_in_kinds(api: Api) -> None:
    rejected = await api.apply("configmaps", {**config_map("a"), "odd": 1})
    assert (rejected.code, rejected.reason) == (500, "")
    assert rejected.message.endswith(".odd: field not declared in schema")
    body = deployment("a")
    body["spec"]["template"]["spec"]["containers"][0]["odd"] = 1
    rejected = await api.apply("deployments", body)
    assert rejected.message.endswith('.spec.template.spec.containers[name="app"].odd: field not declared in schema')


async def case_apply_during_deletion(api: Api) -> None:
    held = config_map("a", {"x": "1"}, finalizers=["example.com/hold"])
    await api.apply("configmaps", held, "one")
    await api.delete("configmaps", "a")
    changed = (await api.apply("configmaps", {**held, "data": {"x": "2"}}, "one")).expect_success()
    assert changed.body["data"] == {"x": "2"}
    assert changed.metadata["deletionTimestamp"]
    (await api.apply("configmaps", config_map("a"), "one")).expect_success()


async def case_applied_set_loses_unapplied_items(api: Api) -> None:
    await api.apply("widgets", widget("a", {"size": 1, "tags": ["x", "y"]}), "one")
    await api.merge("widgets", "a", {"spec": {"tags": ["x", "y", "z"]}}, fieldManager="two")
    left = await api.apply("widgets", widget("a", {"size": 1, "tags": ["y"]}), "one")
    assert left.expect_success().body["spec"]["tags"] == ["y", "z"]


async def case_a_put_of_a_list_owns_its_new_items(api: Api) -> None:
    created = await api.apply("widgets", widget("a", {"size": 1, "parts": [{"name": "p"}]}), "one")
    body = json.loads(json.dumps(created.body))
    body["spec"]["parts"].append({"name": "q"})
    changed = await api.put("widgets", body, fieldManager="two")
    assert _fields_of(changed, "two") == {
        "f:spec": {"f:parts": {'k:{"name":"q"}': {".": {}, "f:name": {}, "f:weight": {}}}}
    }


async def case_sets_of_lists_have_no_managers(api: Api) -> None:
    inner = {
        "array": {"items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        "object": {"x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": True},
    }
    sets = {n: {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": n, **inner[n]}} for n in inner}
    crd = definition("Sets", {"spec": {"type": "object", "properties": {**sets, "y": {"type": "string"}}}}, {})
    path = await create_and_wait(api, crd)
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    body: Json = {"apiVersion": f"{GROUP}/v1", "kind": "Sets", "metadata": {"name": "a"}, "spec": {"y": "1"}}
    for kind, value, problem in (
        ("array", [["b"]], "not supported: associative list with lists as elements"),
        ("object", [{"b": "c"}], "associative list without keys has an element that's a map type"),
    ):
        created = (await api.call("POST", path, body)).expect_success()
        assert "managedFields" in created.metadata
        for change in ({kind: value}, {"y": "2"}, {kind: None}):
            changed = (await api.call("PATCH", f"{path}/a", {"spec": change}, {}, merge)).expect_success()
            assert "managedFields" not in changed.metadata
            if kind in changed.body["spec"]:
                rejected = await api.call("PATCH", f"{path}/a", body, {"fieldManager": "f"}, apply)
                reported = (
                    f"({api.namespace}/a; {GROUP}/v1, Kind=Sets) to smd typed: .spec.{kind}: element 0: {problem}"
                )
                rejected.expect_error(
                    500, "", "failed to create manager for existing fields: failed to convert new object "
                )
                assert rejected.message.endswith(reported)
        (await api.call("DELETE", f"{path}/a")).expect_success()
        rejected = await api.call("PATCH", f"{path}/a", {**body, "spec": {kind: value}}, {"fieldManager": "f"}, apply)
        rejected.expect_error(
            500,
            "",
            f"failed to create typed patch object (/a; {GROUP}/v1, Kind=Sets): .spec.{kind}: element 0: {problem}",
        )
    (await api.call("DELETE", f"{_DEFINITIONS}/{crd['metadata']['name']}")).expect_success()
