"""Effects of status writes on metadata, by kind."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map, deployment, widget
from apiserver_cases.apply import fields_by_manager
from apiserver_cases.waiting import wait_until_served

_ALL = "all"
_MERGE = "application/merge-patch+json"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CONTAINERS = [{"name": "app", "image": "app:1"}]


def _template(name: str, **spec: object) -> Json:
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": _CONTAINERS, **spec}}


def _object(api_version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def _check_status_writes(api: Api, path: str, body: Json, preserved: str = "", served: str = "") -> None:
    """Write metadata by each kind of status write. All but ``kept`` changes.

    Controllers write the status of a definition as well. They are done once ``served`` exists.
    """
    created = (await api.call("POST", path, body)).expect_success()
    if served:
        await wait_until_served(api, served)
    holder = (await api.create("configmaps", config_map(f"holder-{body['kind'].lower()}"))).expect_success()
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": holder.metadata["name"], "uid": holder.metadata["uid"]}
    name = body["metadata"]["name"]
    metadata_patch: Json = {
        "labels": {"status": "patched"},
        "annotations": {"status": "patched"},
        "finalizers": [*created.metadata.get("finalizers", []), "example.com/hold"],
        "ownerReferences": [owner],
    }
    query = {"fieldManager": "patcher"}
    patched = await api.call("PATCH", f"{path}/{name}/status", {"metadata": metadata_patch}, query, _MERGE)
    sent = patched.expect_success().body
    sent["metadata"]["labels"] = {**sent["metadata"].get("labels", {}), "status": "put"}
    sent["metadata"]["annotations"] = {**sent["metadata"].get("annotations", {}), "status": "put"}
    (await api.call("PUT", f"{path}/{name}/status", sent, {"fieldManager": "putter"})).expect_success()
    applied: Json = {
        "apiVersion": created.body["apiVersion"],
        "kind": created.body["kind"],
        "metadata": {"name": name, "labels": {"applied": "label"}, "annotations": {"applied": "annotation"}},
    }
    query = {"fieldManager": "applier", "force": "true"}
    content_type = "application/apply-patch+yaml"
    await api.call("PATCH", f"{path}/{name}/status", applied, query, content_type)
    applied["metadata"] = {"name": name, "finalizers": ["example.com/more"], "ownerReferences": [owner]}
    await api.call("PATCH", f"{path}/{name}/status", applied, query, content_type)
    content_type = "application/json-patch+json"
    patch: list[Json] = [{"op": "add", "path": "/metadata/annotations/json", "value": "patched"}]
    await api.call("PATCH", f"{path}/{name}/status", patch, {"fieldManager": "jsonner"}, content_type)
    found = (await api.call("GET", f"{path}/{name}")).expect_success().metadata
    if preserved != _ALL:
        assert found["annotations"].items() >= {"status": "put", "json": "patched"}.items()
        assert set(found["finalizers"]) >= {"example.com/hold", "example.com/more"}
    assert (found.get("labels", {}).get("status") == "put") == (preserved not in ("labels", _ALL))
    assert (found.get("ownerReferences") == [owner]) == (preserved not in ("ownerReferences", _ALL))
    released: Json = {"metadata": {"finalizers": None}}
    await api.call("PATCH", f"{path}/{name}", released, {"fieldManager": "releaser"}, _MERGE)
    await api.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})


async def _check_namespaced(api: Api, plural: str, body: Json, preserved: str = "") -> None:
    await _check_status_writes(api, api.path(plural), body, preserved)


async def case_of_a_pod(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    await _check_namespaced(api, "pods", _object("v1", "Pod", "a", {"containers": _CONTAINERS}), "ownerReferences")


async def case_of_a_deployment(api: Api) -> None:
    await _check_namespaced(api, "deployments", deployment("a"), "labels")


async def case_of_a_stateful_set(api: Api) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, "serviceName": "a", "template": _template("a")}
    await _check_namespaced(api, "statefulsets", _object("apps/v1", "StatefulSet", "a", spec))


async def case_of_a_replica_set(api: Api) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": _template("a")}
    await _check_namespaced(api, "replicasets", _object("apps/v1", "ReplicaSet", "a", spec))


async def case_of_a_daemon_set(api: Api) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": _template("a")}
    await _check_namespaced(api, "daemonsets", _object("apps/v1", "DaemonSet", "a", spec))


async def case_of_a_daemon_set_that_changes(api: Api) -> None:
    spec: Json = {"selector": {"matchLabels": {"app": "a"}}, "template": _template("a")}
    body = _object("apps/v1", "DaemonSet", "a", spec)
    made = (await api.create("daemonsets", body)).expect_success()
    for seconds, sent in ((5, {}), (6, {"deprecated.daemonset.template.generation": "9"}), (6, {})):
        spec["template"] = _template("a", terminationGracePeriodSeconds=seconds)
        await api.put("daemonsets", {**body, "metadata": {"name": "a", "annotations": sent}})
    spec["minReadySeconds"] = 3
    changed = (await api.apply("daemonsets", body, force=True)).expect_success()
    assert changed.metadata["annotations"] == {"deprecated.daemonset.template.generation": "3"}
    assert made.metadata["annotations"] == {"deprecated.daemonset.template.generation": "1"}


async def case_of_a_job(api: Api) -> None:
    await _check_namespaced(
        api, "jobs", _object("batch/v1", "Job", "a", {"template": _template("a", restartPolicy="Never")})
    )


async def case_of_a_cron_job(api: Api) -> None:
    job = {"spec": {"template": _template("a", restartPolicy="Never")}}
    spec: Json = {"schedule": "0 0 * * *", "jobTemplate": job}
    await _check_namespaced(api, "cronjobs", _object("batch/v1", "CronJob", "a", spec))


async def case_of_a_service(api: Api) -> None:
    await _check_namespaced(api, "services", _object("v1", "Service", "a", {"ports": [{"port": 80}]}))


async def case_of_a_claim(api: Api) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    await _check_namespaced(api, "persistentvolumeclaims", _object("v1", "PersistentVolumeClaim", "a", spec))


async def case_of_a_quota(api: Api) -> None:
    await _check_namespaced(api, "resourcequotas", _object("v1", "ResourceQuota", "a", {"hard": {"count/x.y": "1"}}))


async def case_of_a_disruption_budget(api: Api) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    await _check_namespaced(api, "poddisruptionbudgets", _object("policy/v1", "PodDisruptionBudget", "a", spec))


async def case_of_an_autoscaler(api: Api) -> None:
    spec = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}
    plural = "horizontalpodautoscalers"
    await _check_namespaced(api, plural, _object("autoscaling/v2", "HorizontalPodAutoscaler", "a", spec))


async def case_of_an_ingress(api: Api) -> None:
    spec = {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}
    await _check_namespaced(api, "ingresses", _object("networking.k8s.io/v1", "Ingress", "a", spec))


async def case_managers_cannot_be_cleared(api: Api) -> None:
    for plural, body in (("deployments", deployment("a")), ("widgets", widget("a"))):
        await api.apply(plural, body, "one")
        await api.merge(plural, "a", {"status": {"observedGeneration": 1, "ready": 1}}, "status", fieldManager="two")
        cleared = await api.merge(plural, "a", {"metadata": {"managedFields": [{}]}}, "status", fieldManager="three")
        assert set(fields_by_manager(cleared)) == {("one", "Apply", ""), ("two", "Update", "status")}
        changed = await api.merge(plural, "a", {"metadata": {"generation": 9, "creationTimestamp": None}}, "status")
        assert changed.expect_success().metadata["generation"] == 1


async def case_last_finalizer_can_be_removed(api: Api) -> None:
    for plural, body, held_by_it in (("deployments", deployment("a"), True), ("widgets", widget("a"), False)):
        held = {**body, "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
        (await api.create(plural, held)).expect_success()
        (await api.delete(plural, "a")).expect_success()
        more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        assert (await api.merge(plural, "a", more, "status")).code == (422 if held_by_it else 200)
        (await api.merge(plural, "a", {"metadata": {"finalizers": None}}, "status")).expect_success()
        assert (await api.get(plural, "a")).code == (404 if held_by_it else 200)
        await api.merge(plural, "a", {"metadata": {"finalizers": None}})


async def case_metadata_is_validated(api: Api) -> None:
    for plural, body, taken in (("deployments", deployment("a"), 422), ("widgets", widget("a"), 200)):
        (await api.create(plural, body)).expect_success()
        for meta, code in (
            ({"annotations": {"a b": "c"}}, taken),
            ({"finalizers": ["odd"]}, taken),
            ({"ownerReferences": [{"name": "x"}]}, taken),
            ({"uid": "other"}, taken),
            ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, taken),
            # The status of a Deployment ignores labels.
            ({"labels": {"a b": "c"}}, 200),
            ({"labels": {"a": 1}}, 422),
            ({"name": "other"}, 400),
            ({"resourceVersion": "1"}, 409),
        ):
            assert (await api.merge(plural, "a", {"metadata": meta}, "status")).code == code


async def case_of_a_custom_resource(api: Api) -> None:
    await _check_namespaced(api, "widgets", widget("a"), _ALL)


async def case_of_a_namespace(api: Api) -> None:
    path = "/api/v1/namespaces"
    await _check_status_writes(
        api, path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{api.namespace}-x"}}
    )


async def case_of_a_node(api: Api) -> None:
    path = "/api/v1/nodes"
    await _check_status_writes(api, path, _object("v1", "Node", api.namespace, {}))


async def case_of_a_volume(api: Api) -> None:
    path = "/api/v1/persistentvolumes"
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}}
    await _check_status_writes(api, path, _object("v1", "PersistentVolume", api.namespace, spec))


async def case_of_a_definition(api: Api) -> None:
    group = f"{api.namespace}.example.com"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"kind": "Thing", "plural": "things"}
    spec: Json = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    body = _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"things.{group}", spec)
    await _check_status_writes(api, _DEFINITIONS, body, served=f"/apis/{group}/v1/things")
