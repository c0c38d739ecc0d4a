"""The volume and the Secrets that open its data: made in an order that no crash can turn into data without a key.

The administrator's Secret comes first, then the volume claim, then the claim becomes the Secrets' owner. So a claim
without a Secret always means that the key was taken away, and a Secret of another claim that it belongs to data
which is gone. Nothing is deleted here: such a Secret goes with its claim, by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.controller import CachedClient, EventRecorder
from steersman.errors import Forbidden, Invalid
from steersman.meta import Object, ObjectKey, Quantity, to_builtins
from steersman_databases.api import Database
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines import Contents, Credentials, Endpoint, connection_uri
from steersman_databases.resources import (
    ENGINE_LABEL,
    MANAGED_BY,
    Names,
    administrator_secret,
    application_secret,
    generate_password,
    instance_of,
    is_ours,
    owned_by,
    volume_claim,
)

# The images take the administrator's name from the Secret.
ADMINISTRATOR = "steersman_admin"
"""The administrator's user name on a new MySQL server."""


def require_engine(database: Database, claim: PersistentVolumeClaim) -> None:
    """Refuses retained data that another engine made. Raises Blocked."""
    engine = claim.metadata.labels.get(ENGINE_LABEL, database.engine)
    if database.key in instance_of(claim) and engine != database.engine:
        raise Blocked(
            "Failed",
            "RetainedDataMismatch",
            f"PersistentVolumeClaim {claim.metadata.name} holds retained data of {engine}: set spec.engine to "
            f"{engine} in a new Database of this name, or delete the claim to give up the data",
        )


class Storage:
    """Ensures volume claim and Secrets of one ``Database``."""

    def __init__(self, client: CachedClient, events: EventRecorder, database: Database, engine: Contents) -> None:
        self._client = client
        self._events = events
        self._database = database
        self._engine = engine
        self._names = Names(database.key)

    async def ensure(self) -> tuple[Credentials, Credentials]:
        """The administrator's and the application's credentials, with volume and Secrets in place.

        Raises:
            Blocked: something of that name is not ours, the key to retained data is missing, or the data belongs
                to another engine.
        """
        claim = await self._find_claim()
        administrator = await self._find_secret(self._names.administrator_secret, claim)
        if administrator is None:
            if claim is not None:
                raise self._key_lost()
            administrator = await self._create_administrator()
        if claim is None:
            claim = await self._create_claim()
        else:
            claim = await self._grow(claim)
        await self._adopt(administrator, claim)
        application = await self._ensure_application(claim)
        return _credentials(administrator), _credentials(application)

    async def _find_claim(self) -> PersistentVolumeClaim | None:
        claim = await find(self._client, PersistentVolumeClaim, self._names.volume_claim)
        if claim is None:
            return None
        require_engine(self._database, claim)
        self._require_ours(claim)
        if claim.metadata.deletion_timestamp is not None:
            raise Blocked(
                "Pending",
                "VolumeTerminating",
                f"PersistentVolumeClaim {claim.metadata.name} is being deleted; waiting until it is gone. If it "
                f"stays, delete pod {self._names.pod.name}, which uses it",
            )
        return claim

    async def _find_secret(self, key: ObjectKey, claim: PersistentVolumeClaim | None) -> Secret | None:
        secret = await find(self._client, Secret, key)
        if secret is None:
            return None
        self._require_ours(secret)
        claims = {
            o.uid for o in secret.metadata.owner_references if o.kind == PersistentVolumeClaim.api_resource.kind
        }
        if claims and (claim is None or claim.metadata.uid not in claims):
            raise Blocked(
                "Pending",
                "SecretTerminating",
                f"Secret {key.name} belongs to a volume that is gone; waiting until the garbage collector removed it",
            )
        return secret

    def _require_ours(self, obj: Object) -> None:
        if not is_ours(obj, self._database):
            kind = type(obj).api_resource.kind
            raise Blocked(
                "Failed",
                "NameTaken",
                f"{kind} {obj.metadata.name} exists and was not made for this Database: rename one of them",
            )

    def _key_lost(self) -> Blocked:
        secret, claim = self._names.administrator_secret.name, self._names.volume_claim.name
        return Blocked(
            "Failed",
            "AdministratorSecretMissing",
            f"Secret {secret} with the administrator's password for the data on {claim} is missing: restore it (keys "
            f"username and password, with this Database's labels), or delete the claim {claim} to start anew without "
            "the data",
        )

    async def _create_administrator(self) -> Secret:
        data = {
            "username": ADMINISTRATOR.encode(),
            "password": generate_password().encode(),
        }
        secret = await self._client.create(administrator_secret(self._database, data, None))
        self._created(secret)
        return secret

    async def _create_claim(self) -> PersistentVolumeClaim:
        claim = await self._client.create(volume_claim(self._database, self._database.storage_size))
        self._created(claim)
        return claim

    async def _grow(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        wanted = self._database.storage_size
        requested = claim.spec.resources.requests.get("storage", "0")
        if wanted <= Quantity(requested):
            return claim
        try:
            grown = await self._client.apply(volume_claim(self._database, wanted))
        except (Forbidden, Invalid) as error:
            # The server runs on with what it has; only the wish cannot be met.
            self._events.warning(
                self._database,
                "VolumeNotResized",
                f"storage stays at {requested}: {error}. Use a storage class with allowVolumeExpansion",
            )
            return claim
        self._events.normal(self._database, "VolumeResized", f"requested {wanted} for {claim.metadata.name}")
        return grown

    async def _adopt(self, secret: Secret, claim: PersistentVolumeClaim) -> None:
        if not secret.metadata.owner_references:
            await self._change(secret, {"metadata": {"ownerReferences": to_builtins([owned_by(claim)])}})

    async def _ensure_application(self, claim: PersistentVolumeClaim) -> Secret:
        secret = await self._find_secret(self._names.application_secret, claim)
        present = dict(secret.data) if secret is not None else {}
        password = present.get("password", b"").decode(errors="replace") or generate_password()
        data = present | self._connection(password)
        if secret is None:
            secret = await self._client.create(application_secret(self._database, data, claim))
            self._created(secret)
        elif present != data:
            secret = await self._change(secret, {"data": to_builtins(data)})
            self._events.normal(self._database, "SecretRepaired", f"completed Secret {secret.metadata.name}")
        return secret

    def _connection(self, password: str) -> dict[str, bytes]:
        """What an application needs to connect. Source: Service Binding, "Well-known Secret Entries"."""
        database, engine = self._database, self._engine
        endpoint = Endpoint(self._names.host, engine.port)
        name, user = database.database_name, database.username
        entries = {
            "type": database.engine,
            "provider": MANAGED_BY,
            "host": endpoint.host,
            "port": str(endpoint.port),
            "dbname": name,
            "database": name,
            "user": user,
            "username": user,
            "password": password,
            "uri": connection_uri(engine.uri_scheme, endpoint, user, password, name),
        }
        return {key: value.encode() for key, value in entries.items()}

    async def _change(self, secret: Secret, changes: Mapping[str, Any]) -> Secret:
        # Not applied by force: a password that the user has just set must not be overwritten by the one we read.
        metadata = {**changes.get("metadata", {}), "resourceVersion": secret.metadata.resource_version}
        return await self._client.patch(Secret, secret.key, MergePatch({**changes, "metadata": metadata}))

    def _created(self, obj: Object) -> None:
        kind, name = type(obj).api_resource.kind, obj.metadata.name
        self._events.normal(self._database, "Created", f"created {kind} {name}")


def _credentials(secret: Secret) -> Credentials:
    username, password = secret.data.get("username", b""), secret.data.get("password", b"")
    if not username or not password:
        raise Blocked(
            "Failed", "SecretIncomplete", f"Secret {secret.metadata.name} needs the keys username and password"
        )
    return Credentials(username.decode(errors="replace"), password.decode(errors="replace"))
