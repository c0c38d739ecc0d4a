"""ClusterRole aggregation controller, which runs within the request that causes it.

Source: "Using RBAC Authorization", "Aggregated ClusterRoles".
"""

from __future__ import annotations

from dataclasses import dataclass

from steersman_testing.apiserver.access.authorization import CLUSTER_ROLES
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.requests.selectors import label_matcher, label_selector_text
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_array, get_object


@dataclass(frozen=True, slots=True)
class ClusterRoleAggregator:
    """Sets the rules of aggregated ClusterRoles."""

    storage: Storage
    requests: ControllerRequests

    def reconcile(self) -> None:
        """Aggregate rules until nothing changes.

        An aggregated role may be part of another one.
        """
        last_version = -1
        while last_version != self.storage.version:
            last_version = self.storage.version
            for role in self.storage.list(CLUSTER_ROLES):
                if role.object.get("aggregationRule"):
                    self._aggregate(role)

    def _aggregate(self, role: StoredObject) -> None:
        rules: list[JsonObject] = []
        for selector in get_array(get_object(role.object, "aggregationRule"), "clusterRoleSelectors"):
            for other in self.storage.list(CLUSTER_ROLES):
                if other.key != role.key and _selector_matches(selector, other):
                    rules += [r for r in get_array(other.object, "rules") if r not in rules]
        if rules != get_array(role.object, "rules"):
            self.requests.apply_aggregated_rules(role, rules)


def _selector_matches(selector: JsonObject, role: StoredObject) -> bool:
    matches = label_matcher(label_selector_text(selector))
    return matches is None or matches(role.object)
