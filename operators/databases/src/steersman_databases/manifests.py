"""The manifests that follow from the code: CRDs from the types, roles from the controllers and the manager."""

from __future__ import annotations

from typing import Any, NoReturn

from steersman.client import HttpRequest
from steersman.crd import definition
from steersman.manager import Manager, ManagerOptions
from steersman.rbac import cluster_role, leader_election_role
from steersman_databases.api import Database
from steersman_databases.controllers import INFORMERS, setup

NAME = "steersman-databases"
"""The operator's: its roles, its Lease, the manager of its fields."""


class _Unconnected:
    """Stands where a transport is asked for and none is used: declaring controllers sends nothing."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise AssertionError(f"declared controllers must not send {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise AssertionError(f"declared controllers must not watch {request.path}")

    async def close(self) -> None:
        return


def declared_manager() -> Manager:
    """The operator with all that it declares, connected to nothing."""
    manager = Manager(_Unconnected(), ManagerOptions(name=NAME, informers=INFORMERS))
    setup(manager)
    return manager


def generated_manifests() -> dict[str, dict[str, Any]]:
    """Manifests in wire form, by their paths below ``config/``."""
    manager = declared_manager()
    crd = definition(Database)
    return {
        f"crd/{crd['metadata']['name']}.yaml": crd,
        "rbac/role.yaml": cluster_role(NAME, manager.permissions),
        "rbac/leader_election_role.yaml": leader_election_role(f"{NAME}-leader-election", NAME),
    }
