"""Kinds that run pods: defaults, validation and immutable fields."""

from __future__ import annotations

import json
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json, deployment

_LABELS: Json = {"app": "a"}
_PLACE = "of the quantity"


def _template(**spec: Any) -> Json:
    return {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}


def _workload(kind: str, **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": _LABELS}, "template": _template(), **spec},
    }


def _job(**spec: Any) -> Json:
    template = {"spec": _template(restartPolicy="Never")["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"template": template, **spec},
    }


async def _pod(api: Api, **spec: Any) -> ApiResponse:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {**_template()["spec"], **spec}}
    return await api.create("pods", body)


async def _expect_invalid(api: Api, plural: str, body: Json, text: str) -> None:
    (await api.create(plural, body)).expect_error(422, "Invalid", text)


async def case_a_workload_needs_a_selector(api: Api) -> None:
    for plural, kind in (("deployments", "Deployment"), ("statefulsets", "StatefulSet"), ("daemonsets", "DaemonSet")):
        body = _workload(kind)
        del body["spec"]["selector"]
        text = "does not match template" if kind == "DaemonSet" else "spec.selector: Required value"
        await _expect_invalid(api, plural, body, text)
        if kind != "DaemonSet":
            await _expect_invalid(api, plural, _workload(kind, selector={}), "spec.selector: Invalid value: ")


async def case_a_pod_needs_a_container(api: Api) -> None:
    body = deployment("a", template={"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}})
    await _expect_invalid(api, "deployments", body, "spec.template.spec.containers: Required value")


async def case_containers_have_names_and_images(api: Api) -> None:
    place = "spec.template.spec.containers"
    for containers, text in (
        ([{"image": "i"}], f"{place}[0].name: Required value"),
        ([{"name": "c"}], f"{place}[0].image: Required value"),
        ([{"name": "C", "image": "i"}], f'{place}[0].name: Invalid value: "C": a lowercase RFC 1123 label'),
        ([{"name": "c", "image": "i"}] * 2, f'{place}[1].name: Duplicate value: "c"'),
    ):
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}
        await _expect_invalid(api, "deployments", deployment("a", template=template), text)


async def case_mounts_name_a_volume(api: Api) -> None:
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    text = 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"'
    await _expect_invalid(api, "deployments", deployment("a", template=template), text)


async def case_volume_claim_templates_are_volumes(api: Api) -> None:
    containers = [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/v"}]}]
    claim: Json = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    body = _workload("StatefulSet", template=_template(containers=containers), serviceName="a")
    text = 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
    await _expect_invalid(api, "statefulsets", body, text)
    body["spec"]["volumeClaimTemplates"] = [claim]
    (await api.create("statefulsets", body)).expect_success()


async def case_replicas_are_not_negative(api: Api) -> None:
    text = "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    for plural, kind in (
        ("deployments", "Deployment"),
        ("statefulsets", "StatefulSet"),
        ("replicasets", "ReplicaSet"),
    ):
        await _expect_invalid(api, plural, _workload(kind, replicas=-1), text)


async def case_workloads_restart_their_pods_always(api: Api) -> None:
    text = 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
    for plural, kind in (("deployments", "Deployment"), ("statefulsets", "StatefulSet"), ("daemonsets", "DaemonSet")):
        await _expect_invalid(api, plural, _workload(kind, template=_template(restartPolicy="Never")), text)


async def case_recreate_rejects_rolling_update(api: Api) -> None:
    body = deployment("a", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})
    await _expect_invalid(
        api, "deployments", body, "spec.strategy.rollingUpdate: Forbidden: may not be specified when"
    )
    created = (await api.create("deployments", deployment("a", strategy={"type": "Recreate"}))).expect_success()
    assert created.body["spec"]["strategy"] == {"type": "Recreate"}


async def case_defaults_of_a_daemon_set(api: Api) -> None:
    created = (await api.create("daemonsets", _workload("DaemonSet"))).expect_success()
    spec: Json = created.body["spec"]
    assert spec["revisionHistoryLimit"] == 10
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert created.metadata["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    assert created.body["status"] == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }


async def case_defaults_of_a_replica_set(api: Api) -> None:
    created = (await api.create("replicasets", _workload("ReplicaSet"))).expect_success()
    assert (created.body["spec"]["replicas"], created.body["status"]) == (1, {"replicas": 0})


async def case_selectors_are_immutable(api: Api) -> None:
    labels = {"app": "a", "more": "x"}
    patch = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    for plural, kind in (("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("daemonsets", "DaemonSet")):
        (await api.create(plural, _workload(kind))).expect_success()
        rejected = await api.merge(plural, "a", patch)
        rejected.expect_error(422, "Invalid", "spec.selector: Invalid value: ")
        assert rejected.message.endswith("field is immutable")


async def case_stateful_set_spec_is_mostly_immutable(api: Api) -> None:
    (await api.create("statefulsets", _workload("StatefulSet", serviceName="a"))).expect_success()
    for spec in (
        {"replicas": 2},
        {"minReadySeconds": 5},
        {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
    ):
        (await api.merge("statefulsets", "a", {"spec": spec})).expect_success()
    for spec in ({"serviceName": "b"}, {"podManagementPolicy": "Parallel"}):
        rejected = await api.merge("statefulsets", "a", {"spec": spec})
        rejected.expect_error(422, "Invalid", "spec: Forbidden: updates to statefulset spec for fields other than")


async def case_defaults_of_a_job(api: Api) -> None:
    created = (await api.create("jobs", _job())).expect_success()
    spec, uid = created.body["spec"], created.metadata["uid"]
    reported = {n: spec[n] for n in ("parallelism", "completions", "backoffLimit", "completionMode", "suspend")}
    assert reported == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
    }
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        "job-name": "a",
    }


async def case_jobs_do_not_restart_their_pods_always(api: Api) -> None:
    template = {"spec": _template(restartPolicy="Always")["spec"]}
    text = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    await _expect_invalid(api, "jobs", _job(template=template), text)


async def case_job_template_is_immutable(api: Api) -> None:
    created = (await api.create("jobs", _job())).expect_success()
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "i:2"}]
    rejected = await api.json_patch("jobs", "a", *patch)
    rejected.expect_error(422, "Invalid", "spec.template: Invalid value: ")
    assert rejected.message.endswith("field is immutable")
    changed = await api.merge("jobs", "a", {"spec": {"parallelism": 3}})
    assert changed.expect_success().metadata["generation"] == created.metadata["generation"] + 1


async def case_defaults_of_a_cron_job(api: Api) -> None:
    body: Json = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "a"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": _job()["spec"]["template"]}}},
    }
    created = (await api.create("cronjobs", body)).expect_success()
    reported = {n: v for n, v in created.body["spec"].items() if n not in ("schedule", "jobTemplate")}
    assert reported == {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    body = json.loads(json.dumps(body).replace("*/5 * * * *", "whenever"))
    body["metadata"]["name"] = "b"
    await _expect_invalid(
        api, "cronjobs", body, 'spec.schedule: Invalid value: "whenever": expected exactly 5 fields'
    )


async def case_pod_spec_is_immutable_except_images(api: Api) -> None:
    (await _pod(api)).expect_success()
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "i:2"}]
    changed = (await api.json_patch("pods", "a", *patch)).expect_success()
    assert changed.body["spec"]["containers"][0]["image"] == "i:2"
    for spec in ({"hostname": "x"}, {"restartPolicy": "Never"}):
        rejected = await api.merge("pods", "a", {"spec": spec})
        rejected.expect_error(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than ")


async def case_quality_of_service_follows_from_resources(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    whole = {"cpu": "1", "memory": "1Gi"}
    for name, resources, expected in (
        ("a", {}, "BestEffort"),
        ("b", {"requests": {"cpu": "1"}}, "Burstable"),
        ("c", {"limits": whole, "requests": whole}, "Guaranteed"),
        ("d", {"limits": whole}, "Guaranteed"),
    ):
        spec = {"containers": [{"name": "c", "image": "i:1", "resources": resources}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        created = (await api.create("pods", body)).expect_success()
        assert created.body["status"]["qosClass"] == expected
        if name == "d":
            assert created.body["spec"]["containers"][0]["resources"]["requests"] == whole


async def case_requests_do_not_exceed_limits(api: Api) -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    text = (
        'spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu'
    )
    await _expect_invalid(api, "deployments", deployment("a", template=template), text)


async def case_quantities_are_validated(api: Api) -> None:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "much"}}}]},
    }
    rejected = await api.create("deployments", deployment("a", template=template))
    rejected.expect_error(400, "BadRequest", "quantities must match the regular expression")


async def case_quantities_have_a_canonical_form(api: Api) -> None:
    resources = {"requests": {"cpu": "1000m", "memory": "1024Mi"}}
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    created = (await api.create("deployments", deployment("a", template=template))).expect_success()
    formatted = created.body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert formatted == {"cpu": "1", "memory": "1Gi"}


async def case_short_quantities_are_kept_verbatim(api: Api) -> None:
    for written, listed, single in (
        ("1.500", "1.500", "1.500"),
        ("0.500", "500m", "500m"),
        ("001", "001", "001"),
        ("+1500m", "+1500m", "+1500m"),
        ("1E3", "1E3", "1E3"),
        ("1.50e2", "1.50e2", "1.50e2"),
        ("1.5e2", "150", "150"),
        ("10e2", "1e3", "1e3"),
        ("001Gi", "001Gi", "001Gi"),
        ("01024Mi", "1Gi", "1Gi"),
        ("12345678901234567890", "12345678901234567890", "12345678901234567890"),
        ("9999999999999999999Ki", "9223372036854775807", "9223372036854775807"),
        ("1000000e-9", "1e-3", "1e-3"),
        ("0.000500", "1m", "500u"),
        ("1.0001Ki", "1024103m", "1024102400u"),
        (" 1 ", "1", "1"),
        ("m", "0", "0"),
        ("1e1000", "10e999", "10e999"),
    ):
        assert await _stored_quantity(api, json.dumps(written)) == (listed, single), written


async def case_quantities_may_be_numbers(api: Api) -> None:
    for written, kept in (("1e3", "1e3"), ("1E3", "1E3"), ("5e-1", "500e-3"), ("1.500", "1.500"), ("1000", "1k")):
        assert await _stored_quantity(api, written) == (kept, kept), written


async def case_unknown_units_are_rejected(api: Api) -> None:
    for written in ("1K", "2e", "5m5", "1Ki2"):
        rejected = await api.create("resourcequotas", {"metadata": {"name": "a"}, "spec": {"hard": {"cpu": written}}})
        rejected.expect_error(400, "BadRequest", "unable to parse quantity's suffix")


async def _stored_quantity(api: Api, written: str) -> tuple[str, str]:
    """Return the stored form of a quantity.

    It depends on whether the quantity is in a resource list.
    """
    quota: Json = {"metadata": {"name": "a"}, "spec": {"hard": {"cpu": _PLACE}}}
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": _PLACE}}]
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}}
    found: list[Json] = []
    for plural, body in (("resourcequotas", quota), ("pods", pod)):
        encoded = json.dumps(body).replace(json.dumps(_PLACE), written).encode()
        created = await api.call("POST", api.path(plural), encoded, {"dryRun": "All"})
        found.append(created.expect_success().body["spec"])
    return found[0]["hard"]["cpu"], found[1]["volumes"][0]["emptyDir"]["sizeLimit"]
