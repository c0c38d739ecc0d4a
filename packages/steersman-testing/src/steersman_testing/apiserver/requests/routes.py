"""URLs: which kind, which object, which subresource."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind

_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
_ADMISSION_GROUP = "admissionregistration.k8s.io"
# Stored and not obeyed, they would make a test pass that the real server would refuse.
_ADMISSION_POLICIES = frozenset(
    {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    }
)


@dataclass(frozen=True, slots=True)
class Route:
    """What a path names. ``name`` is empty for a collection, ``namespace`` for all of them."""

    kind: ServedKind
    namespace: str
    name: str
    subresource: str

    @property
    def is_single_scope(self) -> bool:
        """Whether it is of one namespace, or of a kind that has none: no other collection is deleted at once."""
        return bool(self.namespace) or not self.kind.resource.namespaced

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


def status_not_found(kinds: KindRegistry, route: Route) -> ApiError:
    """The status of a kind without that subresource is not found."""
    resource = route.kind.resource
    if route.kind.is_custom:
        return failures.not_found(resource, route.name)
    return not_served_error(kinds, resource.group, resource.version)


def not_served_error(kinds: KindRegistry, group: str, version: str) -> ApiError:
    """The refusal of a path below ``group`` and ``version``: built-in groups word it as a Status."""
    is_builtin = group in _REVIEW_GROUPS or any(
        (k.resource.group, k.resource.version) == (group, version) and not k.is_custom for k in kinds
    )
    return failures.unknown_resource() if is_builtin else failures.unknown_path()


def path_segments(path: str) -> list[str]:
    """What stands between the slashes of ``path``."""
    parts = path.strip("/").split("/")
    return [unquote(p) for p in parts] if "%" in path else parts


def find_route(path: str, kinds: KindRegistry) -> Route:
    """The route of a resource path.

    Raises:
        ApiError: 404, nothing is served there; or 501, it is not imitated.
    """
    match path_segments(path):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise failures.unknown_path()
    if rest[:1] == ["watch"]:
        raise failures.not_implemented("paths below /watch, which the query watch=true has replaced")
    namespace = ""
    # /namespaces/x/status is the namespace's own status, /namespaces/x/pods the pods in it.
    if len(rest) > 2 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 and rest[2] == "proxy":
        # What lies below is the path that is asked for there.
        rest = rest[:3]
    if not rest or len(rest) > 3:
        raise failures.unknown_path()
    plural, name, subresource = (*rest, "", "")[:3]
    kind = kinds.find(group, version, plural)
    if group == _ADMISSION_GROUP and plural in _ADMISSION_POLICIES:
        raise failures.not_implemented(f"admission policies ({plural}.{group})")
    if kind is None or (namespace and not kind.resource.namespaced):
        raise not_served_error(kinds, group, version)
    return Route(kind, namespace, name, subresource)
