"""The operator adds its finalizer and removes that of another controller.

After kubermatic/kubermatic#6759: several controllers added finalizers to one object with merge patches. A merge patch
replaces the whole list, so each controller removed finalizers that it had not observed. The cleanup for them never
ran.

Shown by: the watch of accounts is delayed before the other finalizer, while a change of the settings triggers a
reconcile.

The twin uses ``add_finalizer``, whose patch contains the observed resourceVersion. The API server responds with
Conflict if it is outdated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import NAMESPACE, OWNER_LABEL, key, object_meta, requests_for_owner
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import JsonPatch, MergePatch
from steersman.controller import Request, RequestReconciler, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World

OURS = "gallery.example.com/account"
OTHERS = "backup.example.com/archive"


class AccountSpec(Spec):
    """Empty, because the settings contain everything."""


class AccountStatus(Status):
    plan: str | None = None
    """Agreement from the settings."""


@resource(group="gallery.example.com", version="v1")
class Account(Resource[AccountSpec, AccountStatus]):
    """An account that opens when a ConfigMap of its name exists."""


class FaultyAccountReconciler(RequestReconciler[Account]):
    async def reconcile(self, request: Request) -> Result:
        account = await self.client.get(Account, request)
        if account.metadata.deletion_timestamp is not None:
            await remove_finalizer(self.client, account, OURS)
            return Result()
        settings = await self.client.get_or_none(ConfigMap, request)
        if settings is None:
            return Result()
        account = await self.protect(account)
        await self.client.apply_status(account, AccountStatus(plan=settings.data.get("plan")))
        return Result()

    async def protect(self, account: Account) -> Account:
        if OURS in account.metadata.finalizers:
            return account
        finalizers = [*account.metadata.finalizers, OURS]
        return await self.client.patch(Account, account.key, MergePatch({"metadata": {"finalizers": finalizers}}))


class AccountReconciler(FaultyAccountReconciler):
    async def protect(self, account: Account) -> Account:
        return await add_finalizer(self.client, account, OURS)


def setup(reconciler: type[RequestReconciler[Account]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Account).watches(ConfigMap, requests_for_owner).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Create an account, another finalizer, and then the settings."""
    await world.client.create(Account(metadata=object_meta("ada"), spec=AccountSpec()))
    await world.settle()
    add = {"op": "add", "path": "/metadata/finalizers", "value": [OTHERS]}
    await world.client.patch(Account, key("ada"), JsonPatch([add]))
    await world.settle()
    metadata = meta.ObjectMeta(name="ada", namespace=NAMESPACE, labels={OWNER_LABEL: "ada"})
    await world.client.create(core.ConfigMap(metadata=metadata, data={"plan": "large"}))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both finalizers are present."""
    account = world.read(Account, key("ada"))
    assert account is not None and account.status.plan == "large"
    assert set(account.metadata.finalizers) == {OURS, OTHERS}, "somebody's finalizer is lost"


BUG_CASE = BugCase(
    faulty=setup(FaultyAccountReconciler),
    corrected=setup(AccountReconciler),
    kinds=(Account,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the watch of accounts.gallery.example.com is delayed before its event 2, for 300 s",
        "user           PATCH accounts.gallery.example.com default/ada  200",
        "operator    1  PATCH accounts.gallery.example.com default/ada  200",
        "wrong      Account.gallery.example.com default/ada .metadata.finalizers: ['gallery.example.com/account'],",
        "replay='delay-watch:accounts.gallery.example.com:2+300'",
    ),
)
