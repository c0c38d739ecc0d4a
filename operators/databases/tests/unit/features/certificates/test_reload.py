"""Servers that show another certificate than their Secret holds are asked to read it again, and not for ever."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from database_support.unit.declared_clusters import cluster, declared_cluster
from steersman.api.core_v1 import Container, Pod, PodSpec, PodStatus
from steersman.meta import ObjectMeta
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.certificates.model import CertificateRequest, CertificateSet, build_certificate_set
from steersman_databases.features.certificates.reload import CertificateHolder, CertificateReloader
from steersman_testing import virtual_runtime, virtual_time


class Events:
    """Counts."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def normal(self, obj: object, reason: str, note: str) -> None:
        self.reasons.append(reason)


class Server:
    """One that shows what was on its disk when it read it; a kubelet brings the new file after a minute."""

    def __init__(self, clock: Any, shows: str) -> None:
        self.clock = clock
        self.shows, self.mounted = shows, shows
        self.reloads = 0
        self.answers = True

    async def ask(self, endpoint: ServerEndpoint) -> str | None:
        assert endpoint == ServerEndpoint("10.1.2.3", 5432)
        return self.shows if self.answers else None

    async def reload(self) -> None:
        if not self.answers:
            raise ServerUnreachable(ServerEndpoint("10.1.2.3", 8008), "gone")
        self.reloads += 1
        self.shows = self.mounted


POD = Pod(
    metadata=ObjectMeta(name="orders-0-0", namespace="shop", uid="1"),
    spec=PodSpec(containers=(Container(name="server"),)),
    status=PodStatus(pod_ip="10.1.2.3"),
)


@virtual_time
async def test_reload_is_polled_until_new_certificate_is_served() -> None:
    clock, events = virtual_runtime().clock, Events()
    old = build_certificate_set(declared_cluster(), CertificateRequest(), {}, None, clock.now())
    server = Server(clock, old.served_fingerprint)
    serving = CertificateReloader(5432, clock, server.ask)
    charge = ClusterContext(cluster=cluster(), declared=declared_cluster(), client=None, events=events, clock=clock)  # type: ignore[arg-type]

    async def minutes(number: float, ring: CertificateSet) -> None:
        for _ in range(int(number * 6)):
            await serving.reconcile(charge, [CertificateHolder(POD, server.reload)], ring, ConditionSet())
            await clock.sleep(10)

    await minutes(3, old)
    # Nothing was amiss: it is told once, in case the authorities for clients are new, which cannot be seen.
    assert (server.reloads, events.reasons) == (1, [])
    new = build_certificate_set(
        declared_cluster(), CertificateRequest(services=("outside",)), old.data, None, clock.now()
    )
    await minutes(1, new)
    assert server.reloads == 7 and server.shows == old.served_fingerprint
    server.answers = False
    await minutes(1, new)
    server.answers, server.mounted = True, new.served_fingerprint
    await minutes(1, new)
    assert server.shows == new.served_fingerprint
    before = server.reloads
    await minutes(30, new)
    assert server.reloads <= before + 1
    assert set(events.reasons) == {"CertificateReloaded"}


@virtual_time
async def test_rejecting_pod_distrusts_ca_after_mount_delay() -> None:
    clock = virtual_runtime().clock
    ring = build_certificate_set(declared_cluster(), CertificateRequest(), {}, None, clock.now())
    server = Server(clock, "of an authority that is lost")
    serving = CertificateReloader(5432, clock, server.ask)
    charge = ClusterContext(cluster=cluster(), declared=declared_cluster(), client=None, events=Events(), clock=clock)  # type: ignore[arg-type]
    failure: list[ServerUnreachable] = [CertificateRefused(ServerEndpoint("10.1.2.3", 8008), "unknown ca")]

    async def reload() -> None:
        if failure:
            raise failure[0]
        await server.reload()

    async def minutes(number: float) -> Mapping[str, bool]:
        for _ in range(int(number * 6)):
            await serving.reconcile(charge, [CertificateHolder(POD, reload)], ring, ConditionSet())
            await clock.sleep(10)
        return await serving.reconcile(charge, [CertificateHolder(POD, reload)], ring, ConditionSet())

    assert await minutes(2) == {"1": False}, "its kubelet may be slow"
    assert await minutes(1) == {"1": True}
    # Silence is something else, and the next word counts.
    failure[:] = [ServerUnreachable(ServerEndpoint("10.1.2.3", 8008), "no response")]
    assert await minutes(1) == {}
    failure[:] = [CertificateRefused(ServerEndpoint("10.1.2.3", 8008), "unknown ca")]
    assert await minutes(0) == {"1": True}
    failure.clear()
    server.mounted = ring.served_fingerprint
    assert await minutes(1) == {}


class Blocked:
    """One whose port for the operator is closed, while clients get in: each attempt takes five seconds."""

    def __init__(self, clock: Any, shows: str) -> None:
        self.server = Server(clock, shows)
        self.closed = True
        self.asked: list[float] = []

    async def reload(self) -> None:
        clock = self.server.clock
        self.asked.append(clock.monotonic())
        if self.closed:
            await clock.sleep(5)
            raise ServerUnreachable(ServerEndpoint("10.1.2.3", 8008), "no answer within 5 s")
        await self.server.reload()


@virtual_time
async def test_unreachable_pod_is_named_and_blocks_no_worker() -> None:
    clock = virtual_runtime().clock
    old = build_certificate_set(declared_cluster(), CertificateRequest(), {}, None, clock.now())
    new = build_certificate_set(
        declared_cluster(), CertificateRequest(services=("outside",)), old.data, None, clock.now()
    )
    pod = Blocked(clock, old.served_fingerprint)
    pod.server.mounted = new.served_fingerprint
    serving = CertificateReloader(5432, clock, pod.server.ask)
    charge = ClusterContext(cluster=cluster(), declared=declared_cluster(), client=None, events=Events(), clock=clock)  # type: ignore[arg-type]

    async def told(minutes: float) -> str:
        """What is said at last of a certificate that is valid by its Secret."""
        until, findings = clock.monotonic() + 60 * minutes, ConditionSet()
        while clock.monotonic() <= until:
            findings = ConditionSet()
            findings.set("CertificatesValid", True, "Valid", "")
            assert await serving.reconcile(charge, [CertificateHolder(POD, pod.reload)], new, findings) == {}, (
                "no stranger"
            )
            await clock.sleep(2)
        found = findings.updates["CertificatesValid"]
        return f"{found.holds} {found.reason} {found.message}".strip()

    words = "orders-0-0 serves a previous certificate: cannot reach 10.1.2.3:8008: no answer within 5 s"
    assert await told(2) == "True Valid", "its kubelet may be slow"
    assert await told(3) == f"False StaleCertificate {words}"
    assert min(after - before for before, after in pairwise(pod.asked)) > 60
    pod.server.answers = False
    assert await told(1) == f"False StaleCertificate {words}", "silence is no better news"
    pod.server.answers, pod.closed = True, False
    assert await told(2) == "True Valid"
    assert pod.server.shows == new.served_fingerprint


@virtual_time
async def test_stale_mount_is_named() -> None:
    clock = virtual_runtime().clock
    old = build_certificate_set(declared_cluster(), CertificateRequest(), {}, None, clock.now())
    new = build_certificate_set(
        declared_cluster(), CertificateRequest(services=("outside",)), old.data, None, clock.now()
    )
    server, findings = Server(clock, old.served_fingerprint), ConditionSet()
    serving = CertificateReloader(5432, clock, server.ask)
    charge = ClusterContext(cluster=cluster(), declared=declared_cluster(), client=None, events=Events(), clock=clock)  # type: ignore[arg-type]
    for _ in range(6):
        # Read as late as that, the new ones may be there and are seen to be shown only with the next look.
        await serving.reconcile(charge, [CertificateHolder(POD, server.reload)], new, findings)
        assert not findings.updates
        await clock.sleep(30)
    await serving.reconcile(charge, [CertificateHolder(POD, server.reload)], new, findings)
    assert findings.updates["CertificatesValid"].reason == "StaleCertificate"
    assert "its files" in findings.updates["CertificatesValid"].message
