"""RBAC permissions of a controller. ``steersman_manifests.rbac`` generates roles from them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from steersman.errors import ConfigurationError
from steersman.meta import ApiResource

READ_VERBS = ("get", "list", "watch")
OWNER_VERBS = (*READ_VERBS, "create", "patch")
"""The verbs to cache a kind and to apply its objects."""

# Custom verbs, such as ``bind``, have the same form. ``*`` would grant verbs that are not declared.
_VERB = re.compile("[a-z]+")

_NEVER_PRUNED = frozenset(
    (
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "namespaces"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    )
)


class Permission(Struct, frozen=True):
    """``verbs`` on a resource.

    Attributes:
        resource: the API resource.
        verbs: such as ``get`` and ``patch``.
        subresource: such as ``status``. Defaults to the resource itself.
        names: names of objects. Defaults to all objects.

    Raises:
        ValueError: no verb is given, a verb is a wildcard or not in lower case, or ``names`` is not a tuple of names.
    """

    resource: ApiResource
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind = self.resource.kind
        if not self.verbs:
            raise ValueError(f'permission on {kind} without verbs: declare them, such as "get"')
        for verb in self.verbs:
            if not _VERB.fullmatch(verb):
                raise ValueError(f"permission on {kind}: {verb!r} is not a verb in lower case, such as 'get'")
        if isinstance(self.names, str) or not all(self.names):
            raise ValueError(f"permission on {kind}: names must be a tuple such as ('token',), not {self.names!r}")


def is_secret(resource: ApiResource) -> bool:
    """Return True if ``resource`` is that of Secrets."""
    return resource.group_resource == ("", "secrets")


def require_prunable(resource: ApiResource) -> None:
    """Require that undeclared objects of ``resource`` may be deleted.

    Raises:
        ValueError: deleting them deletes data.
    """
    if resource.group_resource in _NEVER_PRUNED:
        raise ValueError(
            f"owns({resource.kind}, prune=True): deleting a {resource.kind} deletes data; it is never pruned"
        )


def require_secret_permissions(
    permissions: Iterable[Permission], verbs_of_owner: tuple[str, ...], *, where: str
) -> None:
    """Require that ``permissions`` contain verbs for owned Secrets.

    Args:
        permissions: the declared permissions.
        verbs_of_owner: the verbs that ``owns`` grants on other kinds.
        where: the controller, for the message.

    Raises:
        ConfigurationError: they do not allow to get, list and watch all Secrets, and to delete them if pruned.
    """
    verbs = {v for p in permissions if is_secret(p.resource) and not (p.names or p.subresource) for v in p.verbs}
    required = {*READ_VERBS, "delete"} & set(verbs_of_owner)
    if verbs >= required:
        return
    missing = [verb for verb in verbs_of_owner if verb not in verbs]
    listed = ", ".join(f'"{verb}"' for verb in missing)
    raise ConfigurationError(
        f"{where} owns Secret, which grants no permission by itself: declare .needs(Secret, {listed}), without the "
        "verbs that the controller does not use (an informer needs get, list and watch)"
    )
