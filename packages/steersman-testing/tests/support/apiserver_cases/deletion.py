"""Deletion: responses, preconditions and finalizers, without controllers."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget


async def case_delete_returns_status(api: Api) -> None:
    created = await api.create("deployments", deployment("a"))
    response = (await api.delete("deployments", "a", {"propagationPolicy": "Background"})).expect_success()
    assert response.code == 200
    assert (response.body["kind"], response.body["status"]) == ("Status", "Success")
    assert response.body["details"] == {
        "name": "a",
        "group": "apps",
        "kind": "deployments",
        "uid": created.metadata["uid"],
    }
    (await api.get("deployments", "a")).expect_error(404, "NotFound")


async def case_preconditions_must_hold(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    rejected = await api.delete("configmaps", "a", {"preconditions": {"uid": "other"}})
    rejected.expect_error(409, "Conflict")
    rejected = await api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})
    rejected.expect_error(409, "Conflict")
    preconditions = {"uid": created.metadata["uid"], "resourceVersion": created.resource_version}
    (await api.delete("configmaps", "a", {"preconditions": preconditions})).expect_success()


async def case_finalizers_hold_an_object(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    deleting = (await api.delete("widgets", "a")).expect_success()
    assert deleting.metadata["deletionTimestamp"]
    assert deleting.metadata["deletionGracePeriodSeconds"] == 0
    assert deleting.metadata["generation"] == 2
    again = (await api.delete("widgets", "a")).expect_success()
    assert again.resource_version == deleting.resource_version
    released = (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).expect_success()
    assert "finalizers" not in released.metadata
    (await api.get("widgets", "a")).expect_error(404, "NotFound")


async def case_apply_can_remove_the_last_finalizer(api: Api) -> None:
    await api.apply("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.apply("widgets", widget("a"))).expect_success()
    (await api.get("widgets", "a")).expect_error(404, "NotFound")


async def case_no_finalizer_is_added_during_deletion(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    patch = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    rejected = await api.merge("configmaps", "a", patch)
    text = (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/more"}'
    )
    rejected.expect_error(422, "Invalid", text)
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_objects_can_change_during_deletion(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    changed = (await api.merge("widgets", "a", {"spec": {"size": 7}})).expect_success()
    assert changed.body["spec"]["size"] == 7
    assert changed.metadata["deletionTimestamp"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": []}})).expect_success()


async def case_deletion_timestamp_cannot_be_removed(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.delete("widgets", "a")
    (await api.merge("widgets", "a", {"metadata": {"deletionTimestamp": None}})).expect_success()
    assert "deletionTimestamp" in (await api.get("widgets", "a")).metadata
    (await api.merge("widgets", "a", {"metadata": {"finalizers": []}})).expect_success()


async def case_propagation_policies_add_finalizers(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await api.create("configmaps", config_map(policy.lower(), finalizers=["example.com/hold"]))
        deleting = (await api.delete("configmaps", policy.lower(), {"propagationPolicy": policy})).expect_success()
        assert finalizer in deleting.metadata["finalizers"]


async def case_unknown_propagation_policies_are_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    (await api.delete("configmaps", "a", {"propagationPolicy": "Odd"})).expect_error(422, "Invalid")


async def case_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.create("configmaps", config_map(name, labels={"l": label}))
    response = (await api.call("DELETE", api.path("configmaps"), None, {"labelSelector": "l=x"})).expect_success()
    assert response.body["kind"] == "ConfigMapList"
    assert [i["metadata"]["name"] for i in response.body["items"]] == ["a", "c"]
    left = await api.list("configmaps")
    assert [i["metadata"]["name"] for i in left.body["items"]] == ["b"]


async def case_a_name_can_be_used_again(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    await api.delete("configmaps", "a")
    again = (await api.create("configmaps", config_map("a"))).expect_success()
    assert again.metadata["uid"] != created.metadata["uid"]


async def case_initial_namespaces_cannot_be_deleted(api: Api) -> None:
    rejected = await api.call("DELETE", "/api/v1/namespaces/default")
    rejected.expect_error(403, "Forbidden", 'namespaces "default" is forbidden: this namespace may not be deleted')


async def case_creates_in_terminating_namespaces_are_rejected(api: Api) -> None:
    (await api.create("configmaps", config_map("hold", finalizers=["example.com/hold"]))).expect_success()
    deleting = (await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")).expect_success()
    assert deleting.body["status"]["phase"] == "Terminating"
    rejected = await api.create("configmaps", config_map("a"))
    text = (
        f'configmaps "a" is forbidden: unable to create new content in namespace {api.namespace} '
        "because it is being terminated"
    )
    rejected.expect_error(403, "Forbidden", text)
    assert rejected.causes() == [("metadata.namespace", "NamespaceTerminating")]
    (await api.merge("configmaps", "hold", {"metadata": {"finalizers": None}})).expect_success()


async def _pod(api: Api, name: str = "a", **spec: Any) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    containers = [{"name": "c", "image": "i:1"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    (await api.create("pods", body)).expect_success()


async def case_pod_on_node_has_grace_period(api: Api) -> None:
    await _pod(api, nodeName="one", terminationGracePeriodSeconds=20)
    deleting = (await api.delete("pods", "a")).expect_success()
    assert deleting.metadata["deletionGracePeriodSeconds"] == 20
    assert deleting.metadata["deletionTimestamp"] > deleting.metadata["creationTimestamp"]
    shorter = (await api.delete("pods", "a", {"gracePeriodSeconds": 5})).expect_success()
    assert shorter.metadata["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete("pods", "a", {"gracePeriodSeconds": 60})).expect_success()
    assert longer.metadata["deletionGracePeriodSeconds"] == 5
    (await api.delete("pods", "a", {"gracePeriodSeconds": 0})).expect_success()
    (await api.get("pods", "a")).expect_error(404, "NotFound")


async def case_unscheduled_pod_is_deleted_immediately(api: Api) -> None:
    await _pod(api)
    deleted = (await api.delete("pods", "a")).expect_success()
    assert deleted.body["kind"] == "Pod"
    (await api.get("pods", "a")).expect_error(404, "NotFound")


async def case_a_grace_period_can_be_a_query(api: Api) -> None:
    await _pod(api, nodeName="one")
    deleting = (await api.delete("pods", "a", gracePeriodSeconds="7")).expect_success()
    assert deleting.metadata["deletionGracePeriodSeconds"] == 7


async def case_a_grace_period_below_zero_means_one_second(api: Api) -> None:
    await _pod(api, nodeName="one")
    deleting = (await api.delete("pods", "a", {"gracePeriodSeconds": -1})).expect_success()
    assert deleting.metadata["deletionGracePeriodSeconds"] == 1


async def case_some_kinds_return_deleted_object(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    for plural, body in (("serviceaccounts", account), ("services", service)):
        created = (await api.create(plural, body)).expect_success()
        deleted = (await api.delete(plural, "s")).expect_success()
        assert (deleted.body["kind"], deleted.metadata["uid"]) == (body["kind"], created.metadata["uid"])
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        (await api.create(plural, body)).expect_success()
        assert (await api.delete(plural, "a")).expect_success().body["kind"] == "Status"


async def case_a_propagation_can_be_a_query(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    deleting = (await api.delete("configmaps", "a", propagationPolicy="Foreground")).expect_success()
    assert "foregroundDeletion" in deleting.metadata["finalizers"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_orphan_dependents_is_deprecated(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    deleting = (await api.delete("configmaps", "a", {"orphanDependents": True})).expect_success()
    assert "orphan" in deleting.metadata["finalizers"]
    await api.create("configmaps", config_map("b"))
    both = {"orphanDependents": True, "propagationPolicy": "Background"}
    text = "orphanDependents and deletionPropagation cannot be both set"
    (await api.delete("configmaps", "b", both)).expect_error(422, "Invalid", text)


async def case_a_later_policy_replaces_an_earlier_one(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a", {"propagationPolicy": "Orphan"})
    deleting = (await api.delete("configmaps", "a", {"propagationPolicy": "Foreground"})).expect_success()
    assert sorted(deleting.metadata["finalizers"]) == ["example.com/hold", "foregroundDeletion"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_delete_options_are_validated(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    text = 'dryRun: Unsupported value: ["x"]: supported values: "All"'
    (await api.delete("configmaps", "a", {"dryRun": ["x"]})).expect_error(422, "Invalid", text)
    (await api.delete("configmaps", "a", dryRun="x")).expect_error(422, "Invalid", text)
    rejected = await api.call("DELETE", api.path("configmaps", "a"), b"{")
    rejected.expect_error(400, "BadRequest")
    (await api.get("configmaps", "a")).expect_success()


async def case_delete_supports_dry_run(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    assert (await api.delete("configmaps", "a", {"dryRun": ["All"]})).expect_success().body["status"] == "Success"
    (await api.get("configmaps", "a")).expect_success()
    dry_run = (await api.delete("widgets", "a", {"dryRun": ["All"]})).expect_success()
    assert dry_run.metadata["deletionTimestamp"]
    assert "deletionTimestamp" not in (await api.get("widgets", "a")).metadata


async def case_failed_precondition_is_reported(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    uid = created.metadata["uid"]
    rejected = await api.delete("configmaps", "a", {"preconditions": {"uid": "other"}})
    text = (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID '
        f"in record ({uid}). The object might have been deleted and then recreated"
    )
    assert rejected.expect_error(409, "Conflict").message == text
    rejected = await api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})
    rejected.expect_error(
        409, "Conflict", f"the ResourceVersion in record ({created.resource_version}). The object might have been"
    )


async def case_preconditions_apply_during_deletion(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    options = {"preconditions": {"uid": created.metadata["uid"], "resourceVersion": created.resource_version}}
    (await api.delete("configmaps", "a", options)).expect_error(409, "Conflict")
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_a_collection_is_deleted_by_field(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("configmaps", config_map(name))
    query = {"fieldSelector": "metadata.name=a"}
    deleted = (await api.call("DELETE", api.path("configmaps"), None, query)).expect_success()
    assert [i["metadata"]["name"] for i in deleted.body["items"]] == ["a"]
    assert [i["metadata"]["name"] for i in (await api.list("configmaps")).body["items"]] == ["b"]


async def case_an_empty_collection_is_deleted(api: Api) -> None:
    for plural, kind in (("configmaps", "ConfigMapList"), ("widgets", "WidgetList")):
        deleted = (await api.call("DELETE", api.path(plural))).expect_success()
        assert (deleted.body["kind"], deleted.body["items"]) == (kind, [])


async def case_deletecollection_supports_dry_run(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    (await api.call("DELETE", api.path("configmaps"), None, {"dryRun": "All"})).expect_success()
    (await api.call("DELETE", api.path("configmaps"), {"dryRun": ["All"]})).expect_success()
    (await api.get("configmaps", "a")).expect_success()


async def case_collection_objects_with_finalizers_are_marked(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.create("widgets", widget("b"))
    (await api.call("DELETE", api.path("widgets"))).expect_success()
    (left,) = (await api.list("widgets")).body["items"]
    assert left["metadata"]["name"] == "a"
    assert left["metadata"]["deletionTimestamp"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_deletecollection_validates_selectors(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    for query in ({"labelSelector": "=x"}, {"fieldSelector": "data.x=1"}):
        (await api.call("DELETE", api.path("configmaps"), None, query)).expect_error(400, "BadRequest")
    (await api.get("configmaps", "a")).expect_success()


async def case_deletecollection_policy_applies_to_each_object(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    (await api.call("DELETE", api.path("configmaps"), {"propagationPolicy": "Orphan"})).expect_success()
    assert "orphan" in (await api.get("configmaps", "a")).metadata["finalizers"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_a_finalizer_removed_by_a_status_write_stays(api: Api) -> None:
    created = await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    body: Json = {**created.body, "metadata": {**created.metadata, "finalizers": []}, "status": {"ready": 1}}
    written = (await api.put("widgets", body, "status")).expect_success()
    assert written.metadata["finalizers"] == ["example.com/hold"]


async def case_objects_can_be_created_with_finalizers(api: Api) -> None:
    created = (await api.create("configmaps", config_map("a", finalizers=["foregroundDeletion"]))).expect_success()
    assert created.metadata["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" not in created.metadata


def _job(name: str) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


async def case_jobs_orphan_their_pods_by_default(api: Api) -> None:
    for name in "abcd":
        (await api.create("jobs", _job(name))).expect_success()
    for _ in range(2):
        assert (await api.delete("jobs", "a")).expect_success().metadata["finalizers"] == ["orphan"]
    await api.delete("jobs", "b", {"propagationPolicy": "Background"})
    (await api.get("jobs", "b")).expect_error(404, "NotFound")
    held = (await api.delete("jobs", "c", {"propagationPolicy": "Foreground"})).expect_success()
    assert held.metadata["finalizers"] == ["foregroundDeletion"]
    assert (await api.delete("jobs", "c")).expect_success().metadata["finalizers"] == ["foregroundDeletion"]
    await api.delete("jobs", "a", {"propagationPolicy": "Background"})
    (await api.get("jobs", "a")).expect_error(404, "NotFound")
    (await api.call("DELETE", api.path("jobs"))).expect_success()
    assert (await api.get("jobs", "d")).metadata["finalizers"] == ["orphan"]
    for name in "cd":
        (await api.merge("jobs", name, {"metadata": {"finalizers": None}})).expect_success()


async def case_events_have_no_dependents(api: Api) -> None:
    about = {"namespace": api.namespace}
    event: Json = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": about}
    for policy in ("Orphan", "Foreground", "Background"):
        (await api.create("events", event)).expect_success()
        (await api.delete("events", "a", {"propagationPolicy": policy})).expect_success()
        (await api.get("events", "a")).expect_error(404, "NotFound")
    event["metadata"] = {"name": "a", "finalizers": ["example.com/hold", "orphan"]}
    (await api.create("events", event)).expect_success()
    assert (await api.delete("events", "a")).expect_success().metadata["finalizers"] == ["example.com/hold"]
    (await api.merge("events", "a", {"metadata": {"finalizers": None}})).expect_success()


async def case_three_namespaces_cannot_be_deleted(api: Api) -> None:
    for name in ("default", "kube-system", "kube-public"):
        rejected = await api.call("DELETE", f"/api/v1/namespaces/{name}", {"dryRun": ["All"]})
        rejected.expect_error(
            403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )
        options = {"dryRun": ["All"], "preconditions": {"uid": "other"}}
        (await api.call("DELETE", f"/api/v1/namespaces/{name}", options)).expect_error(409, "Conflict")
    (await api.call("DELETE", "/api/v1/namespaces/kube-node-lease", {"dryRun": ["All"]})).expect_success()
