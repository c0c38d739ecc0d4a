"""Built-in kinds besides workloads: services, PVCs, secrets, leases, events, roles."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, Json, config_map


def _service(name: str = "a", **spec: Any) -> Json:
    whole = {"ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": whole}


def _claim(**spec: Any) -> Json:
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": whole}


def _lease(**spec: Any) -> Json:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": spec}


def _secret(name: str = "a", **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


def _budget(**spec: Any) -> Json:
    whole = {"selector": {"matchLabels": {"app": "a"}}, **spec}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": whole}


async def _expect_invalid(api: Api, plural: str, body: Json, text: str) -> None:
    (await api.create(plural, body)).expect_error(422, "Invalid", text)


async def case_service_ports_are_validated(api: Api) -> None:
    for ports, text in (
        ([], "spec.ports: Required value"),
        ([{"port": 0}], "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ([{"port": 80}, {"port": 81}], "spec.ports[0].name: Required value"),
        ([{"port": 80, "name": "A"}], 'spec.ports[0].name: Invalid value: "A": a lowercase RFC 1123 label'),
        ([{"port": 80, "protocol": "X"}], 'spec.ports[0].protocol: Unsupported value: "X": supported values: '),
        ([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}], 'spec.ports[1].name: Duplicate value: "a"'),
    ):
        await _expect_invalid(api, "services", _service(ports=ports), text)


async def case_cluster_ip_is_immutable(api: Api) -> None:
    created = (await api.create("services", _service())).expect_success()
    rejected = await api.merge("services", "a", {"spec": {"clusterIP": "10.0.0.77", "clusterIPs": ["10.0.0.77"]}})
    rejected.expect_error(422, "Invalid", "spec.clusterIPs[0]: Invalid value: ")
    assert "may not change once set" in rejected.message
    kept = await api.merge("services", "a", {"spec": {"ports": [{"port": 81}]}})
    assert kept.expect_success().body["spec"]["clusterIP"] == created.body["spec"]["clusterIP"]


async def case_an_external_name_has_no_address(api: Api) -> None:
    spec: Json = {"type": "ExternalName", "externalName": "example.com", "ports": None}
    created = (await api.create("services", _service(**spec))).expect_success()
    assert created.body["spec"] == {"type": "ExternalName", "externalName": "example.com", "sessionAffinity": "None"}


async def case_node_ports_are_allocated(api: Api) -> None:
    created = (await api.create("services", _service(type="NodePort"))).expect_success()
    spec: Json = created.body["spec"]
    assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
    assert spec["externalTrafficPolicy"] == "Cluster"
    await _expect_invalid(api, "services", _service("b", type="Odd"), 'spec.type: Unsupported value: "Odd"')


async def case_a_load_balancer_has_node_ports(api: Api) -> None:
    spec: Json = (await api.create("services", _service(type="LoadBalancer"))).expect_success().body["spec"]
    assert spec["allocateLoadBalancerNodePorts"] is True
    assert 30000 <= spec["ports"][0]["nodePort"] <= 32767


async def case_pvcs_are_validated(api: Api) -> None:
    await _expect_invalid(api, "persistentvolumeclaims", _claim(accessModes=[]), "spec.accessModes: Required value")
    text = 'spec.accessModes: Unsupported value: "Odd": supported values: '
    await _expect_invalid(api, "persistentvolumeclaims", _claim(accessModes=["Odd"]), text)
    text = "spec.resources[storage]: Required value"
    await _expect_invalid(api, "persistentvolumeclaims", _claim(resources={}), text)


async def case_pvc_requests_change_only_if_bound(api: Api) -> None:
    (await api.create("persistentvolumeclaims", _claim())).expect_success()
    patch = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    rejected = await api.merge("persistentvolumeclaims", "a", patch)
    text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    rejected.expect_error(422, "Invalid", f"spec: Forbidden: {text}")


async def case_secret_type_is_immutable(api: Api) -> None:
    (await api.create("secrets", _secret())).expect_success()
    rejected = await api.merge("secrets", "a", {"type": "example.com/other"})
    rejected.expect_error(422, "Invalid", 'type: Invalid value: "example.com/other": field is immutable')


async def case_known_secret_types_require_keys(api: Api) -> None:
    for kind, text in (
        ("kubernetes.io/tls", "data[tls.crt]: Required value"),
        ("kubernetes.io/basic-auth", "data[username]: Required value"),
        ("kubernetes.io/ssh-auth", "data[ssh-privatekey]: Required value"),
        ("kubernetes.io/dockerconfigjson", "data[.dockerconfigjson]: Required value"),
        ("kubernetes.io/service-account-token", "metadata.annotations[kubernetes.io/service-account.name]: Required"),
    ):
        await _expect_invalid(api, "secrets", _secret(type=kind), text)


async def case_string_data_overrides_data(api: Api) -> None:
    body = _secret(data={"a": "eA==", "b": "eQ=="}, stringData={"a": "z"})
    assert (await api.create("secrets", body)).expect_success().body["data"] == {"a": "eg==", "b": "eQ=="}


async def case_immutable_secrets_stay_immutable(api: Api) -> None:
    (await api.create("secrets", _secret(data={"a": "eA=="}, immutable=True))).expect_success()
    for patch, text in (
        ({"data": {"a": "eQ=="}}, "data: Forbidden: field is immutable when `immutable` is set"),
        ({"immutable": False}, "immutable: Forbidden: field is immutable when `immutable` is set"),
    ):
        (await api.merge("secrets", "a", patch)).expect_error(422, "Invalid", text)
    (await api.merge("secrets", "a", {"metadata": {"labels": {"a": "b"}}})).expect_success()


async def case_data_of_a_config_map_is_text_or_binary(api: Api) -> None:
    body = {**config_map("a", {"t": "x"}), "binaryData": {"b": "eA=="}}
    assert (await api.create("configmaps", body)).expect_success().body["binaryData"] == {"b": "eA=="}
    body = {**config_map("b", {"k": "x"}), "binaryData": {"k": "eA=="}}
    (await api.create("configmaps", body)).expect_error(422, "Invalid", "duplicate of key present in")


async def case_leases_are_validated(api: Api) -> None:
    (
        await api.create("leases", _lease(holderIdentity="x", leaseDurationSeconds=15, leaseTransitions=0))
    ).expect_success()
    for spec, text in (
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"),
    ):
        (await api.create("leases", {**_lease(**spec), "metadata": {"name": "b"}})).expect_error(422, "Invalid", text)


async def case_lease_is_acquired_by_version(api: Api) -> None:
    created = (await api.create("leases", _lease(holderIdentity="one"))).expect_success()
    first, second = ({**created.body, "spec": {"holderIdentity": holder}} for holder in ("two", "three"))
    (await api.put("leases", first)).expect_success()
    (await api.put("leases", second)).expect_error(409, "Conflict", "the object has been modified")
    assert (await api.get("leases", "a")).body["spec"]["holderIdentity"] == "two"


async def case_leases_have_no_generation(api: Api) -> None:
    created = (await api.create("leases", _lease(holderIdentity="one"))).expect_success()
    assert "generation" not in created.metadata


def _event(api: Api, **fields: Any) -> Json:
    involved_object = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": api.namespace}
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), "2020-01-01T00:00:00Z")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "involvedObject": involved_object,
        "reason": "Made",
        "message": "text",
        "type": "Normal",
        **times,
        **fields,
    }


async def case_events_are_stored(api: Api) -> None:
    created = (await api.create("events", _event(api, count=1, source={"component": "x"}))).expect_success()
    assert (created.body["reason"], created.body["count"], created.body["source"]) == ("Made", 1, {"component": "x"})
    counted = await api.merge("events", "a", {"count": 2})
    assert counted.expect_success().body["count"] == 2


async def case_event_namespace_must_match_object(api: Api) -> None:
    rejected = await api.create("events", _event(api, involvedObject={"kind": "ConfigMap", "namespace": "other"}))
    rejected.expect_error(422, "Invalid", "involvedObject.namespace: Invalid value: ")


async def case_events_are_selected_by_involved_object(api: Api) -> None:
    (await api.create("events", _event(api))).expect_success()
    for selector, count in (
        ("involvedObject.name=c", 1),
        ("involvedObject.name=d", 0),
        ("reason=Made,type=Normal", 1),
    ):
        assert len((await api.list("events", fieldSelector=selector)).expect_success().body["items"]) == count


async def case_events_are_selected_by_their_source(api: Api) -> None:
    for name, reported in (
        ("a", {"source": {"component": "x"}, "reportingComponent": "y"}),
        ("b", {"reportingComponent": "x", "reportingInstance": "z"}),
        ("c", {"source": {"host": "x"}}),
    ):
        (await api.create("events", {**_event(api), **reported, "metadata": {"name": name}})).expect_success()
    for selector, names in (("source=x", ["a", "b"]), ("source!=x", ["c"]), ("source=,reason=Made", ["c"])):
        found = (await api.list("events", fieldSelector=selector)).expect_success().body["items"]
        assert [e["metadata"]["name"] for e in found] == names
    newer = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    rejected = await api.call("GET", newer, None, {"fieldSelector": "source=x"})
    rejected.expect_error(400, "BadRequest", "field label not supported: source")


async def case_events_v1_are_validated(api: Api) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    body: Json = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": api.namespace},
        "eventTime": "2020-01-01T00:00:00.000001Z",
        "reportingController": "example.com/x",
        "reportingInstance": "x-1",
        "action": "Making",
        "reason": "Made",
        "type": "Normal",
        "note": "text",
        "regarding": {"kind": "ConfigMap", "name": "c", "namespace": api.namespace},
    }
    created = (await api.call("POST", path, body, {"dryRun": "All"})).expect_success()
    assert (created.body["note"], created.body["eventTime"]) == ("text", "2020-01-01T00:00:00.000001Z")
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        rejected = await api.call("POST", path, {**body, field: ""}, {"dryRun": "All"})
        assert rejected.expect_error(422, "Invalid").message.startswith('Event "a" is invalid: ')


async def case_events_of_both_groups_are_the_same(api: Api) -> None:
    (await api.create("events", _event(api))).expect_success()
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events/a"
    other = (await api.call("GET", path)).expect_success().body
    assert (other["apiVersion"], other["note"]) == ("events.k8s.io/v1", "text")
    assert other["regarding"]["name"] == "c"


def _role(*rules: Json) -> Json:
    api_version = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api_version, "kind": "Role", "metadata": {"name": "a"}, "rules": list(rules)}


def _binding(role: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "a"},
        "subjects": [{"kind": "ServiceAccount", "name": "s"}],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": role},
    }


async def case_role_rules_are_validated(api: Api) -> None:
    for rule, text in (
        (
            {"apiGroups": [""], "resources": ["pods"]},
            "rules[0].verbs: Required value: verbs must contain at least one",
        ),
        ({"apiGroups": [""], "verbs": ["get"]}, "rules[0].resources: Required value: resource rules must supply at"),
        ({"resources": ["pods"], "verbs": ["get"]}, "rules[0].apiGroups: Required value: resource rules must supply"),
        ({"nonResourceURLs": ["/x"], "verbs": ["get"]}, "rules[0].nonResourceURLs: Invalid value: "),
    ):
        await _expect_invalid(api, "roles", _role(rule), text)


async def case_role_ref_is_immutable(api: Api) -> None:
    created = (await api.create("rolebindings", _binding("one"))).expect_success()
    assert created.body["subjects"] == [{"kind": "ServiceAccount", "name": "s"}]
    rejected = await api.merge("rolebindings", "a", {"roleRef": {"name": "two"}})
    rejected.expect_error(422, "Invalid", "roleRef: Invalid value: ")
    assert rejected.message.endswith("cannot change roleRef")


async def case_bindings_are_validated(api: Api) -> None:
    body = _binding("one")
    body["subjects"] = [{"kind": "Odd", "name": "s"}]
    text = 'subjects[0].kind: Unsupported value: "Odd": supported values: "ServiceAccount", "User", "Group"'
    await _expect_invalid(api, "rolebindings", body, text)
    await _expect_invalid(api, "rolebindings", _binding(""), "roleRef.name: Required value")


async def case_budgets_have_one_limit(api: Api) -> None:
    text = "Invalid value: {"
    await _expect_invalid(api, "poddisruptionbudgets", _budget(minAvailable=1, maxUnavailable=1), text)
    created = (await api.create("poddisruptionbudgets", _budget(maxUnavailable="25%"))).expect_success()
    assert created.body["spec"]["maxUnavailable"] == "25%"
    assert created.body["status"] == {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }


async def case_budgets_are_numbers_or_percentages(api: Api) -> None:
    text = 'spec.minAvailable: Invalid value: "few": a valid percent string must be a numeric string followed by'
    await _expect_invalid(api, "poddisruptionbudgets", _budget(minAvailable="few"), text)
    text = "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"
    await _expect_invalid(api, "poddisruptionbudgets", _budget(minAvailable=-1), text)


async def case_defaults_of_a_network_policy(api: Api) -> None:
    body: Json = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "a"},
        "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]},
    }
    created = (await api.create("networkpolicies", body)).expect_success()
    assert created.body["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert created.body["spec"]["egress"] == [{"ports": [{"port": 53, "protocol": "TCP"}]}]


async def case_paths_of_an_ingress_have_a_type(api: Api) -> None:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    body: Json = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "a"},
        "spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": backend}]}}]},
    }
    await _expect_invalid(api, "ingresses", body, "spec.rules[0].http.paths[0].pathType: Required value")
    body["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Prefix"
    assert (await api.create("ingresses", body)).expect_success().body["status"] == {"loadBalancer": {}}


async def case_defaults_of_an_autoscaler(api: Api) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    body: Json = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }
    created = (await api.create("horizontalpodautoscalers", body)).expect_success()
    usage = {"type": "Utilization", "averageUtilization": 80}
    assert created.body["spec"] == {
        **body["spec"],
        "minReplicas": 1,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}],
    }
    body["metadata"]["name"] = "b"
    body["spec"] |= {"minReplicas": 5}
    text = "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"
    await _expect_invalid(api, "horizontalpodautoscalers", body, text)


async def case_endpoint_slice_address_type_is_immutable(api: Api) -> None:
    body: Json = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "a"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"]}],
        "ports": [{"port": 80}],
    }
    created = (await api.create("endpointslices", body)).expect_success()
    assert created.body["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    rejected = await api.merge("endpointslices", "a", {"addressType": "IPv6", "endpoints": []})
    rejected.expect_error(422, "Invalid", 'addressType: Invalid value: "IPv6": field is immutable')


async def case_storage_class_is_immutable(api: Api) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses"
    body: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": api.namespace},
        "provisioner": "example.com/x",
    }
    created = (await api.call("POST", path, body)).expect_success()
    assert (created.body["reclaimPolicy"], created.body["volumeBindingMode"]) == ("Delete", "Immediate")
    patch = {"reclaimPolicy": "Retain"}
    rejected = await api.call("PATCH", f"{path}/{api.namespace}", patch, None, "application/merge-patch+json")
    rejected.expect_error(422, "Invalid", "reclaimPolicy: Invalid value: ")


async def case_priority_value_is_immutable(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body: Json = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": api.namespace},
        "value": 5,
    }
    created = (await api.call("POST", path, body)).expect_success()
    assert created.body["preemptionPolicy"] == "PreemptLowerPriority"
    patch = {"value": 6}
    rejected = await api.call("PATCH", f"{path}/{api.namespace}", patch, None, "application/merge-patch+json")
    rejected.expect_error(422, "Invalid", "value: Forbidden: may not be changed in an update.")
    patch = {"description": "urgent"}
    described = await api.call("PATCH", f"{path}/{api.namespace}", patch, None, "application/merge-patch+json")
    assert described.expect_success().metadata["generation"] == 1


async def case_service_accounts_reference_secrets(api: Api) -> None:
    body: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}, "secrets": [{"name": "x"}]}
    created = (await api.create("serviceaccounts", body)).expect_success()
    assert created.body["secrets"] == [{"name": "x"}]
    added = await api.strategic("serviceaccounts", "s", {"secrets": [{"name": "y"}]})
    assert {s["name"] for s in added.expect_success().body["secrets"]} == {"x", "y"}


def _service_manifest(name: str, **spec: Any) -> Json:
    node_port = {"nodePort": spec.pop("node_port")} if "node_port" in spec else {}
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80, **node_port}], **spec}}


async def case_service_addresses_and_ports_are_unique(api: Api) -> None:
    created = (await api.create("services", _service_manifest("a", type="NodePort"))).expect_success().body["spec"]
    port, address = created["ports"][0]["nodePort"], created["clusterIP"]
    for spec, text in (
        ({"type": "NodePort", "node_port": port}, "provided port is already allocated"),
        ({"type": "NodePort", "node_port": 3}, "The range of valid ports is 30000-32767"),
        ({"clusterIP": address}, f"failed to allocate IP {address}: provided IP is already allocated"),
        ({"clusterIP": "x"}, "must be a valid IP address"),
    ):
        (await api.create("services", _service_manifest("b", **spec))).expect_error(422, "Invalid", text)
    await api.create("services", _service_manifest("b"))
    taken = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}
    (await api.merge("services", "b", taken)).expect_error(422, "Invalid", "provided port is already allocated")


async def case_service_addresses_are_in_range(api: Api) -> None:
    mismatch = "the provided network does not match the current range"
    for address, text in (
        *(
            (outside, f"failed to allocate IP {outside}: {mismatch}")
            for outside in ("10.9.9.9", "10.0.0.0", "10.0.0.255")
        ),
        ("10.0.0.1", "failed to allocate IP 10.0.0.1: provided IP is already allocated"),
        ("fd00::1", "IPv6 is not configured on this cluster"),
    ):
        (await api.create("services", _service_manifest("a", clusterIP=address))).expect_error(422, "Invalid", text)
    created = (await api.create("services", _service_manifest("a"))).expect_success().body["spec"]
    assert created["clusterIP"].startswith("10.0.0.")


async def case_service_type_can_change(api: Api) -> None:
    await api.create("services", _service_manifest("a"))
    for kind, has_port, has_address in (
        ("NodePort", True, True),
        ("ClusterIP", False, True),
        ("LoadBalancer", True, True),
        ("ExternalName", False, False),
        ("ClusterIP", False, True),
    ):
        body = {"spec": {"type": kind, "externalName": "a.b" if kind == "ExternalName" else None}}
        spec = (await api.merge("services", "a", body)).expect_success().body["spec"]
        assert ("nodePort" in spec["ports"][0], "clusterIP" in spec) == (has_port, has_address), kind
