"""Users, request attributes and the RBAC authorizer.

Members of ``system:masters`` bypass RBAC. Source: "Using RBAC Authorization"; ``RequestInfoFactory`` and the RBAC
authorizer of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey, selectors
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.default_roles import (
    AGGREGATION_LABELS,
    DEFAULT_BINDINGS,
    DEFAULT_ROLES,
    SERVICE_ACCOUNT_BINDINGS,
)
from steersman_testing.apiserver.kinds import GroupResource
from steersman_testing.apiserver.requests.parameters import bool_parameter
from steersman_testing.apiserver.requests.routes import Route, path_segments
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

RBAC = "rbac.authorization.k8s.io"
SYSTEM_MASTERS = "system:masters"
_SYSTEM_AUTHENTICATED = "system:authenticated"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
_VERB_OF_METHOD = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Verbs at the beginning of deprecated paths.
_SPECIAL_VERBS = ("proxy", "watch")
_ROLES = GroupResource(RBAC, "roles")
CLUSTER_ROLES = GroupResource(RBAC, "clusterroles")
_BINDINGS = GroupResource(RBAC, "rolebindings")
_CLUSTER_BINDINGS = GroupResource(RBAC, "clusterrolebindings")
_RBAC_COLLECTIONS = (_ROLES, CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS)
_MAX_DECISIONS = 1024


@dataclass(frozen=True, slots=True)
class RequestUser:
    """User of a request.

    Attributes:
        name: such as ``jane`` or ``system:serviceaccount:shop:orders``.
        groups: all groups, including ``system:authenticated``.
        uid: may be empty.
        extra: extra attributes, which webhooks receive.
        user_agent: the User-Agent of the client. Empty if unknown.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    user_agent: str = ""

    @property
    def is_system_master(self) -> bool:
        """The user bypasses RBAC."""
        return SYSTEM_MASTERS in self.groups

    def to_user_info(self) -> JsonObject:
        """Return ``UserInfo`` in wire form."""
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {k: list(v) for k, v in self.extra.items()}
        return info


ADMIN_USER = RequestUser("kubernetes-admin", (SYSTEM_MASTERS, _SYSTEM_AUTHENTICATED))


def impersonated_user(
    name: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]] | None = None, uid: str = ""
) -> RequestUser:
    """Return an impersonated user with the groups that the server adds.

    Source: "Authenticating", "User impersonation".
    """
    account = name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":") if name.startswith(SERVICE_ACCOUNT_PREFIX) else []
    if not groups and len(account) == 2:
        groups = service_account_groups(account[0])[:-1]
    if name == "system:anonymous":
        groups = groups or ("system:unauthenticated",)
    elif _SYSTEM_AUTHENTICATED not in groups:
        groups = (*groups, _SYSTEM_AUTHENTICATED)
    return RequestUser(name, groups, uid, extra or {})


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of the service accounts of a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}", _SYSTEM_AUTHENTICATED


class AuthorizationAttributes(NamedTuple):
    """Verb and object of a request.

    ``path`` is set for requests without a resource. Then only ``verb`` is used besides it.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @staticmethod
    def of(verb: str, route: Route) -> AuthorizationAttributes:
        """Return the attributes of ``verb`` on a route."""
        resource = route.kind.resource
        location = route.subresource, route.namespace, route.name
        return AuthorizationAttributes(verb, resource.group, resource.version, resource.plural, *location)

    @property
    def resource_with_subresource(self) -> str:
        """Resource with its subresource, such as ``deployments/status``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_attributes(request: HttpRequest) -> AuthorizationAttributes:
    """Return the authorization attributes of a request.

    Method and URL determine them. The resource need not be served.
    """
    verb = _VERB_OF_METHOD.get(request.method, "")
    match path_segments(request.path):
        case ["api", version, first, *rest]:
            group = ""
        case ["apis", group, version, first, *rest]:
            pass
        case _:
            return AuthorizationAttributes(request.method.lower(), path=request.path)
    namespace, is_special = "", first in _SPECIAL_VERBS and bool(rest)
    if is_special:
        verb, first, rest = first, rest[0], rest[1:]
    if first == "namespaces" and rest:
        namespace = rest[0]
        if len(rest) > 1 and rest[1] not in ("status", "finalize"):
            first, rest = rest[1], rest[2:]
    name, subresource = (*rest, "", "")[:2]
    if not name and not is_special:
        verb, name = _collection_verb(verb, request.query)
    return AuthorizationAttributes(verb, group, version, first, subresource, namespace, name)


def _collection_verb(verb: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return the verb on a collection and the selected name."""
    if verb == "delete":
        return "deletecollection", ""
    if verb != "get":
        return verb, ""
    return ("watch" if bool_parameter(query, "watch") else "list"), _selected_name(query)


def _selected_name(query: Mapping[str, str]) -> str:
    try:
        requirements = selectors.parse_field_selector(query.get("fieldSelector", ""))
    except selectors.SelectorError:
        return ""
    return next((r.value for r in requirements if r.field == "metadata.name" and r.equal), "")


class Decision(NamedTuple):
    """Decision of the authorizer, with the reason of the real server."""

    allowed: bool
    reason: str = ""


class Grant(NamedTuple):
    """One granted rule with its binding, or the error of a binding."""

    rule: JsonObject
    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides by stored and default roles and bindings.

    Attributes:
        storage: storage of the server.
        aggregate_roles: whether a controller aggregates ``admin``, ``edit`` and ``view``. Without it they have no
            rules.
        denials: messages of denied requests.
    """

    observers: ClassVar[list[Callable[[RequestUser, AuthorizationAttributes], None]]] = []
    """Called for each check of each server."""

    storage: Storage
    aggregate_roles: bool
    denials: list[str] = field(default_factory=list[str])
    _decisions: dict[tuple[Any, ...], Decision] = field(default_factory=dict[tuple[Any, ...], "Decision"])

    def check(self, user: RequestUser, attributes: AuthorizationAttributes) -> None:
        """Check that ``user`` is allowed.

        Raises:
            ApiError: 403.
        """
        for observer in self.observers:
            observer(user, attributes)
        decision = self.decide(user, attributes)
        if not decision.allowed:
            raise self.record_denial(forbidden_error(user, attributes, decision.reason))

    def check_request(self, user: RequestUser, request: HttpRequest) -> None:
        """Check a request. Administrators are checked for observers only.

        Raises:
            ApiError: 403.
        """
        if self.observers or not user.is_system_master:
            self.check(user, request_attributes(request))

    def record_denial(self, error: ApiError) -> ApiError:
        """Record a denial and return it."""
        self.denials.append(error.status.message)
        return error

    def decide(self, user: RequestUser, attributes: AuthorizationAttributes) -> Decision:
        """Return the decision about ``user``."""
        if user.is_system_master:
            return Decision(True)
        changes = tuple(self.storage.changes[collection] for collection in _RBAC_COLLECTIONS)
        key = changes, user.name, user.groups, attributes
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) == _MAX_DECISIONS:
                self._decisions.clear()
            found = self._decisions[key] = self._decide(user, attributes)
        return found

    def _decide(self, user: RequestUser, attributes: AuthorizationAttributes) -> Decision:
        errors: list[str] = []
        for grant in self.grants(user, attributes.namespace):
            if grant.error:
                errors.append(grant.error)
            elif rule_allows(grant.rule, attributes):
                return Decision(True, f"RBAC: allowed by {grant.reason}")
        return Decision(False, f"RBAC: {aggregate_errors(errors)}" if errors else "")

    def grants(self, user: RequestUser, namespace: str) -> Iterator[Grant]:
        """Yield the rules granted to ``user``.

        Args:
            namespace: empty for rules in the whole cluster.
        """
        for name, groups in DEFAULT_BINDINGS:
            if group := next((g for g in groups if g in user.groups), ""):
                reason = f'ClusterRoleBinding "{name}" of ClusterRole "{name}" to Group "{group}"'
                yield from self._role_grants({"kind": "ClusterRole", "name": name}, "", reason)
        if name := SERVICE_ACCOUNT_BINDINGS.get(user.name):
            account_namespace, account = user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":")
            subject = f'ServiceAccount "{account}/{account_namespace}"'
            reason = f'ClusterRoleBinding "{name}" of ClusterRole "{name}" to {subject}'
            yield from self._role_grants({"kind": "ClusterRole", "name": name}, "", reason)
        bindings = self.storage.list(_CLUSTER_BINDINGS)
        if namespace:
            bindings += self.storage.list(_BINDINGS, namespace)
        for binding in bindings:
            subject = _matching_subject(binding, user)
            if subject is not None:
                ref = get_object(binding.object, "roleRef")
                yield from self._role_grants(ref, binding.key.namespace, _allow_reason(binding, ref, subject))

    def _role_grants(self, ref: JsonObject, namespace: str, reason: str) -> Iterator[Grant]:
        rules = self.role_rules(ref, namespace)
        if rules is None:
            kind = str(ref.get("kind", "")).lower()
            yield Grant({}, reason, f'{kind}.{RBAC} "{ref.get("name", "")}" not found')
            return
        for rule in rules:
            yield Grant(rule, reason)

    def role_rules(self, ref: JsonObject, namespace: str) -> list[JsonObject] | None:
        """Return the rules of a referenced role, or None."""
        name = str(ref.get("name", ""))
        if ref.get("kind") == "Role":
            found = self.storage.get(_ROLES, ObjectKey(namespace, name))
        else:
            found = self.storage.get(CLUSTER_ROLES, ObjectKey("", name))
            if found is None:
                return self._default_rules(name)
        return None if found is None else get_array(found.object, "rules")

    def _default_rules(self, name: str) -> list[JsonObject] | None:
        rules = DEFAULT_ROLES.get(name)
        labels = AGGREGATION_LABELS.get(name, ())
        if rules is None or not labels:
            return rules
        if not self.aggregate_roles:
            return []
        labeled_roles = [s for s in self.storage.list(CLUSTER_ROLES) if _has_any_label(s, labels)]
        return [*rules, *(r for s in labeled_roles for r in get_array(s.object, "rules"))]


def _has_any_label(stored: StoredObject, labels: tuple[str, ...]) -> bool:
    role_labels = get_object(stored.object["metadata"], "labels")
    return any(role_labels.get(name) == "true" for name in labels)


def _matching_subject(binding: StoredObject, user: RequestUser) -> JsonObject | None:
    """Return the subject of ``binding`` that matches ``user``, or None."""
    for subject in get_array(binding.object, "subjects"):
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User" if name == user.name:
                return subject
            case "Group" if name in user.groups:
                return subject
            case "ServiceAccount":
                namespace = subject.get("namespace") or binding.key.namespace
                if namespace and f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}" == user.name:
                    return subject
            case _:
                pass
    return None


def _allow_reason(binding: StoredObject, ref: JsonObject, subject: JsonObject) -> str:
    namespace = binding.key.namespace
    kind, name = "ClusterRoleBinding", binding.key.name
    if namespace:
        kind, name = "RoleBinding", f"{name}/{namespace}"
    subject_name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        subject_name = f"{subject_name}/{subject.get('namespace') or namespace}"
    role = f'{ref.get("kind")} "{ref.get("name")}"'
    return f'{kind} "{name}" of {role} to {subject["kind"]} "{subject_name}"'


def rule_allows(rule: JsonObject, attributes: AuthorizationAttributes) -> bool:
    """Return True if a PolicyRule allows the request."""
    if not _matches_value(rule, "verbs", attributes.verb):
        return False
    if attributes.path:
        return any(_matches_path(u, attributes.path) for u in get_array(rule, "nonResourceURLs"))
    names = get_array(rule, "resourceNames")
    return (
        _matches_value(rule, "apiGroups", attributes.group)
        and any(_matches_resource(r, attributes) for r in get_array(rule, "resources"))
        and (not names or attributes.name in names)
    )


def _matches_value(rule: JsonObject, field: str, value: str) -> bool:
    values = get_array(rule, field)
    return "*" in values or value in values


def _matches_resource(resource: str, attributes: AuthorizationAttributes) -> bool:
    if resource in ("*", attributes.resource_with_subresource):
        return True
    return bool(attributes.subresource) and resource == f"*/{attributes.subresource}"


def _matches_path(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url.rstrip("*")))


def aggregate_errors(errors: list[str]) -> str:
    """Join errors as Go's ``NewAggregate``."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def forbidden_error(user: RequestUser, attributes: AuthorizationAttributes, reason: str = "") -> ApiError:
    """Return the error for a denied request."""
    return failures.forbidden(
        ApiResource(attributes.group, attributes.version, "", attributes.resource),
        attributes.name,
        denial_message(user, attributes, reason),
    )


def denial_message(user: RequestUser, attributes: AuthorizationAttributes, reason: str = "") -> str:
    """Return ``User "jane" cannot …``."""
    if attributes.path:
        text = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
    else:
        scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
        resource = f'resource "{attributes.resource_with_subresource}" in API group "{attributes.group}"'
        text = f'User "{user.name}" cannot {attributes.verb} {resource} {scope}'
    return f"{text}: {reason}" if reason else text
