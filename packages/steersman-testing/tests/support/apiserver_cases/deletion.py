"""Deletion: answers, preconditions, finalizers. What controllers do afterwards is not part of these cases."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget


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


async def _pod(api: Api, name: str = "a", **spec: Any) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    containers = [{"name": "c", "image": "i:1"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}
    (await api.create("pods", body)).ok()


async def case_a_pod_on_a_node_is_given_time(api: Api) -> None:
    await _pod(api, nodeName="one", terminationGracePeriodSeconds=20)
    marked = (await api.delete("pods", "a")).ok()
    assert marked.metadata["deletionGracePeriodSeconds"] == 20
    assert marked.metadata["deletionTimestamp"] > marked.metadata["creationTimestamp"]
    shorter = (await api.delete("pods", "a", {"gracePeriodSeconds": 5})).ok()
    assert shorter.metadata["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete("pods", "a", {"gracePeriodSeconds": 60})).ok()
    assert longer.metadata["deletionGracePeriodSeconds"] == 5
    (await api.delete("pods", "a", {"gracePeriodSeconds": 0})).ok()
    (await api.get("pods", "a")).refused(404, "NotFound")


async def case_a_pod_on_no_node_goes_at_once(api: Api) -> None:
    await _pod(api)
    gone = (await api.delete("pods", "a")).ok()
    assert gone.body["kind"] == "Pod"
    (await api.get("pods", "a")).refused(404, "NotFound")


async def case_a_grace_period_can_be_a_query(api: Api) -> None:
    await _pod(api, nodeName="one")
    marked = (await api.delete("pods", "a", gracePeriodSeconds="7")).ok()
    assert marked.metadata["deletionGracePeriodSeconds"] == 7


async def case_a_grace_period_below_zero_means_one_second(api: Api) -> None:
    await _pod(api, nodeName="one")
    marked = (await api.delete("pods", "a", {"gracePeriodSeconds": -1})).ok()
    assert marked.metadata["deletionGracePeriodSeconds"] == 1


async def case_some_kinds_answer_with_what_they_were(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    for plural, body in (("serviceaccounts", account), ("services", service)):
        made = (await api.create(plural, body)).ok()
        gone = (await api.delete(plural, "s")).ok()
        assert (gone.body["kind"], gone.metadata["uid"]) == (body["kind"], made.metadata["uid"])
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        (await api.create(plural, body)).ok()
        assert (await api.delete(plural, "a")).ok().body["kind"] == "Status"


async def case_a_propagation_can_be_a_query(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    marked = (await api.delete("configmaps", "a", propagationPolicy="Foreground")).ok()
    assert "foregroundDeletion" in marked.metadata["finalizers"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).ok()


async def case_the_older_way_to_orphan(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    marked = (await api.delete("configmaps", "a", {"orphanDependents": True})).ok()
    assert "orphan" in marked.metadata["finalizers"]
    await api.create("configmaps", config_map("b"))
    both = {"orphanDependents": True, "propagationPolicy": "Background"}
    text = "orphanDependents and deletionPropagation cannot be both set"
    (await api.delete("configmaps", "b", both)).refused(422, "Invalid", text)


async def case_a_later_policy_replaces_an_earlier_one(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a", {"propagationPolicy": "Orphan"})
    marked = (await api.delete("configmaps", "a", {"propagationPolicy": "Foreground"})).ok()
    assert sorted(marked.metadata["finalizers"]) == ["example.com/hold", "foregroundDeletion"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).ok()


async def case_options_of_a_deletion_are_checked(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    text = 'dryRun: Unsupported value: ["x"]: supported values: "All"'
    (await api.delete("configmaps", "a", {"dryRun": ["x"]})).refused(422, "Invalid", text)
    (await api.delete("configmaps", "a", dryRun="x")).refused(422, "Invalid", text)
    refused = await api.call("DELETE", api.path("configmaps", "a"), b"{")
    refused.refused(400, "BadRequest")
    (await api.get("configmaps", "a")).ok()


async def case_a_deletion_can_be_tried(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    assert (await api.delete("configmaps", "a", {"dryRun": ["All"]})).ok().body["status"] == "Success"
    (await api.get("configmaps", "a")).ok()
    tried = (await api.delete("widgets", "a", {"dryRun": ["All"]})).ok()
    assert tried.metadata["deletionTimestamp"]
    assert "deletionTimestamp" not in (await api.get("widgets", "a")).metadata


async def case_a_broken_precondition_is_told(api: Api) -> None:
    made = await api.create("configmaps", config_map("a"))
    uid = made.metadata["uid"]
    refused = await api.delete("configmaps", "a", {"preconditions": {"uid": "other"}})
    text = (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID '
        f"in record ({uid}). The object might have been deleted and then recreated"
    )
    assert refused.refused(409, "Conflict").message == text
    refused = await api.delete("configmaps", "a", {"preconditions": {"resourceVersion": "1"}})
    refused.refused(409, "Conflict", f"the ResourceVersion in record ({made.version}). The object might have been")


async def case_a_precondition_holds_for_what_is_being_deleted(api: Api) -> None:
    made = await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    await api.delete("configmaps", "a")
    options = {"preconditions": {"uid": made.metadata["uid"], "resourceVersion": made.version}}
    (await api.delete("configmaps", "a", options)).refused(409, "Conflict")
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).ok()


async def case_a_collection_is_deleted_by_field(api: Api) -> None:
    for name in ("a", "b"):
        await api.create("configmaps", config_map(name))
    query = {"fieldSelector": "metadata.name=a"}
    gone = (await api.call("DELETE", api.path("configmaps"), None, query)).ok()
    assert [i["metadata"]["name"] for i in gone.body["items"]] == ["a"]
    assert [i["metadata"]["name"] for i in (await api.list("configmaps")).body["items"]] == ["b"]


async def case_an_empty_collection_is_deleted(api: Api) -> None:
    for plural, kind in (("configmaps", "ConfigMapList"), ("widgets", "WidgetList")):
        gone = (await api.call("DELETE", api.path(plural))).ok()
        assert (gone.body["kind"], gone.body["items"]) == (kind, [])


async def case_a_collections_deletion_can_be_tried(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    (await api.call("DELETE", api.path("configmaps"), None, {"dryRun": "All"})).ok()
    (await api.call("DELETE", api.path("configmaps"), {"dryRun": ["All"]})).ok()
    (await api.get("configmaps", "a")).ok()


async def case_held_objects_of_a_collection_are_marked(api: Api) -> None:
    await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    await api.create("widgets", widget("b"))
    (await api.call("DELETE", api.path("widgets"))).ok()
    (left,) = (await api.list("widgets")).body["items"]
    assert left["metadata"]["name"] == "a"
    assert left["metadata"]["deletionTimestamp"]
    (await api.merge("widgets", "a", {"metadata": {"finalizers": None}})).ok()


async def case_a_collections_selectors_are_checked(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    for query in ({"labelSelector": "=x"}, {"fieldSelector": "data.x=1"}):
        (await api.call("DELETE", api.path("configmaps"), None, query)).refused(400, "BadRequest")
    (await api.get("configmaps", "a")).ok()


async def case_a_collections_policy_holds_for_each(api: Api) -> None:
    await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))
    (await api.call("DELETE", api.path("configmaps"), {"propagationPolicy": "Orphan"})).ok()
    assert "orphan" in (await api.get("configmaps", "a")).metadata["finalizers"]
    (await api.merge("configmaps", "a", {"metadata": {"finalizers": None}})).ok()


async def case_a_finalizer_removed_by_a_status_write_stays(api: Api) -> None:
    made = await api.create("widgets", widget("a", finalizers=["example.com/hold"]))
    body: Json = {**made.body, "metadata": {**made.metadata, "finalizers": []}, "status": {"ready": 1}}
    written = (await api.put("widgets", body, "status")).ok()
    assert written.metadata["finalizers"] == ["example.com/hold"]


async def case_a_created_object_can_be_held_already(api: Api) -> None:
    made = (await api.create("configmaps", config_map("a", finalizers=["foregroundDeletion"]))).ok()
    assert made.metadata["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" not in made.metadata


def _job(name: str) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


async def case_jobs_leave_their_pods_unless_told(api: Api) -> None:
    for name in "abcd":
        (await api.create("jobs", _job(name))).ok()
    for _ in range(2):
        assert (await api.delete("jobs", "a")).ok().metadata["finalizers"] == ["orphan"]
    await api.delete("jobs", "b", {"propagationPolicy": "Background"})
    (await api.get("jobs", "b")).refused(404, "NotFound")
    held = (await api.delete("jobs", "c", {"propagationPolicy": "Foreground"})).ok()
    assert held.metadata["finalizers"] == ["foregroundDeletion"]
    assert (await api.delete("jobs", "c")).ok().metadata["finalizers"] == ["foregroundDeletion"]
    await api.delete("jobs", "a", {"propagationPolicy": "Background"})
    (await api.get("jobs", "a")).refused(404, "NotFound")
    (await api.call("DELETE", api.path("jobs"))).ok()
    assert (await api.get("jobs", "d")).metadata["finalizers"] == ["orphan"]
    for name in "cd":
        (await api.merge("jobs", name, {"metadata": {"finalizers": None}})).ok()


async def case_events_have_no_dependents(api: Api) -> None:
    about = {"namespace": api.namespace}
    event: Json = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": about}
    for policy in ("Orphan", "Foreground", "Background"):
        (await api.create("events", event)).ok()
        (await api.delete("events", "a", {"propagationPolicy": policy})).ok()
        (await api.get("events", "a")).refused(404, "NotFound")
    event["metadata"] = {"name": "a", "finalizers": ["example.com/hold", "orphan"]}
    (await api.create("events", event)).ok()
    assert (await api.delete("events", "a")).ok().metadata["finalizers"] == ["example.com/hold"]
    (await api.merge("events", "a", {"metadata": {"finalizers": None}})).ok()


async def case_three_namespaces_stay(api: Api) -> None:
    for name in ("default", "kube-system", "kube-public"):
        refused = await api.call("DELETE", f"/api/v1/namespaces/{name}", {"dryRun": ["All"]})
        refused.refused(403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted')
        options = {"dryRun": ["All"], "preconditions": {"uid": "other"}}
        (await api.call("DELETE", f"/api/v1/namespaces/{name}", options)).refused(409, "Conflict")
    (await api.call("DELETE", "/api/v1/namespaces/kube-node-lease", {"dryRun": ["All"]})).ok()
