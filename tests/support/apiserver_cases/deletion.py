"""Deletion: answers, preconditions, finalizers. What controllers do afterwards is not part of these cases."""

from __future__ import annotations

from apiserver_cases.api import Api, config_map, deployment, widget


async def case_delete_answers_with_a_status(api: Api) -> None:
    made = await api.create("deployments", deployment("a"))
    reply = (await api.delete("deployments", "a", {"propagationPolicy": "Background"})).ok()
    assert reply.code == 200
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    assert reply.body["details"] == {
        "name": "a",
        "group": "apps",
        "kind": "deployments",
        "uid": made.metadata["uid"],
    }
    (await api.get("deployments", "a")).refused(404, "NotFound")


async def case_preconditions_must_hold(api: Api) -> None:
    made = await api.create("configmaps", config_map("a"))
    refused = await api.delete("configmaps", "a", {"preconditions": {"uid": "other"}})
    refused.refused(409, "Conflict")
    refused = await api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})
    refused.refused(409, "Conflict")
    preconditions = {"uid": made.metadata["uid"], "resourceVersion": made.version}
    (await api.delete("configmaps", "a", {"preconditions": preconditions})).ok()


async def case_finalizers_hold_an_object(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    marked = (await api.delete("widgets", "a")).ok()
    assert marked.metadata["deletionTimestamp"]
    assert marked.metadata["deletionGracePeriodSeconds"] == 0
    assert marked.metadata["generation"] == 2
    again = (await api.delete("widgets", "a")).ok()
    assert again.version == marked.version
    released = (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).ok()
    assert "finalizers" not in released.metadata
    (await api.get("widgets", "a")).refused(404, "NotFound")


async def case_apply_can_release_the_last_finalizer(api: Api) -> None:
    await api.apply("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.apply("widgets", widget("a"))).ok()
    (await api.get("widgets", "a")).refused(404, "NotFound")


async def case_no_finalizer_is_added_during_deletion(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    patch = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    refused = await api.merge("configmaps", "a", patch)
    text = (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/more"}'
    )
    refused.refused(422, "Invalid", text)
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).ok()


async def case_an_object_in_deletion_can_be_changed(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    changed = (await api.merge("widgets", "a", {"spec": {"size": 7}})).ok()
    assert changed.body["spec"]["size"] == 7
    assert changed.metadata["deletionTimestamp"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": []}})).ok()


async def case_the_deletion_mark_cannot_be_taken_back(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.merge("widgets", "a", {"metadata": {"deletionTimestamp": None}})).ok()
    assert "deletionTimestamp" in (await api.get("widgets", "a")).metadata
    (await api.merge("widgets", "a", {"metadata": {"finalizers": []}})).ok()


async def case_propagation_policies_add_finalizers(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await api.create("configmaps", config_map(policy.lower(), finalizers=["example.com/hold"]))
        marked = (await api.delete("configmaps", policy.lower(), {"propagationPolicy": policy})).ok()
        assert finalizer in marked.metadata["finalizers"]


async def case_unknown_propagation_policies_are_refused(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    (await api.delete("configmaps", "a", {"propagationPolicy": "Odd"})).refused(422, "Invalid")


async def case_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.create("configmaps", config_map(name, labels={"l": label}))
    reply = (await api.call("DELETE", api.path("configmaps"), None, {"labelSelector": "l=x"})).ok()
    assert reply.body["kind"] == "ConfigMapList"
    assert [i["metadata"]["name"] for i in reply.body["items"]] == ["a", "c"]
    left = await api.list("configmaps")
    assert [i["metadata"]["name"] for i in left.body["items"]] == ["b"]


async def case_a_name_can_be_used_again(api: Api) -> None:
    made = await api.create("configmaps", config_map("a"))
    await api.delete("configmaps", "a")
    again = (await api.create("configmaps", config_map("a"))).ok()
    assert again.metadata["uid"] != made.metadata["uid"]


async def case_the_first_namespaces_stay(api: Api) -> None:
    refused = await api.call("DELETE", "/api/v1/namespaces/default")
    refused.refused(403, "Forbidden", 'namespaces "default" is forbidden: this namespace may not be deleted')


async def case_nothing_is_created_in_a_namespace_in_deletion(api: Api) -> None:
    (await api.create("configmaps", config_map("hold", finalizers=["example.com/hold"]))).ok()
    marked = (await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")).ok()
    assert marked.body["status"]["phase"] == "Terminating"
    refused = await api.create("configmaps", config_map("a"))
    text = (
        f'configmaps "a" is forbidden: unable to create new content in namespace {api.namespace} '
        "because it is being terminated"
    )
    refused.refused(403, "Forbidden", text)
    assert refused.causes() == [("metadata.namespace", "NamespaceTerminating")]
    (await api.merge("configmaps", "hold", {"metadata": {"finalizers": None}})).ok()
