"""The manifests that follow from the code: CRDs from the types, the ClusterRole from the controllers."""

from __future__ import annotations

from typing import Any, NoReturn

from steersman.client import HttpRequest
from steersman.crd import definition
from steersman.manager import Manager
from steersman.rbac import cluster_role
from steersman_databases.api import Database
from steersman_databases.controllers import setup


class _Unconnected:
    """Stands where a transport is asked for and none is used: declaring controllers sends nothing."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise AssertionError(f"declared controllers must not send {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise AssertionError(f"declared controllers must not watch {request.path}")

    async def close(self) -> None:
        return


def generated_manifests() -> dict[str, dict[str, Any]]:
    """Manifests in wire form, by their paths below ``config/``."""
    manager = Manager(_Unconnected())
    setup(manager)
    crd = definition(Database)
    return {
        f"crd/{crd['metadata']['name']}.yaml": crd,
        "rbac/role.yaml": cluster_role("steersman-databases", manager.permissions),
    }
