"""The operator adds its finalizer, and takes away the one that another controller has just added.

After kubermatic/kubermatic#6759: several controllers added finalizers to one object by merge patches. A merge patch
replaces a list as a whole, so each wrote what it had read and itself, and finalizers of others were lost. What they
were to clean up was left behind.

Shown by: the watch of accounts is held back before the other controller's finalizer, while something else, the
settings, gives the operator work.

The twin adds its finalizer by ``add_finalizer``, whose patch carries the version that was read: the API server
answers Conflict to whoever read an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import NAMESPACE, OWNER_LABEL, key, object_meta, requests_for_owner
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import JsonPatch, MergePatch
from steersman.controller import Reconciler, Request, Result, add_finalizer, remove_finalizer
from steersman.manager import Manager
from steersman.meta import ObjectMetaApply, Resource, Spec, Status, resource
from steersman_testing.simulation import World

OURS = "gallery.example.com/account"
OTHERS = "backup.example.com/archive"


class AccountSpec(Spec):
    """Nothing: all that matters is in the settings."""


class AccountStatus(Status):
    plan: str | None = None
    """What was agreed, once it is known."""


@resource(group="gallery.example.com", version="v1")
class Account(Resource[AccountSpec, AccountStatus]):
    """An account somewhere, which is opened when its settings, a ConfigMap of the same name, are there."""


class FaultyAccountReconciler(Reconciler[Account]):
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


def setup(reconciler: type[Reconciler[Account]]) -> Callable[[Manager, Any], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Account).watches(ConfigMap, requests_for_owner).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """An account is made, a backup controller adds its finalizer, then the settings come."""
    await world.client.create(Account(metadata=object_meta("ada"), spec=AccountSpec()))
    await world.settle()
    add = {"op": "add", "path": "/metadata/finalizers", "value": [OTHERS]}
    await world.client.patch(Account, key("ada"), JsonPatch([add]))
    await world.settle()
    metadata = ObjectMetaApply(name="ada", namespace=NAMESPACE, labels={OWNER_LABEL: "ada"})
    await world.client.create(ConfigMapApply(metadata=metadata, data={"plan": "large"}))
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Both finalizers are there."""
    account = world.read(Account, key("ada"))
    assert account is not None and account.status is not None and account.status.plan == "large"
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
