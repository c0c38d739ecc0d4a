"""Updates of objects: versions, status, immutable fields and dry runs."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map, deployment, widget


async def case_update_replaces(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1", "y": "1"}, labels={"l": "1"}))
    changed = (await api.put("configmaps", config_map("a", {"x": "2"}))).expect_success()
    assert changed.code == 200
    assert changed.body["data"] == {"x": "2"}
    assert "labels" not in changed.metadata
    assert changed.metadata["uid"] == created.metadata["uid"]
    assert changed.metadata["creationTimestamp"] == created.metadata["creationTimestamp"]
    assert int(changed.resource_version) > int(created.resource_version)


async def case_update_with_an_old_version_conflicts(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    (
        await api.put("configmaps", config_map("a", {"x": "2"}, resourceVersion=created.resource_version))
    ).expect_success()
    rejected = await api.put("configmaps", config_map("a", {"x": "3"}, resourceVersion=created.resource_version))
    rejected.expect_error(
        409, "Conflict", 'Operation cannot be fulfilled on configmaps "a": the object has been modified'
    )
    assert rejected.body["details"] == {"name": "a", "kind": "configmaps"}


async def case_update_of_another_uid_conflicts(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"x": "1"}))
    rejected = await api.put("configmaps", config_map("a", {"x": "3"}, uid="other"))
    rejected.expect_error(409, "Conflict", "Precondition failed: UID in precondition: other, UID in object meta: ")


async def case_update_of_another_name_is_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.call("PUT", api.path("configmaps", "a"), config_map("b"))
    rejected.expect_error(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")


async def case_update_of_a_custom_resource_needs_a_version(api: Api) -> None:
    await api.create("widgets", widget("a"))
    rejected = await api.put("widgets", widget("a", {"size": 2}))
    rejected.expect_error(422, "Invalid", "metadata.resourceVersion: Invalid value: ")
    assert "must be specified for an update" in rejected.message


async def case_an_update_without_change_keeps_the_version(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"x": "1"}))
    same = (await api.put("configmaps", config_map("a", {"x": "1"}))).expect_success()
    assert same.resource_version == created.resource_version
    created = await api.create("deployments", deployment("a"))
    same = (await api.put("deployments", created.body)).expect_success()
    assert same.resource_version == created.resource_version


async def case_generation_counts_changes_of_the_spec(api: Api) -> None:
    created = await api.create("widgets", widget("a"))
    labelled = await api.merge("widgets", "a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.metadata["generation"] == 1
    assert labelled.resource_version != created.resource_version
    resized = await api.merge("widgets", "a", {"spec": {"size": 2}})
    assert resized.metadata["generation"] == 2
    (await api.create("deployments", deployment("a"))).expect_success()
    scaled = await api.merge("deployments", "a", {"spec": {"replicas": 3}})
    assert scaled.metadata["generation"] == 2


async def case_status_is_written_separately(api: Api) -> None:
    created = (await api.create("widgets", {**widget("a"), "status": {"ready": 5}})).expect_success()
    assert "status" not in created.body
    body = {**created.body, "status": {"ready": 1}}
    assert (await api.put("widgets", body)).expect_success().resource_version == created.resource_version
    body["spec"] = {"size": 99}
    body["metadata"] = {**created.metadata, "labels": {"x": "y"}}
    written = (await api.put("widgets", body, "status")).expect_success()
    assert written.body["status"] == {"ready": 1}
    assert written.body["spec"]["size"] == 1
    assert "labels" not in written.metadata
    assert written.metadata["generation"] == 1
    assert (await api.get("widgets", "a", "status")).body == written.body


async def case_status_of_built_in_kinds_is_written_separately(api: Api) -> None:
    created = (await api.create("deployments", {**deployment("a"), "status": {"replicas": 5}})).expect_success()
    assert created.body.get("status", {}) == {}
    changed = await api.merge("deployments", "a", {"spec": {"replicas": 2}, "status": {"replicas": 2}}, "status")
    assert changed.expect_success().body["spec"]["replicas"] == 1
    assert changed.body["status"]["replicas"] == 2
    changed = await api.merge("deployments", "a", {"status": {"replicas": 9}})
    assert changed.body["status"]["replicas"] == 2


async def case_a_kind_without_status_subresource_has_no_such_path(api: Api) -> None:
    await api.create("gadgets", {"apiVersion": "cases.steersman.dev/v1", "kind": "Gadget", "metadata": {"name": "a"}})
    assert (await api.get("gadgets", "a", "status")).code == 404
    assert (await api.get("configmaps", "a", "status")).code == 404


async def case_write_options_are_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a"), dryRun="x")
    rejected.expect_error(422, "Invalid", 'dryRun: Unsupported value: ["x"]: supported values: "All"')
    rejected = await api.create("configmaps", config_map("a"), fieldManager="x" * 129)
    rejected.expect_error(422, "Invalid", "fieldManager: Too long: may not be more than 128 bytes")


async def case_put_creates_leases_and_roles(api: Api) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    assert (await api.put("leases", lease)).expect_success().metadata["uid"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}}
    assert (await api.put("roles", role)).expect_success().metadata["uid"]


async def case_dry_run_stores_nothing(api: Api) -> None:
    created = (await api.create("configmaps", config_map("a", {"k": "v"}), dryRun="All")).expect_success()
    assert created.metadata["uid"]
    (await api.get("configmaps", "a")).expect_error(404, "NotFound")
    await api.create("configmaps", config_map("a", {"k": "v"}))
    changed = (await api.put("configmaps", config_map("a", {"k": "w"}), dryRun="All")).expect_success()
    assert changed.body["data"] == {"k": "w"}
    assert (await api.get("configmaps", "a")).body["data"] == {"k": "v"}
    (await api.call("DELETE", api.path("configmaps", "a"), None, {"dryRun": "All"})).expect_success()
    (await api.get("configmaps", "a")).expect_success()


async def case_immutable_fields_are_rejected(api: Api) -> None:
    (await api.create("configmaps", {**config_map("a", {"k": "v"}), "immutable": True})).expect_success()
    rejected = await api.merge("configmaps", "a", {"data": {"k": "w"}})
    rejected.expect_error(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
    (await api.create("deployments", deployment("a"))).expect_success()
    labels = {"matchLabels": {"app": "a", "more": "x"}}
    template = {"metadata": {"labels": {"app": "a", "more": "x"}}}
    rejected = await api.merge("deployments", "a", {"spec": {"selector": labels, "template": template}})
    rejected.expect_error(422, "Invalid", "spec.selector: Invalid value: ")
    assert "field is immutable" in rejected.message


async def case_resource_versions_of_updates(api: Api) -> None:
    lease: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}}
    for plural, body, unconditional in (
        ("configmaps", config_map("a", {"x": "1"}), True),
        ("widgets", widget("a"), False),
        ("leases", lease, False),
    ):
        (await api.create(plural, body)).expect_success()
        for version, code in (("0", 422), ("00", 422), ("", 422), ("1", 409), ("x", 500), ("-1", 500)):
            sent: Json = {"name": "a", "resourceVersion": version}
            expected = 200 if unconditional and code == 422 else code
            put = await api.put(plural, {**body, "metadata": sent})
            merged = await api.merge(plural, "a", {"metadata": {"resourceVersion": version}})
            applied = await api.apply(plural, {**body, "metadata": sent}, force=True)
            assert {put.code, merged.code, applied.code} == {expected}
        await api.merge(plural, "a", {"metadata": {"resourceVersion": None}})


async def case_metadata_types_are_validated(api: Api) -> None:
    unfit: list[Json] = [{"resourceVersion": 5}, {"uid": True}, {"labels": {"a": 1}}, {"finalizers": "x"}]
    unfit.append({"labels": []})
    for plural, body in (("configmaps", config_map("a", {"x": "1"})), ("widgets", widget("a"))):
        (await api.create(plural, body)).expect_success()
        for meta in unfit:
            wrong: Json = {**body, "metadata": {"name": "a", **meta}}
            (await api.create(plural, wrong)).expect_error(400, "BadRequest")
            (await api.put(plural, wrong)).expect_error(400, "BadRequest")
            (await api.merge(plural, "a", {"metadata": meta})).expect_error(422, "Invalid")
            (await api.apply(plural, wrong)).expect_error(500, "")
        nothing = {"generateName": None, "labels": None, "uid": None, "finalizers": None, "resourceVersion": None}
        (await api.create(plural, {**body, "metadata": {"name": "b", **nothing}})).expect_success()
