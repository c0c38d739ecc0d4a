"""What surrounds the instances of a cluster is as declared: volumes, Services, settings; and it comes back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.client import MergePatch
from steersman.meta import ObjectKey, Quantity, decode_builtins, to_builtins
from steersman_databases.api import MySQLCluster, PostgreSQLCluster
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.api.postgresql_cluster import Bootstrap, InitDb
from steersman_databases.features.access import policies
from steersman_databases.features.certificates.x509 import create_ca, sans, sign_server
from steersman_manifests.crd import violations
from steersman_testing import virtual_time


@virtual_time
async def test_volume_resize_reports_pending_step() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, storage=VolumeSettings(size=Quantity("1Gi")))
        assert world.condition("VolumesResized") == "True/SizeMatches"
        await world.change(storage={"size": "2Gi"})

        def requested() -> str:
            claim = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(0))
            assert claim is not None
            return str(claim.spec.resources.requests["storage"])

        await world.until("requested", lambda: requested() == "2Gi")
        body = {"status": {"capacity": {"storage": "1Gi"}}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body), subresource="status")
        await world.until("told", lambda: world.condition("VolumesResized") == "False/Resizing")
        body = {"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body), subresource="status")
        await world.until("told", lambda: world.condition("VolumesResized") == "False/FileSystemResizePending")
        assert world.condition("Ready") == "False/RollingOut" and "data-orders-0" in world.message("Ready")
        body = {"status": {"capacity": {"storage": "2Gi"}, "conditions": None}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body), subresource="status")
        await world.ready(1)


@pytest.mark.requirement("design/children", "pattern/keep-working")
@virtual_time
async def test_objects_deleted_or_changed_are_restored_in_30s() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, bootstrap=Bootstrap(initdb=InitDb()))
        assert world.messages("Updated") <= {"updated Role orders"}, (
            "it grows with the instances; nothing else changed"
        )
        uids = world.uids()
        rw, leads = NAMES.service("rw"), NAMES.endpoint_slices("orders-rw")[0]
        for kind, key in (
            (Service, rw),
            (EndpointSlice, leads),
            (Role, KEY),
            (RoleBinding, KEY),
            (ServiceAccount, KEY),
            (PodDisruptionBudget, KEY),
            (NetworkPolicy, KEY),
            (ConfigMap, NAMES.local_configuration),
            (Secret, NAMES.application_secret),
            (Secret, NAMES.server_certificate),
        ):
            await world.client.delete(kind, key)
            await world.until(f"{kind.__name__} is back", lambda k=kind, n=key: world.server.read(k, n), 30)

        def led() -> bool:
            found = world.server.read(EndpointSlice, leads)
            return found is not None and any(e.addresses for e in found.endpoints or ())

        await world.until("it leads to the primary", led, 30)
        body = {"spec": {"ports": [{"name": "postgresql", "port": 1, "protocol": "TCP", "targetPort": 5432}]}}
        await world.client.patch(Service, rw, MergePatch(body))

        def ports() -> list[int]:
            service = world.server.read(Service, rw)
            return [p.port for p in service.spec.ports] if service else []

        await world.until("the port is back", lambda: ports() == [5432], 30)
        declared = _spec(world, rw)
        astray = {"selector": {"app": "mine"}, "externalIPs": ["192.0.2.1"], "sessionAffinity": "ClientIP"}
        await world.client.patch(Service, rw, MergePatch({"spec": astray}))
        await world.until("it leads where it did", lambda: _spec(world, rw) == declared, 30)
        assert "updated Service orders-rw" in world.messages("Updated")
        await world.client.patch(
            ConfigMap, NAMES.dcs_config, MergePatch({"metadata": {"annotations": {"config": "{}"}}})
        )
        await world.until("the settings are back", lambda: _settings(world).get("ttl") == 15, 30)
        altered = _settings(world)
        altered["postgresql"]["parameters"]["work_mem"] = "1GB"
        altered["ttl"] = 300
        note = {"metadata": {"annotations": {"config": json.dumps(altered)}}}
        await world.client.patch(ConfigMap, NAMES.dcs_config, MergePatch(note))
        await world.until("they are again", lambda: _settings(world)["ttl"] == 15, 30)
        said = "updated the settings of all members: postgresql.parameters.work_mem, ttl"
        assert said in world.messages("ParametersWritten")
        assert world.uids() == uids, "none of it restarts an instance"


def _spec(world: ClusterHarness, service: ObjectKey) -> Any:
    found = world.server.read(Service, service)
    return to_builtins(found)["spec"] if found else None


def _settings(world: ClusterHarness) -> dict[str, Any]:
    found = world.server.read(ConfigMap, NAMES.dcs_config)
    return json.loads(found.metadata.annotations["config"]) if found else {}


@virtual_time
async def test_statefulset_deleted_is_recreated_on_same_pvc() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        await world.client.delete(StatefulSet, NAMES.statefulset(1))
        await world.until("back", lambda: "orders-1" in world.statefulsets())
        await world.ready(3)
        assert world.pvc_names() == ["data-orders-0", "data-orders-1", "data-orders-2"]


@virtual_time
async def test_parameter_change_restarts_replicas_first() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        uids = world.uids()
        await world.change(postgresql={"parameters": {"work_mem": "8MB"}})
        await world.until("written", lambda: _parameters(world).get("work_mem") == "8MB")
        await world.ready(3)
        assert world.hosts.history == ["orders-0-0"], "a reload disturbs nobody"
        await world.change(postgresql={"parameters": {"work_mem": "8MB", "max_connections": "200"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/RestartPending")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(3)
        assert len(world.hosts.history) == 2, "the former primary restarts as a replica"
        await world.change(postgresql={"parameters": {"max_connections": "100"}})
        await world.until("pending", lambda: world.condition("ParametersApplied") == "False/LoweringParameter")
        await world.until("applied", lambda: world.condition("ParametersApplied") == "True/Applied")
        await world.ready(3)
        assert len(world.hosts.history) == 2, "it is lowered on the primary first, in place"
        assert world.uids() == uids, "servers restart, not pods"


def _parameters(world: ClusterHarness) -> dict[str, str]:
    return _settings(world).get("postgresql", {}).get("parameters", {})


@virtual_time
async def test_single_instance_has_no_disruption_budget() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        assert world.server.read(PodDisruptionBudget, KEY) is None
        await world.change(instances=2)
        await world.ready(2)
        assert world.server.read(PodDisruptionBudget, KEY) is not None
        await world.change(podDisruptionBudget={"enabled": False}, networkPolicy="None")
        await world.until("gone", lambda: world.server.read(PodDisruptionBudget, KEY) is None)
        await world.until("gone", lambda: world.server.read(NetworkPolicy, KEY) is None)


@virtual_time
async def test_services_match_the_declaration() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        additional = [{"name": "orders-public", "role": "rw", "type": "LoadBalancer", "annotations": {"a": "b"}}]
        await world.change(services={"ro": {"enabled": False}, "additional": additional})
        public = ObjectKey(KEY.namespace, "orders-public")
        await world.until("made", lambda: world.server.read(Service, public))
        await world.until("gone", lambda: world.server.read(Service, NAMES.service("ro")) is None)
        found = world.server.read(Service, public)
        assert found is not None
        assert (found.spec.type, found.metadata.annotations["a"], dict(found.spec.selector)) == (
            "LoadBalancer",
            "b",
            {"databases.steersman.dev/cluster": "orders", "databases.steersman.dev/role": "nobody"},
        )
        assert world.server.read(EndpointSlice, NAMES.endpoint_slices("orders-public")[0]) is not None
        await world.change(services=None)
        await world.until("gone", lambda: world.server.read(Service, public) is None)
        await world.until(
            "gone", lambda: world.server.read(EndpointSlice, NAMES.endpoint_slices("orders-public")[0]) is None
        )
        await world.until("back", lambda: world.server.read(Service, NAMES.service("ro")))


@virtual_time
async def test_full_volume_is_reported() -> None:
    world = ClusterHarness()
    async with world.operator():

        async def tell(instance: int, levels: str) -> None:
            notes = {"databases.steersman.dev/volume-usage": levels}
            await world.client.patch(Pod, NAMES.pod(instance), MergePatch({"metadata": {"annotations": notes}}))

        await world.create(instances=2)
        await world.ready(2)
        assert world.condition("StorageSufficient") == "", "nobody has said anything yet"
        await tell(0, '{"data": 0, "wal": 0}')
        await world.until("told", lambda: world.condition("StorageSufficient") == "True/Sufficient")
        await tell(1, '{"data": 90}')
        await world.until("told", lambda: world.condition("StorageSufficient") == "False/RunningLow")
        assert "data-orders-1 is over 90 % full. Raise spec.storage.size" in world.message("StorageSufficient")
        assert world.condition("Ready") == "True/AllInstancesReady"
        await tell(0, '{"data": 80, "wal": 100}')
        await world.until("told", lambda: world.condition("Ready") == "False/DiskFull")
        said = "volume wal-orders-0 is full, data-orders-1 is over 90 % full, data-orders-0 is over 80 % full. Raise"
        assert said in world.message("StorageSufficient")
        assert {"RunningLow", "DiskFull"} <= set(world.events())
        for hostile in ("{", "[]", '{"data": {}, "wal": "much", "x": 100}'):
            await tell(0, hostile)
            await world.until("told", lambda: world.condition("StorageSufficient") == "False/RunningLow")
        await tell(1, '{"data": 0}')
        await world.until("told", lambda: world.condition("StorageSufficient") == "True/Sufficient")
        await world.ready(2)


@virtual_time
async def test_replication_slot_of_removed_instance_is_dropped() -> None:
    """Patroni keeps a member's slot for half an hour, since it may come back."""
    world = ClusterHarness()
    async with world.operator():

        async def keep(*slots: str) -> None:
            notes = {"retain_slots": json.dumps(slots)}
            await world.client.patch(ConfigMap, NAMES.dcs_leader, MergePatch({"metadata": {"annotations": notes}}))

        def kept_for() -> str:
            return _settings(world)["member_slots_ttl"]

        await world.create(instances=2)
        await world.ready(2)
        await keep("orders_0_0", "orders_1_0", "others_9_0", "orders_x_0")
        await world.wait()
        assert kept_for() == "30min"
        await keep("orders_0_0", "orders_1_0", "orders_2_0")
        await world.until("it is forgotten", lambda: kept_for() == "1s")
        await keep("orders_0_0", "orders_1_0")
        await world.until("others may be away again", lambda: kept_for() == "30min")


@pytest.mark.parametrize(
    ("operator", "home"), [("ops", {"kubernetes.io/metadata.name": "ops"}), ("", {})], ids=["a pod", "nobody knows"]
)
def test_namespaced_operator_reaches_members(operator: str, home: dict[str, str]) -> None:
    wire = to_builtins(policies.network_policy(NAMES, {}, 5432, [8008], operator))
    everybody, members = wire["spec"]["ingress"]
    assert everybody == {"ports": [{"port": 5432, "protocol": "TCP"}, {"port": 9187, "protocol": "TCP"}]}
    own, operators = members["from"]
    assert own == {"podSelector": {"matchLabels": {"databases.steersman.dev/cluster": "orders"}}}
    assert operators["namespaceSelector"].get("matchLabels", {}) == home
    assert operators["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"


@pytest.mark.parametrize("of", [ClusterHarness, GroupHarness])
@virtual_time
async def test_instances_get_anti_affinity_and_node_selection(of: type[ClusterHarness]) -> None:
    """Nodes that are chosen say nothing of how instances are spread on them."""
    world, name = of(), NAMES.statefulset(0)
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    chosen = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}}

    def affinity() -> dict[str, Any]:
        found = world.server.read(StatefulSet, name)
        return to_builtins(found.spec.template.spec.affinity) if found else {}

    async with world.operator():
        await world.create_ready(1, instances=1)
        default = affinity()
        assert set(default) == {"podAntiAffinity"}
        await world.change(affinity=chosen)
        await world.until("taken", lambda: affinity() == {**default, **chosen})
        await world.change(affinity={**chosen, "podAntiAffinity": {}})
        await world.until("who says so has them anywhere", lambda: affinity() == chosen)


@pytest.mark.parametrize("of", [ClusterHarness, GroupHarness])
@virtual_time
async def test_additional_dns_names_reissue_without_restart(
    of: type[ClusterHarness],
) -> None:
    world = of()

    def names() -> frozenset[str]:
        return sans(world.secret("orders-tls")["tls.crt"])

    async with world.operator():
        await world.create_ready(2, instances=2)
        before, pods = names(), world.uids()
        await world.change(tls={"additionalNames": ["db.example.com", "203.0.113.7"]})
        await world.until("in it", lambda: names() == before | {"db.example.com", "203.0.113.7"}, 30)
        await world.change(tls={"additionalNames": ["db.example.com"]})
        await world.until("in it no more", lambda: names() == before | {"db.example.com"}, 30)
        await world.ready(2)
        assert world.uids() == pods
        assert "CertificateRenewed" in world.events()


@virtual_time
async def test_custom_certificate_ignores_disabled_services() -> None:
    world, now = ClusterHarness(), datetime(2020, 1, 1, tzinfo=UTC)
    authority = create_ca("company", now, timedelta(days=36500))
    names = ["orders-rw.default.svc", "orders-pooler-rw.default.svc", "public.default.svc"]
    pair = sign_server(authority, names, now, timedelta(days=36000))
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    metadata = {"name": "company", "namespace": KEY.namespace}
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    off = {"enabled": False}
    hidden = {"name": "hidden", "role": "rw", **off}
    async with world.operator():
        await world.create(instances=1)
        await world.change(
            services={"ro": off, "r": off, "additional": [{"name": "public", "role": "rw"}, hidden]},
            pooler={"readOnly": False},
            tls={"serverSecret": {"name": "company"}},
        )
        await world.until("taken", lambda: world.secret("orders-tls").get("tls.crt") == pair.certificate, 60)
        assert world.condition("CertificatesValid") == "True/Valid"
        await world.change(services={"ro": None}, pooler={"readOnly": True})
        await world.until("refused", lambda: world.condition("CertificatesValid") == "False/SecretInvalid", 60)
        missing = "lacks the names orders-ro.default.svc, orders-pooler-ro.default.svc. Add"
        assert missing in world.message("CertificatesValid")


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("db", True),
        ("db.example.com", True),
        ("DB.Example.COM", True),
        ("*.example.com", True),
        ("xn--bcher-kva.example", True),
        ("192.0.2.1", True),
        ("::", True),
        ("::1", True),
        ("2001:db8::", True),
        ("2001:DB8::7:1", True),
        ("1:2:3:4:5:6:7:8", True),
        ("1:2:3:4:5:6:7::", True),
        ("", False),
        ("*", False),
        ("db.*.example.com", False),
        ("db..example.com", False),
        ("db.example.com.", False),
        ("-db.example.com", False),
        ("d b", False),
        ("db_1.example.com", False),
        ("b\u00fccher.example", False),
        ("192.0.2.256", False),
        ("192.0.2", False),
        ("192.0.2.01", False),
        ("192.0.2.0/24", False),
        (":", False),
        (":::", False),
        ("1::2::3", False),
        ("1:2:3:4:5:6:7", False),
        ("1:2:3:4:5:6:7:8:9", False),
        ("1:2::4:5:6:7:8:9", False),
        ("2001:db8::g", False),
        ("fe80::1%eth0", False),
        ("https://db.example.com", False),
        ("db.example.com:5432", False),
        ("a" * 64 + ".example.com", False),
    ],
)
@pytest.mark.parametrize("kind", [PostgreSQLCluster, MySQLCluster])
def test_additional_names_accept_dns_names_and_addresses(kind: Any, name: str, taken: bool) -> None:
    spec = {"tls": {"additionalNames": [name]}}
    cluster = decode_builtins({"metadata": {"name": "orders", "namespace": "default"}, "spec": spec}, kind)
    words = violations(cluster)
    assert (words == ()) is taken
    assert taken or any("a DNS name, such as db.example.com, or an IP address" in each for each in words)
