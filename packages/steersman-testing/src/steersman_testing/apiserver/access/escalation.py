"""Prevention of privilege escalation by roles and bindings.

Source: "Using RBAC Authorization", "Privilege escalation prevention and bootstrapping".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import (
    RBAC,
    AuthorizationAttributes,
    Authorizer,
    RequestUser,
    rule_allows,
)
from steersman_testing.apiserver.failures import format_value
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_CLUSTER_ADMIN_RULES: list[JsonObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
# The garbage collector may change ownerReferences and finalizers. The server sets the others.
_IGNORED_METADATA = ("ownerReferences", "finalizers", "resourceVersion", "managedFields", "uid", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class EscalationCheck:
    """Checks the permissions that ``user`` grants by a write.

    Attributes:
        name: name in the URL. Empty for a POST.
    """

    authorizer: Authorizer
    user: RequestUser
    name: str = ""

    def check(self, kind: ServedKind, obj: JsonObject, old: JsonObject | None = None) -> None:
        """Check that ``obj`` grants no more than the user has.

        Args:
            old: the object before an update.

        Raises:
            ApiError: 403; or 404, the referenced role does not exist.
        """
        if (
            kind.resource.group != RBAC
            or self.user.is_system_master
            or (old is not None and _only_ignored_changed(old, obj))
        ):
            return
        namespace = obj["metadata"].get("namespace", "")
        match kind.resource.kind:
            case "Role" | "ClusterRole":
                self._check_role(kind, obj, old or {}, namespace)
            case "RoleBinding" | "ClusterRoleBinding":
                self._check_binding(kind, obj, namespace)
            case _:
                pass

    def _check_role(self, kind: ServedKind, obj: JsonObject, old: JsonObject, namespace: str) -> None:
        attributes = AuthorizationAttributes("escalate", RBAC, "*", kind.resource.plural, "", namespace, self.name)
        if self.authorizer.decide(self.user, attributes).allowed:
            return
        self._check_covered(kind, obj, namespace, get_array(obj, "rules"))
        if obj.get("aggregationRule") or old.get("aggregationRule"):
            reason = "must have cluster-admin privileges to use the aggregationRule"
            if self._uncovered(namespace, _CLUSTER_ADMIN_RULES)[0]:
                raise self._forbidden(kind, obj, reason)

    def _check_binding(self, kind: ServedKind, obj: JsonObject, namespace: str) -> None:
        ref = get_object(obj, "roleRef")
        plural = "roles" if ref.get("kind") == "Role" else "clusterroles"
        name = str(ref.get("name", ""))
        attributes = AuthorizationAttributes("bind", RBAC, "*", plural, "", namespace, name)
        if self.authorizer.decide(self.user, attributes).allowed:
            return
        rules = self.authorizer.role_rules(ref, namespace)
        if rules is None:
            # The real server reports the missing role as a binding.
            raise failures.not_found(kind.resource, name)
        self._check_covered(kind, obj, namespace, rules)

    def _check_covered(self, kind: ServedKind, obj: JsonObject, namespace: str, rules: list[JsonObject]) -> None:
        missing, errors = self._uncovered(namespace, rules)
        if not missing:
            return
        groups = " ".join(format_value(g) for g in self.user.groups)
        requester = f'user "{self.user.name}" (groups=[{groups}])'
        message = f"{requester} is attempting to grant RBAC permissions not currently held:\n"
        message += "\n".join(sorted(set(_compact_rules(missing))))
        if errors:
            message += f"; resolution errors: [{' '.join(errors)}]"
        raise self._forbidden(kind, obj, message)

    def _forbidden(self, kind: ServedKind, obj: JsonObject, reason: str) -> ApiError:
        return self.authorizer.record_denial(
            failures.forbidden(kind.resource, obj["metadata"].get("name", ""), reason)
        )

    def _uncovered(self, namespace: str, rules: list[JsonObject]) -> tuple[list[AuthorizationAttributes], list[str]]:
        """Return permissions that the user does not have, and binding errors."""
        grants = list(self.authorizer.grants(self.user, namespace))
        own_rules = [g.rule for g in grants if not g.error]
        requested = [a for rule in rules for a in _break_down_rule(rule)]
        return [a for a in requested if not any(rule_allows(r, a) for r in own_rules)], [
            g.error for g in grants if g.error
        ]


def _break_down_rule(rule: JsonObject) -> Iterator[AuthorizationAttributes]:
    """Yield the single permissions of a rule."""
    names = get_array(rule, "resourceNames") or [""]
    verbs = get_array(rule, "verbs")
    for group, resource, verb, name in product(
        get_array(rule, "apiGroups"), get_array(rule, "resources"), verbs, names
    ):
        plural, _, subresource = resource.partition("/")
        yield AuthorizationAttributes(verb, group, "", plural, subresource, "", name)
    for path, verb in product(get_array(rule, "nonResourceURLs"), verbs):
        yield AuthorizationAttributes(verb, path=path)


def _compact_rules(permissions: Iterable[AuthorizationAttributes]) -> Iterator[str]:
    """Yield permissions as rules, merged by resource."""
    verbs: dict[AuthorizationAttributes, list[str]] = {}
    for permission in permissions:
        if permission.path:
            yield f"{{NonResourceURLs:[{format_value(permission.path)}], Verbs:[{format_value(permission.verb)}]}}"
        else:
            verbs.setdefault(permission._replace(verb=""), []).append(permission.verb)
    for attributes, verb_names in verbs.items():
        names = f", ResourceNames:[{format_value(attributes.name)}]" if attributes.name else ""
        listed = " ".join(format_value(v) for v in dict.fromkeys(verb_names))
        resource = format_value(attributes.resource_with_subresource)
        yield (f"{{APIGroups:[{format_value(attributes.group)}], Resources:[{resource}]{names}, Verbs:[{listed}]}}")


def _only_ignored_changed(old: JsonObject, new: JsonObject) -> bool:
    return _without_ignored_metadata(old) == _without_ignored_metadata(new)


def _without_ignored_metadata(obj: JsonObject) -> JsonObject:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in _IGNORED_METADATA}
    return {**obj, "metadata": metadata}
