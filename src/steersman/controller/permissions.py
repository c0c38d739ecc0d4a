"""What a controller may do, declared beside what it watches; ``steersman.rbac`` makes roles of it."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.meta import ApiResource

READ = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Permission:
    """``verbs`` on one resource, or on its ``subresource``."""

    resource: ApiResource
    verbs: tuple[str, ...]
    subresource: str = ""
