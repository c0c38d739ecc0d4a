"""Names and other metadata: validation, generation and pruning."""

from __future__ import annotations

import re

from apiserver_cases.api import Api, Json, config_map, widget


def _role(name: str, **metadata: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, **metadata},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }


async def case_generated_names_are_truncated(api: Api) -> None:
    body = config_map("", generateName="a" * 70)
    created = (await api.create("configmaps", body)).expect_success()
    assert re.fullmatch(r"a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", created.metadata["name"])
    assert created.metadata["generateName"] == "a" * 70


async def case_name_overrides_generate_name(api: Api) -> None:
    created = (await api.create("configmaps", config_map("given", generateName="other-"))).expect_success()
    assert (created.metadata["name"], created.metadata["generateName"]) == ("given", "other-")


async def case_generate_name_is_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("", generateName="Not_Allowed-"))
    rejected.expect_error(
        422, "Invalid", 'metadata.generateName: Invalid value: "Not_Allowed-": a lowercase RFC 1123'
    )
    assert [f for f, _ in rejected.causes()] == ["metadata.generateName", "metadata.name"]


async def case_names_of_namespaces_are_labels(api: Api) -> None:
    for name in ("a.b", "A", "-a", "x" * 64):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        rejected = await api.call("POST", "/api/v1/namespaces", body)
        rejected.expect_error(422, "Invalid", f'metadata.name: Invalid value: "{name}": ')


async def case_names_of_services_are_labels(api: Api) -> None:
    for name in ("a.b", "A", "x" * 64):
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
        rejected = await api.create("services", body)
        rejected.expect_error(422, "Invalid", f'metadata.name: Invalid value: "{name}": ')


async def case_role_names_are_path_segments(api: Api) -> None:
    (await api.create("roles", _role("Reader: all"))).expect_success()
    for name, text in (("a/b", "may not contain '/'"), ("a%b", "may not contain '%'"), ("..", "may not be '..'")):
        rejected = await api.create("roles", _role(name))
        rejected.expect_error(422, "Invalid", f'metadata.name: Invalid value: "{name}": {text}')


async def case_names_have_253_characters_at_most(api: Api) -> None:
    (await api.create("configmaps", config_map("x" * 253))).expect_success()
    rejected = await api.create("configmaps", config_map("x" * 254))
    rejected.expect_error(422, "Invalid", "must be no more than 253")


async def case_names_of_custom_resources_are_checked(api: Api) -> None:
    (await api.create("widgets", widget("a.b-c"))).expect_success()
    rejected = await api.create("widgets", widget("a_b"))
    rejected.expect_error(422, "Invalid", 'metadata.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain')


async def case_names_are_unique_within_namespaces(api: Api) -> None:
    created = (await api.create("configmaps", config_map("a"))).expect_success()
    other = f"{api.namespace}-b"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    (await api.call("POST", "/api/v1/namespaces", body)).expect_success()
    again = (await api.call("POST", f"/api/v1/namespaces/{other}/configmaps", config_map("a"))).expect_success()
    assert again.metadata["uid"] != created.metadata["uid"]


async def case_keys_of_labels_have_a_prefix_and_a_name(api: Api) -> None:
    (await api.create("configmaps", config_map("a", labels={"example.com/Tier_1.x": "Web.1_a"}))).expect_success()
    for key in ("Example.com/a", "example.com/", "/a", "-a", "a-", "x" * 64, "a b"):
        rejected = await api.create("configmaps", config_map("b", labels={key: ""}))
        rejected.expect_error(422, "Invalid", f'metadata.labels: Invalid value: "{key}": ')


async def case_annotation_keys_are_validated(api: Api) -> None:
    value = "any text,\nüñí\u2026 {}"
    created = (await api.create("configmaps", config_map("a", annotations={"Example.com/a": value}))).expect_success()
    assert created.metadata["annotations"] == {"Example.com/a": value}
    rejected = await api.create("configmaps", config_map("b", annotations={"a b": ""}))
    rejected.expect_error(422, "Invalid", 'metadata.annotations: Invalid value: "a b": ')


async def case_annotations_have_256_kib_at_most(api: Api) -> None:
    (await api.create("configmaps", config_map("a", annotations={"k": "x" * (256 * 1024 - 1)}))).expect_success()
    rejected = await api.create("configmaps", config_map("b", annotations={"k": "x" * 256 * 1024}))
    rejected.expect_error(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")


async def case_owner_references_require_all_fields(api: Api) -> None:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    (await api.create("configmaps", config_map("a", ownerReferences=[whole]))).expect_success()
    for field, text in (("apiVersion", "version must not be empty"), ("kind", "must not be empty")):
        owner = {**whole, field: ""}
        rejected = await api.create("configmaps", config_map("b", ownerReferences=[owner]))
        rejected.expect_error(422, "Invalid", f'metadata.ownerReferences.{field}: Invalid value: "": {text}')


async def case_events_own_nothing(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u"}
    rejected = await api.create("configmaps", config_map("a", ownerReferences=[owner]))
    rejected.expect_error(422, "Invalid", "is disallowed from being an owner")


async def case_duplicate_owner_references_are_dropped(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    created = (await api.create("configmaps", config_map("a", ownerReferences=[owner, owner]))).expect_success()
    assert created.metadata["ownerReferences"] == [owner]


async def case_empty_metadata_is_omitted(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        body["metadata"] |= {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
        created = (await api.create(plural, body)).expect_success()
        assert not {"labels", "annotations", "finalizers", "ownerReferences"} & set(created.metadata)


async def case_null_metadata_is_omitted(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        body["metadata"] |= {"labels": None, "annotations": None, "finalizers": None, "creationTimestamp": None}
        created = (await api.create(plural, body)).expect_success()
        assert not {"labels", "annotations", "finalizers"} & set(created.metadata)
        assert created.metadata["creationTimestamp"]


async def case_unknown_metadata_is_dropped(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", odd=1)), ("widgets", widget("a", odd=1))):
        assert "odd" not in (await api.create(plural, body)).expect_success().metadata


async def case_deletion_timestamp_cannot_be_written(api: Api) -> None:
    body = widget("a", deletionTimestamp="2001-01-01T00:00:00Z", deletionGracePeriodSeconds=5)
    created = (await api.create("widgets", body)).expect_success()
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds"} & set(created.metadata)
    rejected = await api.merge("widgets", "a", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}})
    text = 'metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable'
    rejected.expect_error(422, "Invalid", text)


async def case_identity_is_immutable(api: Api) -> None:
    created = (await api.create("widgets", widget("a"))).expect_success()
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "x"}}
    changed = (await api.merge("widgets", "a", patch)).expect_success()
    for name in ("uid", "creationTimestamp", "generation", "name", "namespace"):
        assert changed.metadata[name] == created.metadata[name]
    assert "selfLink" not in changed.metadata


async def case_cluster_scoped_objects_drop_namespace(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{api.namespace}-c", "namespace": "x"}}
    created = (await api.call("POST", "/api/v1/namespaces", body)).expect_success()
    assert "namespace" not in created.metadata


async def case_body_namespace_is_optional(api: Api) -> None:
    assert (await api.create("widgets", widget("a"))).expect_success().metadata["namespace"] == api.namespace
    created = await api.create("widgets", widget("b", namespace=api.namespace))
    assert created.expect_success().metadata["namespace"] == api.namespace


async def case_metadata_changes_keep_generation(api: Api) -> None:
    await api.create("widgets", widget("a", labels={"a": "1"}))
    patch = {"metadata": {"labels": {"a": None, "b": "2"}, "annotations": {"c": "3"}}}
    changed = (await api.merge("widgets", "a", patch)).expect_success()
    assert (changed.metadata["labels"], changed.metadata["annotations"]) == ({"b": "2"}, {"c": "3"})
    assert changed.metadata["generation"] == 1
