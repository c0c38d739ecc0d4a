"""Creation of objects: names, metadata, defaults and rejections."""

from __future__ import annotations

import re

from apiserver_cases.api import Api, config_map, deployment, widget


async def case_create_sets_the_servers_metadata(api: Api) -> None:
    created = (await api.create("configmaps", config_map("a", {"k": "v"}))).expect_success()
    assert created.code == 201
    assert created.metadata["namespace"] == api.namespace
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", created.metadata["uid"]
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", created.metadata["creationTimestamp"])
    assert int(created.resource_version) > 0
    assert "generation" not in created.metadata


async def case_generation_starts_at_one(api: Api) -> None:
    for plural, body in (("deployments", deployment("a")), ("widgets", widget("a"))):
        assert (await api.create(plural, body)).metadata["generation"] == 1


async def case_server_fields_of_users_are_ignored(api: Api) -> None:
    body = widget("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7, selfLink="x")
    created = (await api.create("widgets", body)).expect_success()
    assert created.metadata["uid"] != "mine"
    assert not created.metadata["creationTimestamp"].startswith("2001")
    assert created.metadata["generation"] == 1


async def case_names_are_generated(api: Api) -> None:
    body = config_map("")
    body["metadata"] = {"generateName": "job-"}
    first, second = [(await api.create("configmaps", body)).expect_success() for _ in range(2)]
    assert re.fullmatch(r"job-[bcdfghjklmnpqrstvwxz2456789]{5}", first.metadata["name"])
    assert first.metadata["name"] != second.metadata["name"]
    assert first.metadata["generateName"] == "job-"


async def case_a_name_is_required(api: Api) -> None:
    rejected = await api.create("configmaps", config_map(""))
    rejected.expect_error(422, "Invalid", 'ConfigMap "" is invalid: metadata.name: Required value')
    assert ("metadata.name", "FieldValueRequired") in rejected.causes()


async def case_names_are_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("Not_Allowed"))
    rejected.expect_error(
        422, "Invalid", 'metadata.name: Invalid value: "Not_Allowed": a lowercase RFC 1123 subdomain'
    )


async def case_labels_are_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", labels={"k": "-no-"}))
    rejected.expect_error(
        422, "Invalid", 'metadata.labels: Invalid value: "-no-": a valid label must be an empty string'
    )
    rejected = await api.create("configmaps", config_map("a", labels={"k": "x" * 64}))
    rejected.expect_error(422, "Invalid", "must be no more than 63")
    rejected = await api.create("configmaps", config_map("a", labels={"a/b/c": "x"}))
    rejected.expect_error(422, "Invalid", "metadata.labels")


async def case_owner_references_are_validated(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": ""}
    rejected = await api.create("configmaps", config_map("a", ownerReferences=[owner]))
    rejected.expect_error(422, "Invalid", 'metadata.ownerReferences.uid: Invalid value: "": must not be empty')
    owners = [{**owner, "uid": u, "name": u, "controller": True} for u in ("u1", "u2")]
    rejected = await api.create("configmaps", config_map("a", ownerReferences=owners))
    rejected.expect_error(422, "Invalid", "Only one reference can have Controller set to true")


async def case_creating_twice_is_rejected(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    rejected = await api.create("configmaps", config_map("a"))
    rejected.expect_error(409, "AlreadyExists", 'configmaps "a" already exists')
    assert rejected.body["details"] == {"name": "a", "kind": "configmaps"}
    (await api.create("deployments", deployment("a"))).expect_success()
    rejected = await api.create("deployments", deployment("a"))
    rejected.expect_error(409, "AlreadyExists", 'deployments.apps "a" already exists')
    assert rejected.body["details"] == {"name": "a", "group": "apps", "kind": "deployments"}


async def case_a_version_cannot_be_set_on_creation(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", resourceVersion="5"))
    rejected.expect_error(500, "", "resourceVersion should not be set on objects to be created")


async def case_the_namespace_must_exist(api: Api) -> None:
    path = "/api/v1/namespaces/nowhere-to-be-found/configmaps"
    rejected = await api.call("POST", path, config_map("a"))
    rejected.expect_error(404, "NotFound", 'namespaces "nowhere-to-be-found" not found')
    assert rejected.body["details"] == {"name": "nowhere-to-be-found", "kind": "namespaces"}


async def case_body_namespace_must_match_url(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", namespace="other"))
    text = "the namespace of the provided object does not match the namespace sent on the request"
    rejected.expect_error(400, "BadRequest", text)


async def case_body_kind_must_match_url(api: Api) -> None:
    rejected = await api.create("configmaps", {**config_map("a"), "kind": "Secret"})
    text = (
        'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
        "unknown conversion"
    )
    rejected.expect_error(400, "BadRequest", text)
    rejected = await api.create("configmaps", {**config_map("a"), "apiVersion": "apps/v1"})
    text = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version '
        '"apps/v1" in scheme'
    )
    rejected.expect_error(400, "BadRequest", text)


async def case_custom_kind_must_match_url(api: Api) -> None:
    rejected = await api.create("widgets", {**widget("a"), "kind": "Other"})
    rejected.expect_error(
        422, "Invalid", 'Other.cases.steersman.dev "a" is invalid: kind: Invalid value: "Other": must be'
    )
    rejected = await api.create("widgets", {**widget("a"), "apiVersion": "cases.steersman.dev/v2"})
    text = (
        "the API version in the data (cases.steersman.dev/v2) does not match the expected API version "
        "(cases.steersman.dev/v1)"
    )
    rejected.expect_error(400, "BadRequest", text)
    body = widget("a")
    del body["kind"]
    rejected = await api.create("widgets", body)
    rejected.expect_error(400, "BadRequest", "unrecognized (must be of type Widget): Object 'Kind' is missing in '")


async def case_body_kind_of_built_in_kinds_is_optional(api: Api) -> None:
    (await api.create("configmaps", {"metadata": {"name": "a"}})).expect_success()


async def case_missing_objects_are_not_found(api: Api) -> None:
    for plural, named in (("configmaps", "configmaps"), ("deployments", "deployments.apps")):
        for response in (
            await api.get(plural, "none"),
            await api.delete(plural, "none"),
            await api.merge(plural, "none", {"metadata": {"labels": {"a": "b"}}}),
        ):
            response.expect_error(404, "NotFound", f'{named} "none" not found')
    rejected = await api.put("configmaps", config_map("none"))
    rejected.expect_error(404, "NotFound", 'configmaps "none" not found')


async def case_unknown_resources_are_not_found(api: Api) -> None:
    group = "/apis/cases.steersman.dev"
    for path in ("/apis/nobody.example.com/v1/things", "/nothing", f"{group}/v1/unheardof", f"{group}/v2/widgets"):
        response = await api.call("GET", path)
        assert (response.code, response.message) == (404, "404 page not found\n")
    for path in ("/api/v1/unheardof", "/apis/apps/v1/unheardof"):
        response = await api.call("GET", path)
        response.expect_error(404, "NotFound", "the server could not find the requested resource")


async def case_unsupported_methods_are_rejected(api: Api) -> None:
    rejected = await api.call("PUT", api.path("configmaps"), config_map("a"))
    rejected.expect_error(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    rejected = await api.call("POST", api.path("configmaps", "a"), config_map("a"))
    rejected.expect_error(405, "MethodNotAllowed")
    rejected = await api.call("DELETE", api.path("widgets", "a", "status"))
    text = 'delete is not supported on resources of kind "widgets.cases.steersman.dev"'
    rejected.expect_error(405, "MethodNotAllowed", text)


async def case_finalizers_are_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", finalizers=["bad"]))
    text = (
        'metadata.finalizers[0]: Invalid value: "bad": name is neither a standard finalizer name nor is it '
        "fully qualified"
    )
    rejected.expect_error(422, "Invalid", text)
    rejected = await api.create("widgets", widget("a", finalizers=["a b/c"]))
    rejected.expect_error(422, "Invalid", 'metadata.finalizers: Invalid value: "a b/c": prefix part a lowercase')


async def case_labels_are_strings(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a", labels={"a": 1})), ("widgets", widget("a", labels={"a": 1}))):
        rejected = await api.create(plural, body)
        rejected.expect_error(400, "BadRequest", "json: cannot unmarshal number into Go struct field ObjectMeta.")


async def case_config_map_keys_are_validated(api: Api) -> None:
    rejected = await api.create("configmaps", config_map("a", {"a b": "x"}))
    rejected.expect_error(422, "Invalid", 'data[a b]: Invalid value: "a b": a valid config key must consist of')


async def case_workloads_select_their_own_pods(api: Api) -> None:
    body = deployment("a", selector={"matchLabels": {"app": "other"}})
    rejected = await api.create("deployments", body)
    rejected.expect_error(422, "Invalid", "spec.template.metadata.labels: Invalid value: ")
    assert "`selector` does not match template `labels`" in rejected.message


async def case_defaults_of_a_deployment(api: Api) -> None:
    body = deployment("a")
    pod = body["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "configMap": {"name": "x"}}, {"name": "s", "secret": {"secretName": "x"}}]
    pod["containers"][0] |= {"ports": [{"containerPort": 80}], "readinessProbe": {"httpGet": {"port": 80}}}
    created = (await api.create("deployments", body)).expect_success()
    assert created.body["spec"] == {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "a"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {
                "restartPolicy": "Always",
                "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30,
                "securityContext": {},
                "volumes": [
                    {"name": "v", "configMap": {"name": "x", "defaultMode": 420}},
                    {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                ],
                "containers": [
                    {
                        "name": "app",
                        "image": "app:1",
                        "imagePullPolicy": "IfNotPresent",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "readinessProbe": {
                            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                            "timeoutSeconds": 1,
                            "periodSeconds": 10,
                            "successThreshold": 1,
                            "failureThreshold": 3,
                        },
                    }
                ],
            },
        },
    }


async def case_defaults_of_a_stateful_set(api: Api) -> None:
    labels = {"app": "a"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a"},
        "spec": {
            "serviceName": "a",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
    created = (await api.create("statefulsets", body)).expect_success()
    spec = created.body["spec"]
    assert created.body["status"] == {"replicas": 0, "availableReplicas": 0}
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["volumeClaimTemplates"] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {**claim, "volumeMode": "Filesystem"},
            "status": {"phase": "Pending"},
        }
    ]
    rejected = await api.merge("statefulsets", "a", {"spec": {"serviceName": "b"}})
    rejected.expect_error(
        422, "Invalid", "spec: Forbidden: updates to statefulset spec for fields other than 'replicas',"
    )


async def case_defaults_of_a_service(api: Api) -> None:
    spec = {"ports": [{"port": 80}], "selector": {"app": "a"}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}
    created = (await api.create("services", body)).expect_success()
    address = created.body["spec"]["clusterIP"]
    assert created.body["spec"] == {
        "type": "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "selector": {"app": "a"},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    again = (await api.put("services", body)).expect_success()
    assert again.body["spec"]["clusterIP"] == address
    headless = {**body, "metadata": {"name": "b"}, "spec": {**spec, "clusterIP": "None"}}
    created = (await api.create("services", headless)).expect_success()
    assert (created.body["spec"]["clusterIP"], created.body["spec"]["clusterIPs"]) == ("None", ["None"])


async def case_defaults_of_pods_and_claims(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    created = (
        await api.create("pods", {**body, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    ).expect_success()
    assert created.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created.body["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert created.body["spec"]["enableServiceLinks"] is True
    assert len(created.body["spec"]["tolerations"]) == 2
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": claim}
    created = (await api.create("persistentvolumeclaims", body)).expect_success()
    assert created.metadata["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert created.body["spec"]["volumeMode"] == "Filesystem"
    assert created.body["status"] == {"phase": "Pending"}
    rejected = await api.merge("persistentvolumeclaims", "a", {"spec": {"accessModes": ["ReadWriteMany"]}})
    rejected.expect_error(
        422, "Invalid", "spec: Forbidden: spec is immutable after creation except resources.requests"
    )
    bound = (await api.merge("persistentvolumeclaims", "a", {"spec": {"volumeName": "v"}})).expect_success()
    assert bound.body["spec"]["volumeName"] == "v"
    rejected = await api.merge("persistentvolumeclaims", "a", {"spec": {"volumeName": "w"}})
    rejected.expect_error(
        422, "Invalid", "spec: Forbidden: spec is immutable after creation except resources.requests"
    )


async def case_string_data_is_encoded(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "text"}}
    created = (await api.create("secrets", body)).expect_success()
    assert created.body["data"] == {"k": "dGV4dA=="}
    assert created.body["type"] == "Opaque"
    assert "stringData" not in created.body


async def case_resource_versions_of_creates(api: Api) -> None:
    for plural, body in (("configmaps", config_map("a")), ("widgets", widget("a"))):
        for version, code in (("0", 201), ("00", 201), ("", 201), ("1", 500), ("x", 201), ("-1", 201)):
            meta = {"generateName": "a-", "resourceVersion": version}
            assert (await api.create(plural, {**body, "metadata": meta})).code == code
