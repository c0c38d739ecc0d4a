"""Has servers show the certificate that their Secret holds: kubelets change a file, and nobody reads it by itself.

PostgreSQL takes what it reads for new connections and keeps the old ones, so reading once too often harms nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.engines.errors import CertificateRefused, EngineError
from steersman_databases.engines.server import Endpoint

Ask = Callable[[Endpoint], Awaitable[str | None]]

# So long kubelets may take with a changed Secret. A handshake tells of the server's certificate only, not of the
# authorities for clients, which come in a Secret of their own.
_MOUNTED_SECONDS = 150.0
# Who lets a worker wait is spared for so many times as long: a minute for the five seconds that a member may take.
_SPARED_TIMES = 12
_READ_IN_VAIN = "it reads its files again, and they are not renewed in its pod"


@dataclass(slots=True)
class _Following:
    """What a pod was last asked for. Forgotten with the process, which costs a few handshakes.

    ``refuses``: it does not take the present authorities, or is not taken by them. ``said``: why it may show a former
    certificate, after the last attempt. ``former``: the same, of who was seen to show one after that, and for longer
    than a kubelet needs. ``again``: when it may next be asked to read its files.
    """

    wanted: str
    since: float
    done: bool = False
    refuses: bool = False
    said: str = ""
    former: str = ""
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Shower:
    """A pod that shows the certificate: a server, or a pooler. ``reload`` raises EngineError."""

    pod: Pod
    reload: Callable[[], Awaitable[None]]


class Serving:
    """Follows the pods of all clusters. One for a controller.

    Args:
        port: that they listen on.
        ask: which certificate a server shows.
    """

    def __init__(self, port: int, clock: Clock, ask: Ask) -> None:
        self._port = port
        self._clock = clock
        self._ask = ask
        self._clusters: dict[ObjectKey, dict[str, _Following]] = {}

    async def follow(
        self, charge: Charge, showers: Sequence[Shower], ring: Keyring, findings: Findings
    ) -> Mapping[str, bool]:
        """Has those that do not show what ``ring`` says read their files again, and tells who still does not.

        Gives the UIDs of the pods that cannot be told, since they and those who sign now do not know each other, and
        whether that has lasted for longer than a kubelet needs.
        """
        former = self._clusters.get(charge.view.key, {})
        wanted = hashlib.sha256(f"{ring.served} {ring.authorities.client.bundle}".encode()).hexdigest()
        present: dict[str, _Following] = {}
        asked: list[Awaitable[None]] = []
        for shower in showers:
            uid = shower.pod.metadata.uid
            following = former.get(uid)
            if following is None or following.wanted != wanted:
                following = _Following(wanted, self._clock.monotonic())
            present[uid] = following
            if not following.done and shower.pod.status.pod_ip:
                asked.append(self._bring(charge, shower, following, ring))
        self._clusters[charge.view.key] = present
        await asyncio.gather(*asked)
        _judge({s.pod.metadata.name: present[s.pod.metadata.uid] for s in showers}, findings)
        now = self._clock.monotonic()
        return {uid: now - one.since >= _MOUNTED_SECONDS for uid, one in present.items() if one.refuses}

    async def _bring(self, charge: Charge, shower: Shower, following: _Following, ring: Keyring) -> None:
        shown = await self._ask(Endpoint(shower.pod.status.pod_ip or "", self._port))
        begun = self._clock.monotonic()
        mounted, right = begun - following.since >= _MOUNTED_SECONDS, shown == ring.served
        if shown is None:
            return
        following.former = following.said if mounted and not right else ""
        if (right and not mounted) or begun < following.again:
            return
        try:
            await shower.reload()
        except EngineError as error:
            # Asked again with a later reconcile.
            following.refuses = isinstance(error, CertificateRefused)
            following.said = "" if following.refuses else str(error)
            now = self._clock.monotonic()
            following.again = now + _SPARED_TIMES * (now - begun)
            return
        following.done, following.refuses = right, False
        following.said = _READ_IN_VAIN if mounted else ""
        if not right:
            note = f"asked {shower.pod.metadata.name} to read its certificates again"
            charge.events.normal(charge.cluster, "CertificateReloaded", note)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._clusters.pop(cluster, None)


def _judge(followed: Mapping[str, _Following], findings: Findings) -> None:
    """Tells which pods, by their names, show what will expire unless somebody does something."""
    former = {name: one.former for name, one in followed.items() if one.former}
    known = findings.found.get("CertificatesValid")
    if former and (known is None or known.holds):
        said = [f"{name} shows a former certificate: {words}" for name, words in sorted(former.items())]
        findings.tell("CertificatesValid", False, "NotShown", "; ".join(said))
