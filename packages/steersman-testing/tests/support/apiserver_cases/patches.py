"""JSON patch, merge patch, strategic merge patch."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map, deployment, error_cases, widget


async def case_merge_patch_changes_and_removes(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1", "y": "1"}))
    changed = (await api.merge("configmaps", "a", {"data": {"x": None, "z": "3"}})).expect_success()
    assert changed.body["data"] == {"y": "1", "z": "3"}


async def case_merge_patch_replaces_lists(api: Api) -> None:
    await api.create("widgets", widget("a", {"size": 1, "parts": [{"name": "p", "weight": 5}]}))
    changed = await api.merge("widgets", "a", {"spec": {"parts": [{"name": "q"}]}})
    assert changed.expect_success().body["spec"]["parts"] == [{"name": "q", "weight": 1}]


async def case_a_patch_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    assert (
        await api.merge("configmaps", "a", {"data": {"x": "1"}})
    ).expect_success().resource_version == created.resource_version


async def case_a_patch_with_an_old_version_conflicts(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    await api.merge("configmaps", "a", {"data": {"x": "2"}})
    patch = {"metadata": {"resourceVersion": created.resource_version}, "data": {"x": "3"}}
    rejected = await api.merge("configmaps", "a", patch)
    rejected.expect_error(409, "Conflict", "the object has been modified")


async def case_a_patch_with_another_uid_conflicts(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}))
    rejected = await api.merge("configmaps", "a", {"metadata": {"uid": "other"}, "data": {"x": "3"}})
    text = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "other": field is immutable'
    assert rejected.expect_error(422, "Invalid").message == text


async def case_custom_status_patch_ignores_uid(api: Api) -> None:
    created = await api.create("widgets", widget("a"))
    changed = await api.merge("widgets", "a", {"metadata": {"uid": "other"}, "status": {"ready": 1}}, "status")
    assert changed.expect_success().body["status"] == {"ready": 1}
    assert changed.metadata["uid"] == created.metadata["uid"]
    rejected = await api.merge("widgets", "a", {"metadata": {"resourceVersion": created.resource_version}}, "status")
    rejected.expect_error(409, "Conflict", "the object has been modified")
    await api.create("deployments", deployment("a"))
    patch = {"metadata": {"uid": "other"}, "status": {"replicas": 1}}
    (await api.merge("deployments", "a", patch, "status")).expect_error(422, "Invalid", "metadata.uid")


async def case_a_json_patch_can_test_the_uid(api: Api) -> None:
    created = await api.create("widgets", widget("a"))
    size = {"op": "replace", "path": "/spec/size", "value": 2}
    rejected = await api.json_patch("widgets", "a", {"op": "test", "path": "/metadata/uid", "value": "x"}, size)
    rejected.expect_error(422, "Invalid")
    (
        await api.json_patch(
            "widgets", "a", {"op": "test", "path": "/metadata/uid", "value": created.metadata["uid"]}, size
        )
    ).expect_success()


async def case_a_patch_cannot_change_the_kind(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.merge("configmaps", "a", {"kind": "Secret"})
    rejected.expect_error(422, "Invalid", ' "" is invalid: patch: Invalid value: ')
    assert "converting (v1.Secret) to (core.ConfigMap): unknown conversion" in rejected.message
    await api.create("widgets", widget("a"))
    rejected = await api.merge("widgets", "a", {"kind": "Other"})
    rejected.expect_error(422, "Invalid", 'kind: Invalid value: "Other": must be Widget')


async def case_strict_patches_refuse_unknown_fields(api: Api) -> None:
    await api.create("widgets", widget("a"))
    rejected = await api.merge("widgets", "a", {"spec": {"odd": 1}}, fieldValidation="Strict")
    rejected.expect_error(422, "Invalid", 'strict decoding error: unknown field "spec.odd"')
    assert rejected.causes() == [("patch", "FieldValueInvalid")]
    rejected = await api.merge("widgets", "a", {"metadata": {"odd": 1}}, fieldValidation="Strict")
    rejected.expect_error(422, "Invalid", 'strict decoding error: unknown field "metadata.odd"')


async def case_a_patch_cannot_rename(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.merge("configmaps", "a", {"metadata": {"name": "b"}})
    rejected.expect_error(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")


async def case_json_patch_operations(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1", "y": "1"}, annotations={}))
    changed = await api.json_patch(
        "configmaps",
        "a",
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "3"},
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "remove", "path": "/data/y"},
        {"op": "copy", "from": "/data/x", "path": "/data/c"},
        {"op": "move", "from": "/data/c", "path": "/data/m"},
    )
    assert changed.expect_success().body["data"] == {"x": "2", "m": "2"}
    assert changed.metadata["annotations"] == {"a/b": "3"}


async def case_json_patch_of_lists(api: Api) -> None:
    await api.create("widgets", widget("a", {"size": 1, "steps": ["a", "c"]}))
    changed = await api.json_patch(
        "widgets",
        "a",
        {"op": "add", "path": "/spec/steps/1", "value": "b"},
        {"op": "add", "path": "/spec/steps/-", "value": "d"},
        {"op": "remove", "path": "/spec/steps/0"},
    )
    assert changed.expect_success().body["spec"]["steps"] == ["b", "c", "d"]


async def case_inapplicable_json_patch_is_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}))
    for operation in (
        {"op": "test", "path": "/data/x", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/none/x", "value": "1"},
    ):
        rejected = await api.json_patch("configmaps", "a", operation)
        rejected.expect_error(422, "Invalid", "the server rejected our request due to an error in our request")


async def case_strategic_merge_patch_merges_lists_by_key(api: Api) -> None:
    await api.create("deployments", deployment("a"))
    containers = [{"name": "app", "image": "app:2"}, {"name": "side", "image": "side:1"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    changed = (await api.strategic("deployments", "a", patch)).expect_success()
    found = changed.body["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in found} == {"app": "app:2", "side": "side:1"}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    changed = (await api.strategic("deployments", "a", patch)).expect_success()
    assert [c["name"] for c in changed.body["spec"]["template"]["spec"]["containers"]] == ["app"]


def _containers_patch(order: list[str], *changes: Json) -> Json:
    order_directive: list[Json] = [{"name": name} for name in order]
    found: Json = {
        "$setElementOrder/containers": order_directive,
        **({"containers": list(changes)} if changes else {}),
    }
    return {"spec": {"template": {"spec": found}}}


async def case_strategic_merge_patch_orders_lists(api: Api) -> None:
    await api.create("deployments", deployment("a"))
    b, c, d = ({"name": name, "image": f"{name}:1"} for name in "bcd")
    for patch, expected in (
        (_containers_patch(["b", "app"], b), ["b", "app"]),
        (_containers_patch(["app", "b"]), ["app", "b"]),
        (_containers_patch(["c", "b"], c), ["c", "app", "b"]),
        (_containers_patch(["d", "none"], d), ["d", "c", "app", "b"]),
        (_containers_patch(["b", "c"], {"name": "d", "$patch": "delete"}), ["app", "b", "c"]),
        ({"spec": {"template": {"spec": {"containers": [d, b]}}}}, ["d", "app", "b", "c"]),
    ):
        changed = (await api.strategic("deployments", "a", patch)).expect_success()
        assert [i["name"] for i in changed.body["spec"]["template"]["spec"]["containers"]] == expected
    rejected = await api.strategic("deployments", "a", _containers_patch(["b"], c))
    text = "The order in patch list:\n[map[image:c:1 name:c]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n"
    assert (rejected.code, rejected.message) == (500, text)


async def case_strategic_merge_patch_is_for_built_in_kinds(api: Api) -> None:
    await api.create("widgets", widget("a"))
    rejected = await api.strategic("widgets", "a", {"spec": {"size": 2}})
    rejected.expect_error(415, "UnsupportedMediaType", "accepted media types include: application/json-patch+json")


async def case_unknown_patch_types_are_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.call("PATCH", api.path("configmaps", "a"), {}, {}, "application/json")
    rejected.expect_error(415, "UnsupportedMediaType")


async def case_wrong_json_patch_types_are_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    for operation, text in error_cases(
        ({"op": "add", "path": 5, "value": 1}, "number into Go struct field jsonPatchOp.path of type string"),
        ({"op": "move", "from": 5, "path": "/data"}, "number into Go struct field jsonPatchOp.from of type string"),
        ({"op": [], "path": "/data"}, "array into Go struct field jsonPatchOp.op of type string"),
        (5, "number into Go value of type handlers.jsonPatchOp"),
    ):
        rejected = await api.json_patch("configmaps", "a", operation)
        rejected.expect_error(400, "BadRequest", f"error decoding patch: json: cannot unmarshal {text}")


async def case_json_patches_of_missing_paths(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    for operation in (
        {"op": "remove", "path": "/metadata/name/x"},
        {"op": "copy", "from": "/metadata/name/x", "path": "/data"},
        {"op": "test", "path": "/metadata/name/x", "value": 1},
        {"op": "remove", "path": ""},
    ):
        (await api.json_patch("configmaps", "a", operation)).expect_error(422, "Invalid")
    (await api.json_patch("configmaps", "a", {"op": "test", "path": "/odd"})).expect_success()
