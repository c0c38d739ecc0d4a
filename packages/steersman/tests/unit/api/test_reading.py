"""Decoding of built-in kinds: complete, tolerant of ``null``, and immutable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import ControllerRevision, Deployment, StatefulSet
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import Pod, PodSpec, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.rbac_v1 import ClusterRole, Role
from steersman.meta import FrozenDict, FrozenStruct, Object, ObjectKey, decode, encode, is_true

OBJECTS = Path(__file__).parent / "objects"
KINDS: tuple[type[Object], ...] = (
    ClusterRole,
    CustomResourceDefinition,
    Deployment,
    EndpointSlice,
    Lease,
    Pod,
    Secret,
    Service,
    StatefulSet,
)


def read_document(kind: type[Object]) -> bytes:
    return (OBJECTS / f"{kind.__name__.lower()}.json").read_bytes()


def find_differences(before: Any, after: Any, path: str = "$") -> Iterator[str]:
    """Yield the differences between two documents.

    Zero values of Go may be missing in ``after``.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        for key in old | new:
            if key in new:
                yield from find_differences(old.get(key), new[key], f"{path}.{key}")
            elif old[key] not in (None, "", 0, False, [], {}):
                yield f"{path}.{key} is left out: {old[key]!r}"
    elif isinstance(before, list) and isinstance(after, list):
        olds, news = cast("list[Any]", before), cast("list[Any]", after)
        if len(olds) != len(news):
            yield f"{path} has {len(news)} items instead of {len(olds)}"
        for number, (old, new) in enumerate(zip(olds, news, strict=False)):
            yield from find_differences(old, new, f"{path}[{number}]")
    elif before != after:
        yield f"{path} is {after!r} instead of {before!r}"


def walk(value: Any) -> Iterator[Any]:
    """Yield ``value`` and all nested values."""
    yield value
    if isinstance(value, FrozenStruct):
        inner = [getattr(value, field) for field in value.__struct_fields__]
    elif isinstance(value, Mapping):
        inner = list(cast("Mapping[str, Any]", value).values())
    else:
        inner = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple | list) else []
    for one in inner:
        yield from walk(one)


def without_type_meta(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove apiVersion and kind, which the class defines.

    The PVC templates of a StatefulSet have them too.
    """
    claims = obj.get("spec", {}).get("volumeClaimTemplates", ())
    for one in (obj, *claims):
        del one["apiVersion"], one["kind"]
    return obj


@pytest.mark.parametrize("kind", KINDS)
def test_read_types_round_trip_without_loss(kind: type[Object]) -> None:
    raw = read_document(kind)
    obj = decode(raw, kind)
    again = encode(obj)
    assert list(find_differences(without_type_meta(json.loads(raw)), json.loads(again))) == []
    assert decode(again, kind) == obj


@pytest.mark.parametrize("kind", KINDS)
def test_read_object_has_api_version_and_kind(kind: type[Object]) -> None:
    read = json.loads(read_document(kind))
    assert (read["apiVersion"], read["kind"]) == (kind.api_resource.api_version, kind.api_resource.kind)


@pytest.mark.parametrize("kind", KINDS)
def test_deeply_immutable(kind: type[Object]) -> None:
    allowed = (FrozenStruct, FrozenDict, tuple, str, int, float, bytes, datetime, type(None))
    for value in walk(decode(read_document(kind), kind)):
        assert isinstance(value, allowed), f"{value!r} can be changed"


def test_pod() -> None:
    pod = decode(read_document(Pod), Pod)
    assert pod.key == ObjectKey("shop", "shop-db-0")
    assert pod.controller_reference is not None
    assert pod.controller_reference.api_version == "apps/v1"
    (container,) = pod.spec.containers
    assert container.ports[0].container_port == 5432
    assert container.env[0].value == ""
    assert container.env[1].value_from is not None
    assert container.env[1].value_from.field_ref is not None
    assert container.env[1].value_from.field_ref.api_version == "v1"
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "250m", "memory": "512Mi"}
    assert container.liveness_probe is not None
    assert container.liveness_probe.tcp_socket is not None
    assert container.liveness_probe.tcp_socket.port == "postgresql"
    assert container.readiness_probe is not None
    assert container.readiness_probe.http_get is not None
    assert container.readiness_probe.http_get.port == 8008
    assert container.security_context is not None
    assert container.security_context.run_as_user == 0
    assert pod.spec.host_pid is True
    assert pod.spec.volumes[1].empty_dir is not None
    assert pod.spec.volumes[2].projected is not None
    assert pod.spec.volumes[2].projected.sources == ()
    assert pod.spec.termination_grace_period_seconds == 0
    assert pod.spec.init_containers == ()
    assert pod.status.pod_ips[0].ip == "10.244.1.7"
    assert pod.status.qos_class == "Burstable"
    assert pod.status.conditions[0].last_probe_time is None
    assert pod.status.start_time == datetime(2026, 3, 1, 10, 15, 31, tzinfo=UTC)
    running = pod.status.container_statuses[0].state.running
    assert running is not None
    assert running.started_at == datetime(2026, 3, 1, 10, 15, 40, tzinfo=UTC)


def test_unset_pointers_differ_from_zeros() -> None:
    deployment = decode(read_document(Deployment), Deployment)
    assert deployment.spec.replicas == 0
    assert deployment.spec.paused is None
    assert json.loads(encode(deployment))["spec"]["replicas"] == 0
    assert deployment.spec.strategy.rolling_update is not None
    assert deployment.spec.strategy.rolling_update.max_surge == "25%"
    assert deployment.spec.strategy.rolling_update.max_unavailable == 0
    assert deployment.status.ready_replicas is None
    claim = decode(read_document(StatefulSet), StatefulSet).spec.volume_claim_templates[0]
    assert claim.spec.storage_class_name == ""
    assert decode(b'{"spec": {}}', StatefulSet).spec.selector is None, "an empty selector would match everything"


def test_non_default_protocol_round_trips() -> None:
    deployment = decode(read_document(Deployment), Deployment)
    again = decode(encode(deployment), Deployment)
    assert again.spec.template.spec.containers[0].ports[0].protocol == "UDP"


def test_service() -> None:
    service = decode(read_document(Service), Service)
    assert service.spec.cluster_ip == "10.96.14.3"
    assert service.spec.cluster_ips == ("10.96.14.3", "fd00::14:3")
    assert service.spec.external_ips == ("192.0.2.1",)
    assert service.spec.load_balancer_ip == "192.0.2.10"
    assert [p.target_port for p in service.spec.ports] == ["postgresql", 9187]
    assert not is_true(service.status.conditions, "LoadBalancerPortsError")


def test_secret_data_is_bytes() -> None:
    secret = decode(read_document(Secret), Secret)
    assert secret.data == {"username": b"postgres", "password": b"\x00\xffs3cret", "empty": b""}
    assert json.loads(encode(secret))["data"]["password"] == "AP9zM2NyZXQ="


def test_secret_data_is_not_shown() -> None:
    text = repr(decode(read_document(Secret), Secret))
    assert "shop-db-admin" in text
    assert "data=<hidden>" in text
    assert "postgres" not in text
    assert "data={}" in repr(Secret())


@pytest.mark.parametrize("kind", [ClusterRole, Role])
def test_null_lists_are_empty(kind: type[ClusterRole | Role]) -> None:
    assert decode(b'{"rules": null}', kind).rules == ()
    assert decode(b'{"rules": [{"verbs": null}]}', kind).rules[0].verbs == ()


def test_null_endpoints_and_ports() -> None:
    slice_ = decode(b'{"addressType": "IPv4", "endpoints": null, "ports": null}', EndpointSlice)
    assert slice_.endpoints == slice_.ports == ()
    assert msgspec.structs.replace(slice_, address_type="IPv6").ports == ()


def test_null_maps_are_empty() -> None:
    assert decode(b'{"metadata": {"labels": null}, "data": null}', Secret) == Secret()


def test_schema_recursion() -> None:
    definition = decode(read_document(CustomResourceDefinition), CustomResourceDefinition)
    (version,) = definition.spec.versions
    assert version.schema is not None
    schema = version.schema.open_api_v3_schema
    assert schema is not None
    spec = schema.properties["spec"]
    assert spec.additional_properties is False
    labels = spec.properties["labels"].additional_properties
    assert not isinstance(labels, bool)
    assert labels is not None
    assert labels.type == "string"
    assert spec.properties["port"].x_kubernetes_int_or_string is True
    assert spec.properties["height"].minimum == 0.5
    assert spec.x_kubernetes_validations[0].rule == "self.name != ''"
    inner = schema.properties["not"]
    assert inner.not_ is not None
    assert inner.not_.type == "null"
    assert inner.ref == "#/definitions/x"
    assert definition.status.stored_versions == ()


def test_open_json_is_immutable() -> None:
    revision = decode(b'{"data": {"spec": {"template": {"list": [{"a": 1}]}}}, "revision": 2}', ControllerRevision)
    assert revision.data == {"spec": {"template": {"list": ({"a": 1},)}}}
    with pytest.raises(TypeError, match="immutable"):
        revision.data["spec"]["template"]["x"] = 1


def test_attributes_and_maps_refuse_assignment() -> None:
    pod: Any = decode(read_document(Pod), Pod)
    with pytest.raises(AttributeError, match="immutable"):
        pod.spec.node_name = "elsewhere"
    with pytest.raises(TypeError, match="immutable"):
        pod.spec.node_selector["disk"] = "slow"


def test_micro_time_round_trips_with_six_digits() -> None:
    lease = decode(read_document(Lease), Lease)
    assert lease.spec.acquire_time == datetime(2026, 3, 1, 10, tzinfo=UTC)
    spec = json.loads(encode(lease))["spec"]
    assert spec["acquireTime"] == "2026-03-01T10:00:00.000000Z"
    assert spec["renewTime"] == "2026-03-01T10:20:07.125000Z"


def test_decode_wrong_type_error_has_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.containers\[0\]\.image"):
        decode(b'{"spec": {"containers": [{"image": 17}]}}', Pod)


def test_constructed_objects_equal_decoded_ones() -> None:
    assert PodSpec().containers == ()
    assert Pod(spec=PodSpec(node_name="a")) == decode(b'{"spec": {"nodeName": "a"}}', Pod)
