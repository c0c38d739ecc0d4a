"""What a controller may do, declared beside what it watches; ``steersman.rbac`` makes roles of it."""

from __future__ import annotations

from msgspec import Struct

from steersman.meta import ApiResource

READ_VERBS = ("get", "list", "watch")


class Permission(Struct, frozen=True):
    """``verbs`` on one resource, or on its ``subresource``; on the objects called ``names``, or on all."""

    resource: ApiResource
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()
