"""What a manager itself needs of RBAC, beside its controllers."""

from __future__ import annotations

from steersman.controller import Permission
from steersman.manager.options import ManagerOptions


def metrics_permissions(options: ManagerOptions) -> tuple[Permission, ...]:
    """To ask who reads the metrics and whether they may. The Lease has a role of its own, in its namespace."""
    if not options.metrics_secure:
        return ()
    from steersman.api.authentication_v1 import TokenReview
    from steersman.api.authorization_v1 import SubjectAccessReview

    return (
        Permission(TokenReview.api_resource, ("create",)),
        Permission(SubjectAccessReview.api_resource, ("create",)),
    )
