"""A crash between the creation of two Secrets leaves only one.

After percona/percona-server-mongodb-operator#797 (K8SPSMDB-578), found by Sieve: a MongoDB operator created the
certificates for clients and for members together. It assumed that both exist if the first one exists. After a crash
between the two requests, the Secret for members was never created.

Shown by: a crash after the creation of the first Secret, or a rejection of the second.

The twin checks each Secret and creates missing ones. ``create`` never replaces an existing object, so a certificate
in use stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import object_meta, owned_metadata
from steersman.api.apply import core
from steersman.api.core_v1 import Secret
from steersman.controller import Request, RequestReconciler, Result
from steersman.errors import AlreadyExists
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World

CLIENTS, MEMBERS = "-tls", "-tls-internal"


class ReplicaSetSpec(Spec):
    """Empty, because no field matters here."""


@resource(group="gallery.example.com", version="v1", plural="mongodbs")
class MongoDB(Resource[ReplicaSetSpec, Status]):
    """A database with certificates for clients and for members."""


class FaultyMongoDBReconciler(RequestReconciler[MongoDB]):
    async def reconcile(self, request: Request) -> Result:
        database = await self.client.get(MongoDB, request)
        if await self.client.get_or_none(Secret, Request(request.namespace, request.name + CLIENTS)) is None:
            await self.make(database, CLIENTS)
            await self.make(database, MEMBERS)
        return Result()

    async def make(self, database: MongoDB, suffix: str) -> None:
        # A random value in place of a certificate.
        content = f"{self.runtime.random.getrandbits(128):032x}"
        try:
            await self.client.create(
                core.Secret(metadata=owned_metadata(database, suffix), string_data={"tls.key": content})
            )
        except AlreadyExists:
            return


class MongoDBReconciler(FaultyMongoDBReconciler):
    async def reconcile(self, request: Request) -> Result:
        database = await self.client.get(MongoDB, request)
        for suffix in (CLIENTS, MEMBERS):
            if await self.client.get_or_none(Secret, Request(request.namespace, request.name + suffix)) is None:
                await self.make(database, suffix)
        return Result()


def setup(reconciler: type[RequestReconciler[MongoDB]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(MongoDB).needs(Secret, "get", "create").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Create a database."""
    await world.client.create(MongoDB(metadata=object_meta("orders"), spec=ReplicaSetSpec()))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both Secrets exist."""
    assert {secret.metadata.name for secret in world.read_all(Secret)} == {"orders-tls", "orders-tls-internal"}


BUG_CASE = BugCase(
    faulty=setup(FaultyMongoDBReconciler),
    corrected=setup(MongoDBReconciler),
    kinds=(MongoDB,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the process is killed after call 2",
        "CREATE secrets default/orders-tls  201, then killed",
        "the operator is restarted",
        "GET secrets default/orders-tls  200",
        "wrong      Secret default/orders-tls-internal is missing",
        "replay='crash-after:2'",
    ),
)
