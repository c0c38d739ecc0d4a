"""Server-side apply: ownership, conflicts, removal, list merging."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json, config_map, deployment, widget


def fields_by_manager(response: ApiResponse) -> dict[tuple[str, str, str], Json]:
    """Return fields by manager, operation and subresource."""
    return {
        (e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"]
        for e in response.expect_success().metadata.get("managedFields", [])
    }


async def case_apply_creates_missing_objects(api: Api) -> None:
    created = await api.apply("configmaps", config_map("a", {"k": "v"}, labels={"l": "1"}))
    assert created.code == 201
    assert fields_by_manager(created) == {
        ("tester", "Apply", ""): {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}
    }


async def case_repeated_apply_changes_nothing(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", {"k": "v"})), ("deployments", deployment("a"))):
        created = await api.apply(plural, body)
        again = await api.apply(plural, body)
        assert again.code == 200
        assert again.resource_version == created.resource_version
    created = await api.apply("widgets", widget("a"))
    assert (await api.apply("widgets", widget("a"))).resource_version == created.resource_version


async def case_unapplied_fields_are_removed(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}, labels={"l": "1"}))
    changed = (await api.apply("configmaps", config_map("a", {"y": "1"}))).expect_success()
    assert changed.body["data"] == {"y": "1"}
    assert "labels" not in changed.metadata
    emptied = (await api.apply("configmaps", config_map("a"))).expect_success()
    assert "data" not in emptied.body


async def case_fields_of_other_managers_are_kept(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    await api.apply("configmaps", config_map("a", {"y": "2"}), "two")
    changed = (await api.apply("configmaps", config_map("a"), "one")).expect_success()
    assert changed.body["data"] == {"y": "2"}


async def case_a_shared_field_stays_until_its_last_owner_drops_it(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    shared = await api.apply("configmaps", config_map("a", {"x": "1"}), "two")
    assert set(fields_by_manager(shared)) == {("one", "Apply", ""), ("two", "Apply", "")}
    left = await api.apply("configmaps", config_map("a"), "one")
    assert left.body["data"] == {"x": "1"}
    deleted = await api.apply("configmaps", config_map("a"), "two")
    assert "data" not in deleted.body


async def case_conflicts_name_field_and_manager(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    rejected = await api.apply("configmaps", config_map("a", {"x": "2"}), "two")
    rejected.expect_error(409, "Conflict")
    assert rejected.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert rejected.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]


async def case_several_conflicts_are_listed(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}), "one")
    rejected = await api.apply("configmaps", config_map("a", {"x": "2", "y": "2"}), "two")
    assert rejected.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'


async def case_conflicts_with_updates_name_the_version(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}), fieldManager="editor")
    rejected = await api.apply("configmaps", config_map("a", {"x": "2"}))
    assert rejected.message == 'Apply failed with 1 conflict: conflict with "editor" using v1: .data.x'


async def case_conflicts_in_lists_name_the_item(api: Api) -> None:
    await api.apply("deployments", deployment("a"), "one")
    body = deployment("a")
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    rejected = await api.apply("deployments", body, "two")
    text = '.spec.template.spec.containers[name="app"].image'
    assert rejected.message == f'Apply failed with 1 conflict: conflict with "one": {text}'


async def case_force_takes_ownership(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}), "one")
    forced = await api.apply("configmaps", config_map("a", {"x": "2"}), "two", force=True)
    assert forced.expect_success().body["data"] == {"x": "2", "y": "1"}
    assert fields_by_manager(forced)["one", "Apply", ""] == {"f:data": {"f:y": {}}}
    assert fields_by_manager(forced)["two", "Apply", ""] == {"f:data": {"f:x": {}}}


async def case_updates_take_ownership(api: Api) -> None:
    await api.apply("configmaps", config_map("a", {"x": "1", "y": "1"}))
    changed = await api.merge("configmaps", "a", {"data": {"x": "2"}}, fieldManager="editor")
    assert fields_by_manager(changed) == {
        ("tester", "Apply", ""): {"f:data": {"f:y": {}}},
        ("editor", "Update", ""): {"f:data": {"f:x": {}}},
    }


async def case_create_owns_all_sent_fields(api: Api) -> None:
    created = await api.create("widgets", widget("a", {"size": 3}, labels={"l": "1"}), fieldManager="maker")
    found = fields_by_manager(created)["maker", "Update", ""]
    assert found["f:metadata"] == {"f:labels": {".": {}, "f:l": {}}}
    assert "f:size" in found["f:spec"]


async def case_status_has_its_own_managers(api: Api) -> None:
    created = await api.apply("widgets", widget("a"))
    body: Json = {"apiVersion": created.body["apiVersion"], "kind": "Widget", "metadata": {"name": "a"}}
    written = await api.apply("widgets", {**body, "status": {"ready": 1}}, subresource="status")
    assert written.expect_success().body["status"] == {"ready": 1}
    assert fields_by_manager(written)["tester", "Apply", "status"] == {"f:status": {"f:ready": {}}}
    assert ("tester", "Apply", "") in fields_by_manager(written)
    again = await api.apply("widgets", widget("a"))
    assert again.resource_version == written.resource_version


async def case_status_conditions_merge_by_type(api: Api) -> None:
    created = await api.apply("widgets", widget("a"))
    body: Json = {"apiVersion": created.body["apiVersion"], "kind": "Widget", "metadata": {"name": "a"}}

    def conditions(*types: str) -> Json:
        return {**body, "status": {"conditions": [{"type": t, "status": "True"} for t in types]}}

    await api.apply("widgets", conditions("Ready"), "one", subresource="status")
    both = await api.apply("widgets", conditions("Healthy"), "two", subresource="status")
    assert {c["type"] for c in both.expect_success().body["status"]["conditions"]} == {"Ready", "Healthy"}
    left = await api.apply("widgets", conditions(), "one", subresource="status")
    assert [c["type"] for c in left.expect_success().body["status"]["conditions"]] == ["Healthy"]


async def case_writes_of_the_object_do_not_own_status(api: Api) -> None:
    created = await api.apply("widgets", {**widget("a"), "status": {"ready": 9}})
    assert "status" not in created.expect_success().body
    assert "f:status" not in fields_by_manager(created)["tester", "Apply", ""]


async def case_apply_to_status_of_missing_object_is_not_found(api: Api) -> None:
    rejected = await api.apply("widgets", {**widget("none"), "status": {}}, subresource="status")
    rejected.expect_error(404, "NotFound", 'widgets.cases.steersman.dev "none" not found')


async def case_apply_with_a_uid_does_not_create(api: Api) -> None:
    rejected = await api.apply("configmaps", config_map("a", uid="other"))
    text = "uid mismatch: the provided object specified uid other, and no existing object was found"
    rejected.expect_error(409, "Conflict", text)


async def case_apply_with_another_uid_conflicts(api: Api) -> None:
    await api.apply("configmaps", config_map("a"))
    rejected = await api.apply("configmaps", config_map("a", {"x": "1"}, uid="other"))
    rejected.expect_error(422, "Invalid", 'metadata.uid: Invalid value: "other": field is immutable')


async def case_apply_with_uid_to_custom_resource(api: Api) -> None:
    text = "uid mismatch: the provided object specified uid other, and no existing object was found"
    body = widget("a")
    claimed = {**body, "metadata": {**body["metadata"], "uid": "other"}}
    (await api.apply("widgets", claimed)).expect_error(409, "Conflict", text)
    created = await api.apply("widgets", body)
    rejected = await api.apply("widgets", claimed)
    rejected.expect_error(422, "Invalid", 'metadata.uid: Invalid value: "other": field is immutable')
    assert {cause["field"] for cause in rejected.body["details"]["causes"]} == {"metadata.uid"}
    claimed["metadata"]["uid"] = created.body["metadata"]["uid"]
    assert (await api.apply("widgets", claimed)).expect_success().resource_version == created.resource_version


async def case_custom_status_apply_ignores_uid(api: Api) -> None:
    created = await api.apply("widgets", widget("a"))
    body: Json = {
        "apiVersion": created.body["apiVersion"],
        "kind": "Widget",
        "metadata": {"name": "a", "uid": "other"},
    }
    written = await api.apply("widgets", {**body, "status": {"ready": 1}}, subresource="status")
    assert written.expect_success().body["status"] == {"ready": 1}
    body["metadata"] = {"name": "a", "resourceVersion": created.resource_version}
    rejected = await api.apply("widgets", {**body, "status": {"ready": 2}}, subresource="status")
    rejected.expect_error(409, "Conflict", "the object has been modified")


async def case_apply_requires_kind(api: Api) -> None:
    for change, formatted in (
        ({"kind": "Secret"}, "/v1, Kind=Secret"),
        ({"apiVersion": "v2"}, "/v2, Kind=ConfigMap"),
    ):
        rejected = await api.apply("configmaps", {**config_map("a"), **change})
        rejected.expect_error(400, "BadRequest", f"invalid object type: {formatted}")


async def case_applied_configurations_must_match_schema(api: Api) -> None:
    prefix = "failed to create typed patch object (/a; cases.steersman.dev/v1, Kind=Widget): "
    for spec, text in (
        ({"size": 1, "odd": 1}, ".spec.odd: field not declared in schema"),
        ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
        ({"size": 1, "tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        ({"size": 1, "parts": [{"name": "a"}] * 2}, '.spec.parts: duplicate entries for key [name="a"]'),
        (
            {"size": 1, "parts": [{"weight": 1}]},
            '.spec.parts: element 0: associative list with keys has an element that omits all key fields ["name"]',
        ),
    ):
        rejected = await api.apply("widgets", widget("a", spec))
        rejected.expect_error(500, "")
        assert rejected.message.startswith(prefix + text)


async def case_applied_null_is_owned_but_not_stored(api: Api) -> None:
    created = await api.apply("widgets", widget("a", {"size": 1, "mode": None, "note": None}))
    assert created.expect_success().body["spec"] == {
        "size": 1,
        "mode": "safe",
        "note": None,
        "rollout": {"pace": "slow"},
    }
    assert fields_by_manager(created)["tester", "Apply", ""] == {"f:spec": {"f:mode": {}, "f:note": {}, "f:size": {}}}


async def case_server_fields_have_no_manager(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    created = await api.create("persistentvolumeclaims", {**body, "spec": spec}, fieldManager="maker")
    assert "f:metadata" not in fields_by_manager(created)["maker", "Update", ""]


async def case_unapplied_part_of_defaulted_struct(api: Api) -> None:
    await api.apply("widgets", widget("a", {"size": 1, "rollout": {"pause": True}, "limits": {"a": 1}}))
    changed = await api.apply("widgets", widget("a", {"size": 1}))
    assert changed.expect_success().body["spec"] == {"size": 1, "mode": "safe", "rollout": {"pace": "slow"}}


async def case_apply_with_an_old_version_conflicts(api: Api) -> None:
    created = await api.apply("configmaps", config_map("a", {"x": "1"}))
    await api.merge("configmaps", "a", {"data": {"y": "2"}})
    rejected = await api.apply("configmaps", config_map("a", {"x": "3"}, resourceVersion=created.resource_version))
    rejected.expect_error(409, "Conflict", "the object has been modified")


async def case_apply_needs_a_manager(api: Api) -> None:
    path = api.path("configmaps", "a")
    rejected = await api.call("PATCH", path, config_map("a"), {}, "application/apply-patch+yaml")
    rejected.expect_error(422, "Invalid", "fieldManager: Required value: is required for apply patch")


async def case_apply_refuses_managed_fields(api: Api) -> None:
    created = await api.apply("configmaps", config_map("a", {"x": "1"}))
    rejected = await api.apply("configmaps", created.body)
    rejected.expect_error(400, "BadRequest", "metadata.managedFields must be nil")


async def case_list_items_belong_to_their_manager(api: Api) -> None:
    def parts(*names: str, **fields: Any) -> Json:
        return widget("a", {"size": 1, "parts": [{"name": n, **fields} for n in names]})

    await api.apply("widgets", parts("x", "y"), "one")
    both = await api.apply("widgets", parts("z"), "two")
    assert [p["name"] for p in both.expect_success().body["spec"]["parts"]] == ["x", "y", "z"]
    left = await api.apply("widgets", parts("y"), "one")
    assert [p["name"] for p in left.expect_success().body["spec"]["parts"]] == ["y", "z"]


async def case_items_with_foreign_fields_stay(api: Api) -> None:
    item = {"name": "x"}
    await api.apply("widgets", widget("a", {"size": 1, "parts": [{**item, "weight": 5}]}), "one")
    await api.apply("widgets", widget("a", {"size": 1, "parts": [{**item, "colour": "red"}]}), "two")
    left = await api.apply("widgets", widget("a", {"size": 1}), "one")
    assert left.expect_success().body["spec"]["parts"] == [{"name": "x", "weight": 1, "colour": "red"}]


async def case_items_keep_applied_order(api: Api) -> None:
    def parts(*names: str) -> Json:
        return widget("a", {"size": 1, "parts": [{"name": n} for n in names]})

    await api.apply("widgets", parts("a", "b", "c"))
    turned = await api.apply("widgets", parts("c", "a", "b"))
    assert [p["name"] for p in turned.expect_success().body["spec"]["parts"]] == ["c", "a", "b"]


async def case_sets_merge_by_value(api: Api) -> None:
    await api.apply("widgets", widget("a", {"size": 1, "tags": ["x", "y"]}), "one")
    both = await api.apply("widgets", widget("a", {"size": 1, "tags": ["y", "z"]}), "two")
    assert sorted(both.expect_success().body["spec"]["tags"]) == ["x", "y", "z"]
    left = await api.apply("widgets", widget("a", {"size": 1, "tags": []}), "one")
    assert sorted(left.expect_success().body["spec"]["tags"]) == ["y", "z"]


async def case_atomic_lists_are_replaced(api: Api) -> None:
    await api.apply("widgets", widget("a", {"size": 1, "steps": ["x", "y"]}), "one")
    rejected = await api.apply("widgets", widget("a", {"size": 1, "steps": ["z"]}), "two")
    assert rejected.causes() == [(".spec.steps", "FieldManagerConflict")]
    forced = await api.apply("widgets", widget("a", {"size": 1, "steps": ["z"]}), "two", force=True)
    assert forced.expect_success().body["spec"]["steps"] == ["z"]


async def case_finalizers_and_owners_merge(api: Api) -> None:
    await api.apply("configmaps", config_map("a", finalizers=["example.com/one"]), "one")
    both = await api.apply("configmaps", config_map("a", finalizers=["example.com/two"]), "two")
    assert sorted(both.expect_success().metadata["finalizers"]) == ["example.com/one", "example.com/two"]
    left = await api.apply("configmaps", config_map("a"), "one")
    assert left.expect_success().metadata["finalizers"] == ["example.com/two"]
    (await api.apply("configmaps", config_map("a"), "two")).expect_success()


async def case_containers_ports_and_environment_merge(api: Api) -> None:
    def body(port: int, variable: str) -> Json:
        container = {
            "name": "app",
            "image": "app:1",
            "ports": [{"containerPort": port}],
            "env": [{"name": variable, "value": "1"}],
        }
        result = deployment("a")
        result["spec"]["template"]["spec"]["containers"] = [container]
        return result

    await api.apply("deployments", body(80, "A"), "one")
    both = await api.apply("deployments", body(81, "B"), "two")
    found = both.expect_success().body["spec"]["template"]["spec"]["containers"][0]
    assert [p["containerPort"] for p in found["ports"]] == [80, 81]
    assert [e["name"] for e in found["env"]] == ["A", "B"]
    left = await api.apply("deployments", body(81, "B"), "one")
    found = left.expect_success().body["spec"]["template"]["spec"]["containers"][0]
    assert [p["containerPort"] for p in found["ports"]] == [81]


async def case_unapplied_struct_loses_its_defaults(api: Api) -> None:
    body = deployment("a")
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["readinessProbe"] = {"exec": {"command": ["true"]}}
    created = await api.apply("deployments", body)
    assert "readinessProbe" in created.expect_success().body["spec"]["template"]["spec"]["containers"][0]
    del container["readinessProbe"]
    changed = await api.apply("deployments", body)
    assert "readinessProbe" not in changed.expect_success().body["spec"]["template"]["spec"]["containers"][0]


async def case_autoscaled_field_is_kept(api: Api) -> None:
    await api.apply("deployments", deployment("a"))
    await api.merge("deployments", "a", {"spec": {"replicas": 5}}, fieldManager="autoscaler")
    again = await api.apply("deployments", deployment("a"))
    assert again.expect_success().body["spec"]["replicas"] == 5


async def case_unapplied_fields_return_to_defaults(api: Api) -> None:
    await api.apply("widgets", widget("a", {"size": 1, "mode": "fast"}))
    changed = await api.apply("widgets", widget("a", {"size": 1}))
    assert changed.expect_success().body["spec"]["mode"] == "safe"
