"""Writes without changes: version, generation, events and managers."""

from __future__ import annotations

import json

from apiserver_cases.api import Api, ApiResponse, Json, config_map, definition, deployment, gadget, widget
from apiserver_cases.apply import fields_by_manager
from apiserver_cases.hooks import WebhookStub, served_webhook

_BODIES: dict[str, Json] = {
    "widgets": widget("a"),
    "deployments": deployment("a"),
    "configmaps": config_map("a", {"x": "1"}),
}


async def _put_spec_json(api: Api, created: ApiResponse, spec_json: str) -> ApiResponse:
    """Put a gadget whose spec is the given JSON."""
    body: Json = {**created.body, "spec": "<spec>"}
    return await api.call("PUT", api.path("gadgets", "a"), json.dumps(body).replace('"<spec>"', spec_json).encode())


async def case_true_is_not_one(api: Api) -> None:
    made = await api.create("gadgets", gadget("a", spec={"x": 1, "y": [0], "z": {"k": False}}))
    for content in (
        '{"x":true,"y":[0],"z":{"k":false}}',
        '{"x":true,"y":[false],"z":{"k":false}}',
        '{"x":true,"y":[false],"z":{"k":0}}',
    ):
        changed = (await _put_spec_json(api, made, content)).expect_success()
        assert changed.metadata["generation"] == made.metadata["generation"] + 1
        assert changed.resource_version != made.resource_version
        made = changed
    assert json.dumps(made.body["spec"]) == '{"x": true, "y": [false], "z": {"k": 0}}'


async def case_patches_distinguish_true_from_one(api: Api) -> None:
    made = await api.create("gadgets", gadget("a", spec={"x": 1}), fieldManager="one")
    merged = await api.merge("gadgets", "a", {"spec": {"x": True}}, fieldManager="two")
    patched = await api.json_patch("gadgets", "a", {"op": "replace", "path": "/spec/x", "value": 1})
    applied = await api.apply("gadgets", gadget("a", spec={"x": True}), force=True)
    assert len({r.expect_success().resource_version for r in (made, merged, patched, applied)}) == 4
    events = await api.events("gadgets", 3, resourceVersion=made.resource_version)
    assert [json.dumps(e["object"]["spec"]["x"]) for e in events] == ["true", "1", "true"]


async def case_applied_values_conflict_by_type(api: Api) -> None:
    made = await api.apply("gadgets", gadget("a", spec={"x": 1, "list": [1]}), "one")
    (await api.apply("gadgets", gadget("a", spec={"x": True}), "two")).expect_error(409, "Conflict", ".spec.x")
    (await api.apply("gadgets", gadget("a", spec={"list": [True]}), "two")).expect_error(
        409, "Conflict", ".spec.list"
    )
    shared = await api.apply("gadgets", gadget("a", spec={"x": 1.0}), "two")
    assert shared.expect_success().metadata["generation"] == made.metadata["generation"]
    assert set(fields_by_manager(shared)) == {("one", "Apply", ""), ("two", "Apply", "")}


async def case_numbers_are_kept_without_an_empty_fraction(api: Api) -> None:
    await api.create("gadgets", gadget("a", spec={"x": 1}))
    kept: list[str] = []
    for number in ("1.0", "1e0", "1e3", "1.5", "1.50", "0.0", "1e21", "0.000001", "9007199254740993.0"):
        (await _put_spec_json(api, await api.get("gadgets", "a"), f'{{"x":{number}}}')).expect_success()
        kept.append(json.dumps((await api.get("gadgets", "a")).body["spec"]["x"]))
    assert kept == ["1", "1", "1000", "1.5", "1.5", "0", "1e+21", "1e-06", "9007199254740992"]


async def case_a_number_with_an_empty_fraction_is_a_change_each_time(api: Api) -> None:
    made = await api.create("gadgets", gadget("a", spec={"x": 1}, status={"ready": 1}))
    for content, generation in (
        ('{"x":1.0}', 2),
        ('{"x":1.0}', 3),
        ('{"x":1}', 3),
        ('{"x":1.5}', 4),
        ('{"x":1.50}', 4),
    ):
        made = (await _put_spec_json(api, made, content)).expect_success()
        assert made.metadata["generation"] == generation
    merged = (await api.merge("gadgets", "a", {"spec": {"x": 2.0}}, fieldManager="two")).expect_success()
    again = (await api.merge("gadgets", "a", {"spec": {"x": 2.0}}, fieldManager="three")).expect_success()
    assert again.metadata["generation"] == merged.metadata["generation"] + 1
    assert fields_by_manager(again) == fields_by_manager(merged)


async def case_a_status_with_an_empty_fraction_is_no_change(api: Api) -> None:
    await api.create("widgets", widget("a"))
    first = (await api.merge("widgets", "a", {"status": {"ready": 1.0}}, "status")).expect_success()
    assert json.dumps(first.body["status"]["ready"]) == "1"
    again = (await api.merge("widgets", "a", {"status": {"ready": 1.0}}, "status")).expect_success()
    assert again.resource_version == first.resource_version


async def case_numbers_of_a_declared_type(api: Api) -> None:
    await api.create("widgets", widget("a", {"size": 5}))

    async def put(content: str) -> ApiResponse:
        body: Json = {**(await api.get("widgets", "a")).body, "spec": "<spec>"}
        return await api.call("PUT", api.path("widgets", "a"), json.dumps(body).replace('"<spec>"', content).encode())

    for content, generation in (
        ('{"size":5.0}', 2),
        ('{"size":5e0}', 3),
        ('{"size":5}', 3),
        ('{"size":5,"port":1.0}', 4),
        ('{"size":5,"port":1}', 4),
        ('{"size":5,"free":{"x":1.0}}', 5),
    ):
        assert (await put(content)).expect_success().metadata["generation"] == generation
    for content in ('{"size":5.5}', '{"size":true}', '{"size":5,"port":1.5}', '{"size":5,"port":true}'):
        (await put(content)).expect_error(422, "Invalid")


async def case_numbers_of_a_built_in_kind(api: Api) -> None:
    made = (await api.create("deployments", deployment("a", replicas=2))).expect_success()
    for number in ("2.0", "2e0", "true", "2.5"):
        body = json.dumps(made.body).replace('"replicas": 2,', f'"replicas": {number},').encode()
        (await api.call("PUT", api.path("deployments", "a"), body)).expect_error(400, "BadRequest")
        patch = f'{{"spec":{{"replicas":{number}}}}}'.encode()
        content_type = "application/merge-patch+json"
        rejected = await api.call("PATCH", api.path("deployments", "a"), patch, {}, content_type)
        rejected.expect_error(422, "Invalid")
    assert (
        await api.strategic("deployments", "a", {"spec": {"replicas": 2.0}})
    ).expect_success().resource_version == made.resource_version
    (await api.strategic("deployments", "a", {"spec": {"replicas": 2.5}})).expect_error(422, "Invalid")
    (await api.strategic("deployments", "a", {"spec": {"replicas": True}})).expect_error(422, "Invalid")
    applied: Json = {**deployment("a"), "spec": {"replicas": 3.0}}
    assert (await api.apply("deployments", applied, force=True)).expect_success().body["spec"]["replicas"] == 3


async def case_empty_values_differ_from_missing_ones(api: Api) -> None:
    made = await api.create("gadgets", gadget("a", spec={"x": 1}))
    for content, generation in (
        ('{"x":1,"y":null}', 2),
        ('{"x":1}', 3),
        ('{"x":1,"y":{}}', 4),
        ('{"x":1,"y":[]}', 5),
        ('{"x":1,"y":[]}', 5),
    ):
        made = (await _put_spec_json(api, made, content)).expect_success()
        assert made.metadata["generation"] == generation


async def case_built_in_kinds_omit_empty_values(api: Api) -> None:
    body = deployment("a")
    pod: Json = body["spec"]["template"]["spec"]
    pod |= {"volumes": [], "nodeSelector": {}, "tolerations": [], "initContainers": [], "imagePullSecrets": []}
    pod["containers"][0] |= {"env": [], "ports": [], "args": [], "resources": {"limits": {}}}
    made = (await api.create("deployments", body)).expect_success()
    found: Json = made.body["spec"]["template"]["spec"]
    assert not {"volumes", "nodeSelector", "tolerations", "initContainers", "imagePullSecrets"} & set(found)
    assert not {"env", "ports", "args"} & set(found["containers"][0])
    assert found["containers"][0]["resources"] == {}
    (await api.put("deployments", {**made.body, "spec": body["spec"]})).expect_success()
    assert (await api.get("deployments", "a")).resource_version == made.resource_version
    (await api.create("configmaps", {**config_map("a", {}), "binaryData": {}})).expect_success()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    (
        await api.create(
            "services", {**service, "spec": {"ports": [{"port": 80}], "selector": {}, "externalIPs": []}}
        )
    ).expect_success()
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}}
    (
        await api.create("networkpolicies", {**policy, "spec": {"podSelector": {}, "ingress": [], "egress": [{}]}})
    ).expect_success()


async def case_unchanged_writes_send_no_events(api: Api) -> None:
    for plural, body in _BODIES.items():
        made = (await api.create(plural, body, fieldManager="one")).expect_success()
        (await api.put(plural, made.body, fieldManager="two")).expect_success()
        named = {"name": "a", "resourceVersion": made.resource_version}
        (await api.put(plural, {**body, "metadata": named}, fieldManager="two")).expect_success()
        (await api.merge(plural, "a", {}, fieldManager="two")).expect_success()
        (await api.merge(plural, "a", {"metadata": {"labels": {}}}, fieldManager="two")).expect_success()
        (
            await api.merge(plural, "a", {"metadata": {"labels": {"absent": None}}}, fieldManager="two")
        ).expect_success()
        (await api.json_patch(plural, "a", {"op": "test", "path": "/metadata/name", "value": "a"})).expect_success()
        (await api.json_patch(plural, "a")).expect_success()
        changed = (
            await api.merge(plural, "a", {"metadata": {"labels": {"l": "1"}}}, fieldManager="three")
        ).expect_success()
        (event,) = await api.events(plural, 1, resourceVersion=made.resource_version)
        assert event["object"]["metadata"]["resourceVersion"] == changed.resource_version


async def case_unchanged_status_writes_send_no_events(api: Api) -> None:
    await api.create("widgets", widget("a"))
    first = (await api.merge("widgets", "a", {"status": {"ready": 1}}, "status", fieldManager="one")).expect_success()
    again = (await api.merge("widgets", "a", {"status": {"ready": 1}}, "status", fieldManager="two")).expect_success()
    (await api.merge("widgets", "a", {"spec": {"size": 9}}, "status", fieldManager="two")).expect_success()
    (await api.put("widgets", again.body, "status", fieldManager="two")).expect_success()
    assert (await api.get("widgets", "a")).resource_version == first.resource_version


async def case_repeated_apply_keeps_the_time(api: Api) -> None:
    for plural, body in (("widgets", widget("a")), ("configmaps", config_map("a", {"x": "1"}))):
        made = await api.apply(plural, body, "one")
        (await api.apply(plural, body, "one")).expect_success()
        again = await api.apply(plural, body, "one", force=True)
        assert again.metadata["managedFields"] == made.metadata["managedFields"]


async def case_second_manager_is_a_change(api: Api) -> None:
    for plural, body in _BODIES.items():
        nothing = {k: body[k] for k in ("apiVersion", "kind", "metadata")}
        made = await api.apply(plural, body, "one")
        shared = await api.apply(plural, body, "two")
        assert shared.resource_version != made.resource_version
        assert set(fields_by_manager(shared)) == {("one", "Apply", ""), ("two", "Apply", "")}
        (event,) = await api.events(plural, 1, resourceVersion=made.resource_version)
        assert len(event["object"]["metadata"]["managedFields"]) == 2
        left = await api.apply(plural, nothing, "two")
        assert set(fields_by_manager(left)) == {("one", "Apply", "")}
        again = await api.apply(plural, nothing, "two")
        assert again.resource_version == left.resource_version


async def case_manager_without_fields_is_not_stored(api: Api) -> None:
    made = await api.apply("configmaps", config_map("a", {"x": "1"}), "one")
    nothing = await api.apply("configmaps", config_map("a"), "two")
    assert nothing.resource_version == made.resource_version
    assert nothing.metadata["managedFields"] == made.metadata["managedFields"]


async def case_last_owner_reference_is_removed(api: Api) -> None:
    owner = (await api.create("configmaps", config_map("owner"))).expect_success().metadata["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}
    for plural, body in (("configmaps", config_map("a", {"x": "1"})), ("widgets", widget("a"))):
        owned = {**body, "metadata": {"name": "a", "ownerReferences": [reference]}}
        (await api.apply(plural, owned, "one")).expect_success()
        (await api.apply(plural, owned, "two")).expect_success()
        kept = await api.apply(plural, body, "one")
        assert kept.expect_success().metadata["ownerReferences"] == [reference]
        deleted = await api.apply(plural, body, "two")
        assert "ownerReferences" not in deleted.expect_success().metadata
        (await api.merge(plural, "a", {"metadata": {"ownerReferences": [reference]}})).expect_success()
        deleted = await api.merge(plural, "a", {"metadata": {"ownerReferences": []}})
        assert "ownerReferences" not in deleted.expect_success().metadata


async def case_an_item_of_two_managers_stays_until_both_drop_it(api: Api) -> None:
    async def applied(manager: str, *parts: Json) -> list[Json]:
        response = await api.apply("widgets", widget("a", {"size": 1, "parts": list(parts)}), manager)
        return response.expect_success().body["spec"].get("parts", [])

    await applied("one", {"name": "x", "weight": 2}, {"name": "y"})
    await applied("two", {"name": "x", "colour": "red"})
    left = [{"name": "x", "colour": "red", "weight": 1}, {"name": "y", "weight": 1}]
    assert await applied("one", {"name": "y"}) == left
    assert await applied("two") == [{"name": "y", "weight": 1}]
    assert await applied("one") == []


async def case_item_removed_by_update_has_no_manager(api: Api) -> None:
    body = widget("a", {"size": 1, "parts": [{"name": "x"}, {"name": "y"}]})
    await api.apply("widgets", body, "one")
    await api.merge("widgets", "a", {"spec": {"parts": [{"name": "y"}]}}, fieldManager="two")
    removed = await api.json_patch("widgets", "a", {"op": "remove", "path": "/spec/parts/0"})
    assert fields_by_manager(removed)["one", "Apply", ""] == {"f:spec": {"f:size": {}}}
    assert len((await api.apply("widgets", body, "one")).expect_success().body["spec"]["parts"]) == 2


async def case_variable_removed_by_patch_returns(api: Api) -> None:
    body, bare = deployment("a"), deployment("a")
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "E", "value": "1"}]

    def variables(response: ApiResponse) -> list[Json]:
        (container,) = response.expect_success().body["spec"]["template"]["spec"]["containers"]
        return container.get("env", [])

    await api.apply("deployments", body, "one")
    container = {"name": "app", "env": [{"name": "E", "$patch": "delete"}]}
    patched = await api.strategic("deployments", "a", {"spec": {"template": {"spec": {"containers": [container]}}}})
    assert variables(patched) == []
    assert variables(await api.apply("deployments", body, "one")) == [{"name": "E", "value": "1"}]
    assert variables(await api.apply("deployments", bare, "one")) == []


async def case_numbers_too_large_for_an_integer_are_rounded(api: Api) -> None:
    await api.create("gadgets", gadget("a", spec={"x": 1}))
    kept: list[Json] = []
    for number in (
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775809",
        "1e20",
    ):
        (await _put_spec_json(api, await api.get("gadgets", "a"), f'{{"x":{number}}}')).expect_success()
        kept.append((await api.get("gadgets", "a")).body["spec"]["x"])
    assert json.dumps(kept) == (
        "[9223372036854775807, 9223372036854776000, 18446744073709552000, "
        "-9223372036854776000, 100000000000000000000]"
    )


async def case_int_or_string_rejects_fractions(api: Api) -> None:
    for port in (80.0, True, [80]):
        body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80, "targetPort": port}]}}
        (await api.create("services", body)).expect_error(400, "BadRequest")


async def case_webhooks_receive_numbers_without_empty_fractions(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook, mutating=True):
        (await api.create("widgets", widget("a", {"size": 1.0, "free": {"x": 2.0}}))).expect_success()
    (request,) = hook.requests
    assert json.dumps([request["object"]["spec"]["size"], request["object"]["spec"]["free"]]) == '[1, {"x": 2}]'


async def case_numbers_of_a_schema_have_no_empty_fraction(api: Api) -> None:
    numbers: Json = {"type": "number", "default": 2.0, "enum": [1.0, 2.0, 2.5], "minimum": 1.0, "multipleOf": 0.5}
    spec: Json = {"type": "object", "default": {"x": 1.0}, "properties": {"x": numbers}}
    body = definition("Numbered", {"spec": spec}, {})
    body["metadata"]["name"] = f"numbereds.{api.namespace}.dev"
    body["spec"]["group"] = f"{api.namespace}.dev"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    dry_run = (await api.call("POST", path, body, {"dryRun": "All"})).expect_success()
    found = dry_run.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert json.dumps([found["default"], found["properties"]["x"]["default"]]) == '[{"x": 1}, 2]'
    assert json.dumps([found["properties"]["x"][n] for n in ("enum", "minimum")]) == "[[1, 2, 2.5], 1]"
