"""Nobody grants what he does not have himself: what is checked when roles and bindings are written.

Source: "Using RBAC Authorization", "Privilege escalation prevention and bootstrapping".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import RBAC, Attributes, Authorizer, User, allows
from steersman_testing.apiserver.failures import shown
from steersman_testing.apiserver.kinds import Kind
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_EVERYTHING: list[JsonObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
# The garbage collector changes the first two alone, and may; the others nobody changes.
_COLLECTED = ("ownerReferences", "finalizers", "resourceVersion", "managedFields", "uid", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Escalation:
    """Judges what ``user`` grants by writing an object.

    Attributes:
        name: in the URL; empty for a POST.
    """

    authorizer: Authorizer
    user: User
    name: str = ""

    def check(self, kind: Kind, obj: JsonObject, old: JsonObject | None = None) -> None:
        """Returns if ``obj``, in place of ``old``, grants no more than the user has.

        Raises:
            ApiError: 403; or 404, the role to bind is missing, so nobody knows what it grants.
        """
        if kind.resource.group != RBAC or self.user.is_master or (old is not None and _only_collected(old, obj)):
            return
        namespace = obj["metadata"].get("namespace", "")
        match kind.resource.kind:
            case "Role" | "ClusterRole":
                self._check_role(kind, obj, old or {}, namespace)
            case "RoleBinding" | "ClusterRoleBinding":
                self._check_binding(kind, obj, namespace)
            case _:
                pass

    def _check_role(self, kind: Kind, obj: JsonObject, old: JsonObject, namespace: str) -> None:
        wanted = Attributes("escalate", RBAC, "*", kind.resource.plural, "", namespace, self.name)
        if self.authorizer.decide(self.user, wanted).allowed:
            return
        self._cover(kind, obj, namespace, list_at(obj, "rules"))
        if obj.get("aggregationRule") or old.get("aggregationRule"):
            because = "must have cluster-admin privileges to use the aggregationRule"
            if self._missing(namespace, _EVERYTHING)[0]:
                raise self._forbidden(kind, obj, because)

    def _check_binding(self, kind: Kind, obj: JsonObject, namespace: str) -> None:
        ref = map_at(obj, "roleRef")
        plural = "roles" if ref.get("kind") == "Role" else "clusterroles"
        name = str(ref.get("name", ""))
        wanted = Attributes("bind", RBAC, "*", plural, "", namespace, name)
        if self.authorizer.decide(self.user, wanted).allowed:
            return
        rules = self.authorizer.rules_of(ref, namespace)
        if rules is None:
            # The real server calls the missing role a binding, too.
            raise failures.not_found(kind.resource, name)
        self._cover(kind, obj, namespace, rules)

    def _cover(self, kind: Kind, obj: JsonObject, namespace: str, rules: list[JsonObject]) -> None:
        missing, errors = self._missing(namespace, rules)
        if not missing:
            return
        groups = " ".join(shown(g) for g in self.user.groups)
        who = f'user "{self.user.name}" (groups=[{groups}])'
        because = f"{who} is attempting to grant RBAC permissions not currently held:\n"
        because += "\n".join(sorted(set(_compact(missing))))
        if errors:
            because += f"; resolution errors: [{' '.join(errors)}]"
        raise self._forbidden(kind, obj, because)

    def _forbidden(self, kind: Kind, obj: JsonObject, because: str) -> ApiError:
        return self.authorizer.refusal(failures.forbidden(kind.resource, obj["metadata"].get("name", ""), because))

    def _missing(self, namespace: str, rules: list[JsonObject]) -> tuple[list[Attributes], list[str]]:
        """What ``rules`` allow and the user's own do not; and why some of the latter could not be read."""
        held = list(self.authorizer.grants(self.user, namespace))
        own = [g.rule for g in held if not g.error]
        wanted = [a for rule in rules for a in _breakdown(rule)]
        return [a for a in wanted if not any(allows(r, a) for r in own)], [g.error for g in held if g.error]


def _breakdown(rule: JsonObject) -> Iterator[Attributes]:
    """The single permissions of ``rule``."""
    names = list_at(rule, "resourceNames") or [""]
    verbs = list_at(rule, "verbs")
    for group, resource, verb, name in product(list_at(rule, "apiGroups"), list_at(rule, "resources"), verbs, names):
        plural, _, subresource = resource.partition("/")
        yield Attributes(verb, group, "", plural, subresource, "", name)
    for path, verb in product(list_at(rule, "nonResourceURLs"), verbs):
        yield Attributes(verb, path=path)


def _compact(permissions: Iterable[Attributes]) -> Iterator[str]:
    """Permissions as rules, those of one resource together."""
    verbs: dict[Attributes, list[str]] = {}
    for permission in permissions:
        if permission.path:
            yield f"{{NonResourceURLs:[{shown(permission.path)}], Verbs:[{shown(permission.verb)}]}}"
        else:
            verbs.setdefault(permission._replace(verb=""), []).append(permission.verb)
    for wanted, named in verbs.items():
        names = f", ResourceNames:[{shown(wanted.name)}]" if wanted.name else ""
        listed = " ".join(shown(v) for v in dict.fromkeys(named))
        yield f"{{APIGroups:[{shown(wanted.group)}], Resources:[{shown(wanted.combined)}]{names}, Verbs:[{listed}]}}"


def _only_collected(old: JsonObject, new: JsonObject) -> bool:
    return _without_collected(old) == _without_collected(new)


def _without_collected(obj: JsonObject) -> JsonObject:
    kept = {k: v for k, v in obj["metadata"].items() if k not in _COLLECTED}
    return {**obj, "metadata": kept}
