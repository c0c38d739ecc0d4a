"""Routes: kind, object and subresource of a URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind

_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
_ADMISSION_GROUP = "admissionregistration.k8s.io"
# Storing policies without enforcing them would let tests pass that the real server fails.
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
    """Route of a resource path.

    Attributes:
        namespace: empty for all namespaces.
        name: empty for a collection.
    """

    kind: ServedKind
    namespace: str
    name: str
    subresource: str

    @property
    def is_single_scope(self) -> bool:
        """The route has a namespace or a cluster-scoped kind.

        Deletecollection requires it.
        """
        return bool(self.namespace) or not self.kind.resource.namespaced

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


def status_not_found(kinds: KindRegistry, route: Route) -> ApiError:
    """Return the error for the status of a kind without that subresource."""
    resource = route.kind.resource
    if route.kind.is_custom:
        return failures.not_found(resource, route.name)
    return not_served_error(kinds, resource.group, resource.version)


def not_served_error(kinds: KindRegistry, group: str, version: str) -> ApiError:
    """Return the error for an unknown path below a group and version.

    Built-in groups respond with a Status.
    """
    is_builtin = group in _REVIEW_GROUPS or any(
        (k.resource.group, k.resource.version) == (group, version) and not k.is_custom for k in kinds
    )
    return failures.unknown_resource() if is_builtin else failures.unknown_path()


def path_segments(path: str) -> list[str]:
    """Return the decoded segments of ``path``."""
    parts = path.strip("/").split("/")
    return [unquote(p) for p in parts] if "%" in path else parts


def find_route(path: str, kinds: KindRegistry) -> Route:
    """Return the route of a resource path.

    Raises:
        ApiError: 404, the path is not served; 501, it is not implemented.
    """
    match path_segments(path):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise failures.unknown_path()
    if rest[:1] == ["watch"]:
        raise failures.not_implemented("paths below /watch: use the query watch=true")
    namespace = ""
    # /namespaces/x/status is the status of the namespace, /namespaces/x/pods its pods.
    if len(rest) > 2 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 and rest[2] == "proxy":
        # The rest is the path of the proxied request.
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
