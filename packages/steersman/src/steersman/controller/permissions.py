"""RBAC permissions of a controller. ``steersman_manifests.rbac`` generates roles from them."""

from __future__ import annotations

from msgspec import Struct

from steersman.meta import ApiResource

READ_VERBS = ("get", "list", "watch")


class Permission(Struct, frozen=True):
    """``verbs`` on a resource.

    Attributes:
        resource: the API resource.
        verbs: such as ``get`` and ``patch``.
        subresource: such as ``status``. Defaults to the resource itself.
        names: names of objects. Defaults to all objects.
    """

    resource: ApiResource
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()
