"""The certificate of a server that stands alone, and whether the one that runs shows it.

Each is a Secret of its own, `<name>-tls-<number>`, immutable, and a server shows the one that its pod mounts.
So one that was started without goes on as it was, one that was started with a former certificate is verified by that,
and nobody is ever locked out: where no certificate is known any more, none is asked for.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret, Volume
from steersman.controller import CachedClient, EventRecorder
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Database
from steersman_databases.clusters.certificates import pair_in
from steersman_databases.clusters.x509 import Pair, covers, make_authority, sign_server, signed_by
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines.server import TLSMode, Verification
from steersman_databases.resources import Names, is_ours
from steersman_databases.resources.secrets import certificate_secret
from steersman_databases.resources.statefulset import CERTIFICATE_VOLUME

LIFETIME = timedelta(days=3650)
"""A server reads it when it starts, and no other: the next one is there when a third is left."""


class LoneCertificate:
    """Of the server of one ``Database``."""

    def __init__(self, client: CachedClient, events: EventRecorder, database: Database, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._database = database
        self._clock = clock
        self._names = Names(database.key)

    async def ensure(self) -> ObjectKey:
        """The Secret that a server which starts now is to show. The claim owns it.

        Raises:
            Blocked: one of that name is not ours, or there is no claim.
        """
        claim = await find(self._client, PersistentVolumeClaim, self._names.volume_claim)
        if claim is None:
            raise Blocked("Provisioning", "ServerStarting", "waiting for the volume claim")
        stateful = await find(self._client, StatefulSet, self._names.statefulset)
        told = None if stateful is None else self._mounted(stateful.spec.template.spec.volumes)
        number = told or 1
        while True:
            key = self._names.certificate_secret(number)
            secret = await find(self._client, Secret, key)
            if secret is None and number != told:
                await self._create(key, claim)
                return key
            # One that is declared and lost is not made anew under its name: the pod may still show the former.
            if secret is not None and self._is_good(secret, claim):
                return key
            number += 1

    async def release(self) -> None:
        """Deletes a pod that waits for a Secret that is lost, and would for ever: the next has the one of now."""
        pod = await self._client.find(Pod, self._names.pod)
        # Once the server has started, the kubelet has what it shows.
        if pod is None or pod.status.phase != "Pending" or pod.metadata.deletion_timestamp is not None:
            return
        number = self._mounted(pod.spec.volumes)
        if number is not None and await find(self._client, Secret, self._names.certificate_secret(number)) is None:
            with suppress(NotFound):
                await self._client.delete(Pod, pod.key, uid=pod.metadata.uid)

    async def clean_up(self, pod: Pod) -> None:
        """Deletes the Secret before that of the pod. Nobody starts with it any more."""
        number = self._mounted(pod.spec.volumes)
        if number is None or number == 1:
            return
        former = await self._client.find(Secret, self._names.certificate_secret(number - 1))
        if former is not None and is_ours(former, self._database):
            with suppress(NotFound):
                await self._client.delete(Secret, former.key, uid=former.metadata.uid)

    async def verification(self, pod: Pod) -> Verification:
        """How to know the server that runs in the pod."""
        number = self._mounted(pod.spec.volumes)
        secret = None if number is None else await find(self._client, Secret, self._names.certificate_secret(number))
        pair = None if secret is None or not is_ours(secret, self._database) else pair_in(secret.data)
        if secret is None or pair is None or pair.expires <= self._clock.now():
            return Verification(TLSMode.REQUIRE)
        return Verification(TLSMode.VERIFY_FULL, secret.data.get("ca.crt", b""))

    def _mounted(self, volumes: tuple[Volume, ...]) -> int | None:
        names = [v.secret.secret_name for v in volumes if v.name == CERTIFICATE_VOLUME and v.secret is not None]
        return self._names.number_of_certificate(names[0] or "") if names else None

    def _is_good(self, secret: Secret, claim: PersistentVolumeClaim) -> bool:
        if not is_ours(secret, self._database):
            raise Blocked(
                "Failed",
                "NameTaken",
                f"Secret {secret.metadata.name} exists and was not made for this Database: rename one of them",
            )
        owners = {
            o.uid for o in secret.metadata.owner_references if o.kind == PersistentVolumeClaim.api_resource.kind
        }
        if owners and claim.metadata.uid not in owners:
            # It goes with a claim that is gone.
            return False
        pair, authority = pair_in(secret.data), secret.data.get("ca.crt", b"").decode(errors="replace")
        return pair is not None and _is_usable(pair, authority, self._hosts[0], self._clock.now())

    async def _create(self, key: ObjectKey, claim: PersistentVolumeClaim) -> None:
        now = self._clock.now()
        authority = make_authority(f"server {self._database.metadata.name}", now, LIFETIME)
        pair = sign_server(authority, self._hosts, now, LIFETIME)
        # It signs nothing else, ever: its key is kept nowhere.
        data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
        wire = {name: text.encode() for name, text in data.items()}
        await self._client.create(certificate_secret(self._database, key, wire, (claim,)))
        self._events.normal(self._database, "Created", f"created Secret {key.name}")

    @property
    def _hosts(self) -> tuple[str, ...]:
        service, namespace = self._names.primary_service.name, self._database.metadata.namespace
        return (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)


def _is_usable(pair: Pair, authority: str, host: str, now: datetime) -> bool:
    try:
        return (
            pair.expires - now > LIFETIME / 3
            and covers(pair.certificate, host)
            and signed_by(pair.certificate, authority)
        )
    except ValueError:
        return False
