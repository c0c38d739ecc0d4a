"""RBAC permissions of the manager itself."""

from __future__ import annotations

from steersman.controller import Permission
from steersman.manager.options import ManagerOptions


def metrics_permissions(options: ManagerOptions) -> tuple[Permission, ...]:
    """Permissions to authenticate and authorize readers of metrics.

    The Lease has a Role of its own, in its namespace: see ``steersman_manifests.rbac.leader_election_role``.
    """
    if not options.metrics_secure:
        return ()
    from steersman.api.authentication_v1 import TokenReview
    from steersman.api.authorization_v1 import SubjectAccessReview

    return (
        Permission(TokenReview.api_resource, ("create",)),
        Permission(SubjectAccessReview.api_resource, ("create",)),
    )
