"""Default roles and bindings, which are not stored.

They are those that operators and tests need. ``admin``, ``edit`` and ``view`` have the rules of the aggregation
controller, and the rules of stored ClusterRoles with their labels. Source: "Using RBAC Authorization", "Default roles
and role bindings"; the rules are those of Kubernetes 1.36.
"""

from __future__ import annotations

from steersman_testing.apiserver.values import JsonObject

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_AGGREGATE_LABEL_PREFIX = "rbac.authorization.k8s.io/aggregate-to-"


def _rule(verbs: tuple[str, ...], groups: str, resources: str) -> JsonObject:
    """Return a rule. Groups and resources are separated by spaces.

    ``core`` is the empty group.
    """
    named = ["" if g == "core" else g for g in groups.split()]
    return {"verbs": list(verbs), "apiGroups": named, "resources": resources.split()}


def _path_rule(*urls: str) -> JsonObject:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


_VIEW = [
    _rule(
        _READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status",
    ),
    _rule(
        _READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas "
        "resourcequotas/status",
    ),
    _rule(_READ, "core", "namespaces"),
    _rule(_READ, "core events.k8s.io", "events"),
    _rule(_READ, "discovery.k8s.io", "endpointslices"),
    _rule(
        _READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
        "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
    ),
    _rule(_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    _rule(_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    _rule(_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    _rule(_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    _rule(_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
]
_EDIT = [
    _rule(_READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    _rule(("impersonate",), "core", "serviceaccounts"),
    _rule(_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    _rule(("create",), "core", "pods/eviction"),
    _rule(
        _WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
        "serviceaccounts services services/proxy",
    ),
    _rule(("create",), "core", "serviceaccounts/token"),
    _rule(_WRITE, "core events.k8s.io", "events"),
    _rule(
        _WRITE,
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "
        "statefulsets/scale",
    ),
    _rule(_WRITE, "autoscaling", "horizontalpodautoscalers"),
    _rule(_WRITE, "batch", "cronjobs jobs"),
    _rule(_WRITE, "policy", "poddisruptionbudgets"),
    _rule(_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    _rule(_READ_WRITE, "coordination.k8s.io", "leases"),
    _rule(_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
]
_ADMIN = [
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    _rule(_READ_WRITE, "rbac.authorization.k8s.io", "rolebindings roles"),
]

DEFAULT_ROLES: dict[str, list[JsonObject]] = {
    "cluster-admin": [_rule(("*",), "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "admin": [*_ADMIN, *_EDIT, *_VIEW],
    "edit": [*_EDIT, *_VIEW],
    "view": _VIEW,
    "system:auth-delegator": [
        _rule(("create",), "authentication.k8s.io", "tokenreviews"),
        _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
    "system:basic-user": [
        _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
    ],
    "system:discovery": [
        _path_rule(
            *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"),
            *("/version", "/version/"),
        )
    ],
    "system:controller:clusterrole-aggregation-controller": [
        _rule(("escalate", "get", "list", "patch", "update", "watch"), "rbac.authorization.k8s.io", "clusterroles")
    ],
    "system:public-info-viewer": [_path_rule("/healthz", "/livez", "/readyz", "/version", "/version/")],
}
"""Rules of the default ClusterRoles by name."""

AGGREGATION_LABELS = {
    "admin": (f"{_AGGREGATE_LABEL_PREFIX}admin", f"{_AGGREGATE_LABEL_PREFIX}edit", f"{_AGGREGATE_LABEL_PREFIX}view"),
    "edit": (f"{_AGGREGATE_LABEL_PREFIX}edit", f"{_AGGREGATE_LABEL_PREFIX}view"),
    "view": (f"{_AGGREGATE_LABEL_PREFIX}view",),
}
"""Labels that aggregate a stored ClusterRole to a default one if ``true``."""

DEFAULT_BINDINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cluster-admin", ("system:masters",)),
    ("system:basic-user", ("system:authenticated",)),
    ("system:discovery", ("system:authenticated",)),
    ("system:public-info-viewer", ("system:authenticated", "system:unauthenticated")),
)
"""ClusterRoleBindings: name of binding and role, and their groups."""

SERVICE_ACCOUNT_BINDINGS = {
    "system:serviceaccount:kube-system:clusterrole-aggregation-controller": (
        "system:controller:clusterrole-aggregation-controller"
    )
}
"""ClusterRoleBindings of service accounts: name of binding and role."""
