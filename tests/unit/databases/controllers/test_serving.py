"""Servers that show another certificate than their Secret holds are asked to read it again, and not for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster_views import cluster, view
from steersman.api.core_v1 import Container, Pod, PodSpec, PodStatus
from steersman.meta import ObjectMeta
from steersman.testing import virtual_runtime, virtual_time
from steersman_databases.clusters.keyring import Keyring, KeysWish, keyring
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.serving import Serving, Shower
from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.server import Endpoint


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

    async def ask(self, endpoint: Endpoint) -> str | None:
        assert endpoint == Endpoint("10.1.2.3", 5432)
        return self.shows if self.answers else None

    async def reload(self) -> None:
        if not self.answers:
            raise ServerUnreachable(Endpoint("10.1.2.3", 8008), "gone")
        self.reloads += 1
        self.shows = self.mounted


POD = Pod(
    metadata=ObjectMeta(name="orders-0-0", namespace="shop", uid="1"),
    spec=PodSpec(containers=(Container(name="server"),)),
    status=PodStatus(pod_ip="10.1.2.3"),
)


@virtual_time
async def test_it_is_asked_until_it_shows_the_new_one_and_once_more() -> None:
    clock, events = virtual_runtime().clock, Events()
    old = keyring(view(), KeysWish(), {}, None, clock.now())
    server = Server(clock, old.served)
    serving = Serving(5432, clock, server.ask)
    charge = Charge(cluster=cluster(), view=view(), client=None, events=events, clock=clock)  # type: ignore[arg-type]

    async def minutes(number: float, ring: Keyring) -> None:
        for _ in range(int(number * 6)):
            await serving.follow(charge, [Shower(POD, server.reload)], ring)
            await clock.sleep(10)

    await minutes(3, old)
    # Nothing was amiss: it is told once, in case the authorities for clients are new, which cannot be seen.
    assert (server.reloads, events.reasons) == (1, [])
    new = keyring(view(), KeysWish(services=("outside",)), old.data, None, clock.now())
    await minutes(1, new)
    assert server.reloads == 7 and server.shows == old.served
    server.answers = False
    await minutes(1, new)
    server.answers, server.mounted = True, new.served
    await minutes(1, new)
    assert server.shows == new.served
    before = server.reloads
    await minutes(30, new)
    assert server.reloads <= before + 1
    assert set(events.reasons) == {"CertificateReloaded"}


@virtual_time
async def test_who_refuses_for_longer_than_a_kubelet_needs_is_estranged() -> None:
    clock = virtual_runtime().clock
    ring = keyring(view(), KeysWish(), {}, None, clock.now())
    server = Server(clock, "of an authority that is lost")
    serving = Serving(5432, clock, server.ask)
    charge = Charge(cluster=cluster(), view=view(), client=None, events=Events(), clock=clock)  # type: ignore[arg-type]
    failure: list[ServerUnreachable] = [CertificateRefused(Endpoint("10.1.2.3", 8008), "unknown ca")]

    async def reload() -> None:
        if failure:
            raise failure[0]
        await server.reload()

    async def minutes(number: float) -> Mapping[str, bool]:
        for _ in range(int(number * 6)):
            await serving.follow(charge, [Shower(POD, reload)], ring)
            await clock.sleep(10)
        return await serving.follow(charge, [Shower(POD, reload)], ring)

    assert await minutes(2) == {"1": False}, "its kubelet may be slow"
    assert await minutes(1) == {"1": True}
    # Silence is something else, and the next word counts.
    failure[:] = [ServerUnreachable(Endpoint("10.1.2.3", 8008), "no answer")]
    assert await minutes(1) == {}
    failure[:] = [CertificateRefused(Endpoint("10.1.2.3", 8008), "unknown ca")]
    assert await minutes(0) == {"1": True}
    failure.clear()
    server.mounted = ring.served
    assert await minutes(1) == {}
