"""ClusterRoles whose rules are those of others: the aggregation controller, within the request that calls for it.

Source: "Using RBAC Authorization", "Aggregated ClusterRoles".
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman_testing.apiserver.access.authorization import CLUSTER_ROLES
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.requests.selectors import label_matcher, selector_text
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, list_at, map_at


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Fills aggregated ClusterRoles."""

    storage: Storage
    requests: ControllerRequests

    def settle(self) -> None:
        """Goes on until each has the rules that its selectors ask for: one aggregated role may be part of another."""
        before = -1
        while before != self.storage.version:
            before = self.storage.version
            for role in self.storage.list(CLUSTER_ROLES):
                if role.object.get("aggregationRule"):
                    self._fill(role)

    def _fill(self, role: Stored) -> None:
        rules: list[JsonObject] = []
        for selector in list_at(map_at(role.object, "aggregationRule"), "clusterRoleSelectors"):
            for other in self.storage.list(CLUSTER_ROLES):
                if other.key != role.key and _selects(selector, other):
                    rules += [r for r in list_at(other.object, "rules") if r not in rules]
        if rules != list_at(role.object, "rules"):
            self.requests.aggregate(role, rules)


def _selects(selector: JsonObject, role: Stored) -> bool:
    matches = label_matcher(selector_text(selector))
    return matches is None or matches(role.object)
