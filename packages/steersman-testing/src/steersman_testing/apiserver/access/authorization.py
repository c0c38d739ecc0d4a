"""Who may do what: users, what a request asks for, and role-based access control.

Source: "Using RBAC Authorization"; ``RequestInfoFactory`` and the RBAC authorizer of Kubernetes 1.36. Members of
``system:masters`` may do everything, without a look at the roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey, selectors
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.default_roles import (
    AGGREGATED,
    BOUND_ACCOUNTS,
    DEFAULT_BINDINGS,
    DEFAULT_ROLES,
)
from steersman_testing.apiserver.kinds import GroupResource
from steersman_testing.apiserver.requests.parameters import flag
from steersman_testing.apiserver.requests.routes import Route, parts_of
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

RBAC = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_AUTHENTICATED = "system:authenticated"
ACCOUNT = "system:serviceaccount:"
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# The verbs that paths of old begin with.
_SPECIAL = ("proxy", "watch")
_ROLES = GroupResource(RBAC, "roles")
CLUSTER_ROLES = GroupResource(RBAC, "clusterroles")
_BINDINGS = GroupResource(RBAC, "rolebindings")
_CLUSTER_BINDINGS = GroupResource(RBAC, "clusterrolebindings")


@dataclass(frozen=True, slots=True)
class User:
    """Who sends a request.

    Attributes:
        name: such as ``jane`` or ``system:serviceaccount:shop:till``.
        groups: all of them, ``system:authenticated`` included.
        uid: may be empty.
        extra: further facts, for webhooks.
        agent: how its client calls itself; empty where that is not known.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    agent: str = ""

    @property
    def is_master(self) -> bool:
        """Whether RBAC is not asked at all."""
        return MASTERS in self.groups

    def info(self) -> JsonObject:
        """``UserInfo`` in wire form."""
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {k: list(v) for k, v in self.extra.items()}
        return info


ADMINISTRATOR = User("kubernetes-admin", (MASTERS, _AUTHENTICATED))


def impersonated(
    name: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]] | None = None, uid: str = ""
) -> User:
    """The user that impersonation headers name, who is a member of what the server adds, too.

    Source: "Authenticating", "User impersonation".
    """
    account = name.removeprefix(ACCOUNT).split(":") if name.startswith(ACCOUNT) else []
    if not groups and len(account) == 2:
        groups = account_groups(account[0])[:-1]
    if name == "system:anonymous":
        groups = groups or ("system:unauthenticated",)
    elif _AUTHENTICATED not in groups:
        groups = (*groups, _AUTHENTICATED)
    return User(name, groups, uid, extra or {})


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of a namespace's service accounts."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED


class Attributes(NamedTuple):
    """What a request asks for. Where ``path`` is set, it is no resource, and only the verb counts beside it."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @staticmethod
    def of(verb: str, route: Route) -> Attributes:
        """``verb`` on what ``route`` names."""
        resource = route.kind.resource
        place = route.subresource, route.namespace, route.name
        return Attributes(verb, resource.group, resource.version, resource.plural, *place)

    @property
    def combined(self) -> str:
        """``deployments/status``, or ``deployments``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(request: HttpRequest) -> Attributes:
    """What ``request`` asks for, told from its method and URL alone; nothing needs to be served there."""
    verb = _VERBS.get(request.method, "")
    match parts_of(request.path):
        case ["api", version, first, *rest]:
            group = ""
        case ["apis", group, version, first, *rest]:
            pass
        case _:
            return Attributes(request.method.lower(), path=request.path)
    namespace, special = "", first in _SPECIAL and bool(rest)
    if special:
        verb, first, rest = first, rest[0], rest[1:]
    if first == "namespaces" and rest:
        namespace = rest[0]
        if len(rest) > 1 and rest[1] not in ("status", "finalize"):
            first, rest = rest[1], rest[2:]
    name, subresource = (*rest, "", "")[:2]
    if not name and not special:
        verb, name = _of_collection(verb, request.query)
    return Attributes(verb, group, version, first, subresource, namespace, name)


def _of_collection(verb: str, query: Mapping[str, str]) -> tuple[str, str]:
    """The verb on a collection, and the one name that a field selector lets through."""
    if verb == "delete":
        return "deletecollection", ""
    if verb != "get":
        return verb, ""
    return ("watch" if flag(query, "watch") else "list"), _selected_name(query)


def _selected_name(query: Mapping[str, str]) -> str:
    try:
        requirements = selectors.parse_field_selector(query.get("fieldSelector", ""))
    except selectors.SelectorError:
        return ""
    return next((r.value for r in requirements if r.field == "metadata.name" and r.equal), "")


class Decision(NamedTuple):
    """Whether it is allowed, and what the real server says about it."""

    allowed: bool
    reason: str = ""


class Grant(NamedTuple):
    """One rule, and the binding that gives it; or what is wrong with a binding."""

    rule: JsonObject
    because: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Judges by the Roles, ClusterRoles and bindings that are stored, and the default ones.

    Attributes:
        storage: the server's.
        aggregates: whether a controller fills ``admin``, ``edit`` and ``view``; without it they have no rules.
        refused: the messages of refusals so far.
    """

    observers: ClassVar[list[Callable[[User, Attributes], None]]] = []
    """Told of every question, whatever the answer; of all servers, since tests make their own."""

    storage: Storage
    aggregates: bool
    refused: list[str] = field(default_factory=list[str])

    def check(self, user: User, wanted: Attributes) -> None:
        """Returns if ``user`` may.

        Raises:
            ApiError: 403.
        """
        for observe in self.observers:
            observe(user, wanted)
        decision = self.decide(user, wanted)
        if not decision.allowed:
            raise self.refusal(forbidden(user, wanted, decision.reason))

    def check_request(self, user: User, request: HttpRequest) -> None:
        """As ``check``, of what ``request`` asks for; nobody needs to know that of who may do everything."""
        if self.observers or not user.is_master:
            self.check(user, attributes_of(request))

    def refusal(self, error: ApiError) -> ApiError:
        """``error``, which is noted."""
        self.refused.append(error.status.message)
        return error

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Whether ``user`` may."""
        if user.is_master:
            return Decision(True)
        errors: list[str] = []
        for grant in self.grants(user, wanted.namespace):
            if grant.error:
                errors.append(grant.error)
            elif allows(grant.rule, wanted):
                return Decision(True, f"RBAC: allowed by {grant.because}")
        return Decision(False, f"RBAC: {joined(errors)}" if errors else "")

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """What ``user`` is granted in ``namespace`` (empty: in the whole cluster), binding by binding."""
        for name, groups in DEFAULT_BINDINGS:
            if group := next((g for g in groups if g in user.groups), ""):
                because = f'ClusterRoleBinding "{name}" of ClusterRole "{name}" to Group "{group}"'
                yield from self._of_role({"kind": "ClusterRole", "name": name}, "", because)
        if name := BOUND_ACCOUNTS.get(user.name):
            place, account = user.name.removeprefix(ACCOUNT).split(":")
            because = f'ClusterRoleBinding "{name}" of ClusterRole "{name}" to ServiceAccount "{account}/{place}"'
            yield from self._of_role({"kind": "ClusterRole", "name": name}, "", because)
        bindings = self.storage.list(_CLUSTER_BINDINGS)
        if namespace:
            bindings += self.storage.list(_BINDINGS, namespace)
        for binding in bindings:
            subject = _subject_of(binding, user)
            if subject is not None:
                ref = map_at(binding.object, "roleRef")
                yield from self._of_role(ref, binding.key.namespace, _because(binding, ref, subject))

    def _of_role(self, ref: JsonObject, namespace: str, because: str) -> Iterator[Grant]:
        rules = self.rules_of(ref, namespace)
        if rules is None:
            kind = str(ref.get("kind", "")).lower()
            yield Grant({}, because, f'{kind}.{RBAC} "{ref.get("name", "")}" not found')
            return
        for rule in rules:
            yield Grant(rule, because)

    def rules_of(self, ref: JsonObject, namespace: str) -> list[JsonObject] | None:
        """The rules of the role that a ``roleRef`` names; None where there is none."""
        name = str(ref.get("name", ""))
        if ref.get("kind") == "Role":
            found = self.storage.get(_ROLES, ObjectKey(namespace, name))
        else:
            found = self.storage.get(CLUSTER_ROLES, ObjectKey("", name))
            if found is None:
                return self._default_rules(name)
        return None if found is None else list_at(found.object, "rules")

    def _default_rules(self, name: str) -> list[JsonObject] | None:
        rules = DEFAULT_ROLES.get(name)
        labels = AGGREGATED.get(name, ())
        if rules is None or not labels:
            return rules
        if not self.aggregates:
            return []
        labelled = [s for s in self.storage.list(CLUSTER_ROLES) if _has_any(s, labels)]
        return [*rules, *(r for s in labelled for r in list_at(s.object, "rules"))]


def _has_any(stored: Stored, labels: tuple[str, ...]) -> bool:
    worn = map_at(stored.object["metadata"], "labels")
    return any(worn.get(name) == "true" for name in labels)


def _subject_of(binding: Stored, user: User) -> JsonObject | None:
    """The subject of ``binding`` that ``user`` is, or None."""
    for subject in list_at(binding.object, "subjects"):
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User" if name == user.name:
                return subject
            case "Group" if name in user.groups:
                return subject
            case "ServiceAccount":
                namespace = subject.get("namespace") or binding.key.namespace
                if namespace and f"{ACCOUNT}{namespace}:{name}" == user.name:
                    return subject
            case _:
                pass
    return None


def _because(binding: Stored, ref: JsonObject, subject: JsonObject) -> str:
    namespace = binding.key.namespace
    kind, name = "ClusterRoleBinding", binding.key.name
    if namespace:
        kind, name = "RoleBinding", f"{name}/{namespace}"
    who = subject["name"]
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    role = f'{ref.get("kind")} "{ref.get("name")}"'
    return f'{kind} "{name}" of {role} to {subject["kind"]} "{who}"'


def allows(rule: JsonObject, wanted: Attributes) -> bool:
    """Whether a PolicyRule covers a request."""
    if not _holds(rule, "verbs", wanted.verb):
        return False
    if wanted.path:
        return any(_covers_path(u, wanted.path) for u in list_at(rule, "nonResourceURLs"))
    names = list_at(rule, "resourceNames")
    return (
        _holds(rule, "apiGroups", wanted.group)
        and any(_covers_resource(r, wanted) for r in list_at(rule, "resources"))
        and (not names or wanted.name in names)
    )


def _holds(rule: JsonObject, field: str, value: str) -> bool:
    values = list_at(rule, field)
    return "*" in values or value in values


def _covers_resource(resource: str, wanted: Attributes) -> bool:
    if resource in ("*", wanted.combined):
        return True
    return bool(wanted.subresource) and resource == f"*/{wanted.subresource}"


def _covers_path(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url.rstrip("*")))


def joined(errors: list[str]) -> str:
    """Errors as Go's ``NewAggregate`` prints them: each once, several in brackets."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def forbidden(user: User, wanted: Attributes, reason: str = "") -> ApiError:
    """The refusal of what ``user`` wanted."""
    return failures.forbidden(
        ApiResource(wanted.group, wanted.version, "", wanted.resource), wanted.name, denial(user, wanted, reason)
    )


def denial(user: User, wanted: Attributes, reason: str = "") -> str:
    """``User "jane" cannot …``."""
    if wanted.path:
        text = f'User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
    else:
        where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
        what = f'resource "{wanted.combined}" in API group "{wanted.group}"'
        text = f'User "{user.name}" cannot {wanted.verb} {what} {where}'
    return f"{text}: {reason}" if reason else text
