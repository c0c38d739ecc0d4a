"""Apply types: requests contain only the set fields."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from steersman.api.apply import apps, coordination, core, meta
from steersman.api.apps_v1 import Deployment
from steersman.meta import ObjectKey, Quantity, encode

META = meta.ObjectMeta(name="web", namespace="shop")
ENCODED_META = {"name": "web", "namespace": "shop"}


def encoded(config: object) -> object:
    return json.loads(encode(config))


def test_apply_without_fields_sends_only_metadata() -> None:
    assert encoded(apps.Deployment(metadata=META)) == {"metadata": ENCODED_META}


def test_apply_sends_explicit_default_values() -> None:
    spec = apps.DeploymentSpec(replicas=0, paused=False, min_ready_seconds=1)
    assert encoded(apps.Deployment(metadata=META, spec=spec)) == {
        "metadata": ENCODED_META,
        "spec": {"replicas": 0, "paused": False, "minReadySeconds": 1},
    }


def test_apply_sends_empty_list_and_map() -> None:
    assert encoded(core.ConfigMap(metadata=META, data={})) == {"metadata": ENCODED_META, "data": {}}
    assert encoded(core.ServiceSpec(external_ips=[])) == {"externalIPs": []}


def test_pod_template_needs_no_name() -> None:
    template = core.PodTemplateSpec(
        metadata=meta.TemplateMeta(labels={"app": "web"}),
        spec=core.PodSpec(
            containers=[core.Container(name="web", image="web:1", ports=(core.ContainerPort(container_port=80),))]
        ),
    )
    assert encoded(template) == {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}]},
    }


def test_apply_accepts_quantity_or_text() -> None:
    claim = core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name="data"),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=core.VolumeResourceRequirements(requests={"storage": Quantity("10Gi"), "other": "5"}),
        ),
    )
    assert encoded(apps.StatefulSet(metadata=META, spec=apps.StatefulSetSpec(volume_claim_templates=[claim]))) == {
        "metadata": ENCODED_META,
        "spec": {
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "10Gi", "other": "5"}},
                    },
                }
            ]
        },
    }


def test_ports_by_number_and_by_name() -> None:
    ports = [core.ServicePort(port=80, target_port="http"), core.ServicePort(port=81, target_port=8081)]
    assert encoded(core.Service(metadata=META, spec=core.ServiceSpec(ports=ports, type="ClusterIP"))) == {
        "metadata": ENCODED_META,
        "spec": {
            "ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}],
            "type": "ClusterIP",
        },
    }


def test_secret_data_is_encoded() -> None:
    config = core.Secret(metadata=META, data={"password": b"\x00\xffs3cret"}, string_data={"username": "postgres"})
    assert encoded(config) == {
        "metadata": ENCODED_META,
        "data": {"password": "AP9zM2NyZXQ="},
        "stringData": {"username": "postgres"},
    }
    assert repr(config).endswith("data=<hidden>, string_data=<hidden>)")
    assert "postgres" not in repr(config)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 10, tzinfo=UTC), "2026-03-01T10:00:00.000000Z"),
        (datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T08:00:00.000000Z"),
        (datetime(2026, 3, 1, 10, 0, 0, 120_000, UTC), "2026-03-01T10:00:00.120000Z"),
    ],
)
def test_micro_time_has_six_digits(moment: datetime, text: str) -> None:
    config = coordination.Lease(metadata=META, spec=coordination.LeaseSpec(renew_time=moment))
    assert encoded(config) == {"metadata": ENCODED_META, "spec": {"renewTime": text}}


def test_list_map_keys_are_required() -> None:
    with pytest.raises(TypeError, match="name"):
        core.Container(image="web:1")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="container_port"):
        core.ContainerPort(name="http")  # pyright: ignore[reportCallIssue]


def test_apply_type_exposes_read_type_and_key() -> None:
    assert apps.Deployment.read_type is Deployment
    assert apps.Deployment(metadata=META).key == ObjectKey("shop", "web")


def test_apply_type_in_place_of_read_type_names_read_type() -> None:
    message = "steersman.api.apply.apps.Deployment is an apply type: .* use steersman.api.apps_v1.Deployment"
    with pytest.raises(AttributeError, match=message):
        _ = apps.Deployment.api_resource


def test_metadata_types_are_in_the_meta_namespace() -> None:
    assert {"Condition", "LabelSelector", "ObjectMeta", "OwnerReference", "TemplateMeta"} <= set(meta.__all__)
