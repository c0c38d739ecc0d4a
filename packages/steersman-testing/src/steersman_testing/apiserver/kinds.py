"""Served kinds: a table of built-in ones, and a registry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from steersman.meta import ApiResource
from steersman_testing.apiserver.shapes import BuiltinShape, RegisteredShape, Shape
from steersman_testing.apiserver.values import JsonObject


class GroupResource(NamedTuple):
    """Name of a collection, independent of its version."""

    group: str
    plural: str

    @property
    def qualified(self) -> str:
        """Qualified name: ``deployments.apps``, or ``pods`` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACE = ApiResource("", "v1", "Namespace", "namespaces", False)
NAMESPACES = GroupResource("", "namespaces")
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class ScalePaths(NamedTuple):
    """Field paths of the subresource scale. ``label_selector_path`` may be empty."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class Column(NamedTuple):
    """Column of a Table besides the name.

    The fields are those of ``additionalPrinterColumns``.
    """

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CustomResourceVersions:
    """Properties that all versions of a custom resource share.

    Attributes:
        definition: name of the CustomResourceDefinition.
        storage_version: version of new writes. Older objects may be stored in another version.
        schemas: schema of each version, served or not.
        conversion: ``spec.conversion`` in wire form.
        terminating: whether the definition is being deleted.
    """

    definition: str
    storage_version: str
    schemas: Mapping[str, JsonObject]
    conversion: JsonObject
    terminating: bool = False


_VERSION_NAME = re.compile(r"v(?P<major>\d+)(?:(?P<stage>alpha|beta)(?P<minor>\d+))?")


def version_sort_key(version: str) -> tuple[int, int, int, str]:
    """Return a key that sorts the most stable and newest version first."""
    found = _VERSION_NAME.fullmatch(version)
    if found is None:
        return 3, 0, 0, version
    return {None: 0, "beta": 1, "alpha": 2}[found["stage"]], -int(found["major"]), -int(found["minor"] or 0), ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """One kind in one version.

    Attributes:
        resource: names and scope.
        shape: merge strategy of its values.
        has_status: whether it has the subresource status.
        scale: paths of the subresource scale, or None.
        has_generation: whether ``metadata.generation`` counts changes of the spec.
        unconditional_update: whether a PUT may omit the resourceVersion.
        create_on_update: whether a PUT creates a missing object.
        schema: OpenAPI schema of a custom resource.
        has_rules: whether the schema has CEL rules.
        has_expensive_rules: whether the rules may exceed the cost budget for some objects.
        storage_version: version of new writes.
        selectable_fields: fields of field selectors besides name and namespace.
        is_custom: whether a CustomResourceDefinition defines it.
        singular: singular name for discovery.
        short_names: short names for discovery.
        list_kind: kind of its lists.
        categories: categories for discovery.
        columns: columns of Tables of custom resources.
        versions: properties of all versions of a custom resource.
        deprecation_warning: warning for requests. Empty if the version is not deprecated.
        storage_collection: collection of its objects if it is that of another kind, or None.
        collection: collection of its objects.
    """

    resource: ApiResource
    shape: Shape
    has_status: bool = False
    scale: ScalePaths | None = None
    has_generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    schema: JsonObject | None = None
    has_rules: bool = False
    has_expensive_rules: bool = False
    storage_version: str = ""
    selectable_fields: tuple[str, ...] = ()
    is_custom: bool = False
    singular: str = ""
    short_names: tuple[str, ...] = ()
    list_kind: str = ""
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    versions: CustomResourceVersions | None = None
    deprecation_warning: str = ""
    storage_collection: GroupResource | None = None
    collection: GroupResource = field(init=False)

    def __post_init__(self) -> None:
        collection = self.storage_collection or GroupResource(self.resource.group, self.resource.plural)
        object.__setattr__(self, "collection", collection)


_BUILTIN = """
# group/version          kind                      plural                     flags: Namespaced Status Generation
v1                       Namespace                 namespaces                 S
v1                       Node                      nodes                      S
v1                       PersistentVolume          persistentvolumes          S
v1                       Pod                       pods                       NSG
v1                       Service                   services                   NS
v1                       Secret                    secrets                    N
v1                       ConfigMap                 configmaps                 N
v1                       PersistentVolumeClaim     persistentvolumeclaims     NS
v1                       Event                     events                     N
v1                       ServiceAccount            serviceaccounts            N
v1                       Endpoints                 endpoints                  N
v1                       ResourceQuota             resourcequotas             NS
v1                       LimitRange                limitranges                N
apps/v1                  StatefulSet               statefulsets               NSG
apps/v1                  Deployment                deployments                NSG
apps/v1                  ReplicaSet                replicasets                NSG
apps/v1                  DaemonSet                 daemonsets                 NSG
apps/v1                  ControllerRevision        controllerrevisions        N
batch/v1                 Job                       jobs                       NSG
batch/v1                 CronJob                   cronjobs                   NSG
coordination.k8s.io/v1   Lease                     leases                     N
discovery.k8s.io/v1      EndpointSlice             endpointslices             NG
events.k8s.io/v1         Event                     events                     N
networking.k8s.io/v1     Ingress                   ingresses                  NSG
networking.k8s.io/v1     IngressClass              ingressclasses             G
networking.k8s.io/v1     NetworkPolicy             networkpolicies            NG
policy/v1                PodDisruptionBudget       poddisruptionbudgets       NSG
autoscaling/v2           HorizontalPodAutoscaler   horizontalpodautoscalers   NS
rbac.authorization.k8s.io/v1 Role                  roles                      N
rbac.authorization.k8s.io/v1 RoleBinding           rolebindings               N
rbac.authorization.k8s.io/v1 ClusterRole           clusterroles               -
rbac.authorization.k8s.io/v1 ClusterRoleBinding    clusterrolebindings        -
scheduling.k8s.io/v1     PriorityClass             priorityclasses            G
storage.k8s.io/v1        StorageClass              storageclasses             -
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration   mutatingwebhookconfigurations   G
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration validatingwebhookconfigurations G
apiextensions.k8s.io/v1  CustomResourceDefinition  customresourcedefinitions  SG
"""

_SCALABLE_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")
_SELECTABLE_FIELDS: dict[str, tuple[str, ...]] = {
    "Pod": ("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"),
    "Secret": ("type",),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Job": ("status.successful",),
}


_CREATED_ON_UPDATE = {
    "Service",
    "Event",
    "Endpoints",
    "LimitRange",
    "Lease",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
}


_REFERENCE_FIELDS = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")
_SELECTABLE_EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "": (*(f"involvedObject.{n}" for n in _REFERENCE_FIELDS), "reason", "reportingComponent", "source", "type"),
    "events.k8s.io": (*(f"regarding.{n}" for n in _REFERENCE_FIELDS), "reason", "reportingController", "type"),
}
_EVENTS = GroupResource("", "events")


@cache
def _builtin_kinds() -> Mapping[tuple[str, str, str], ServedKind]:
    return {_path_of(kind): kind for kind in _parse_builtin_kinds()}


def _path_of(kind: ServedKind) -> tuple[str, str, str]:
    return kind.resource.group, kind.resource.version, kind.resource.plural


def _parse_builtin_kinds() -> Iterator[ServedKind]:
    for line in _BUILTIN.strip().splitlines()[1:]:
        api_version, name, plural, flags = line.split()
        group, _, version = api_version.rpartition("/")
        yield ServedKind(
            resource=ApiResource(group, version, name, plural, "N" in flags),
            shape=BuiltinShape((name,)),
            has_status="S" in flags,
            scale=ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")
            if name in _SCALABLE_KINDS
            else None,
            has_generation="G" in flags,
            unconditional_update=name not in {"CustomResourceDefinition", "Lease", "PodDisruptionBudget"},
            create_on_update=name in _CREATED_ON_UPDATE,
            storage_version=version,
            selectable_fields=_SELECTABLE_EVENT_FIELDS[group]
            if name == "Event"
            else _SELECTABLE_FIELDS.get(name, ()),
            storage_collection=_EVENTS if name == "Event" else None,
            singular=name.lower(),
        )


def schemaless_kind(resource: ApiResource) -> ServedKind:
    """Return a kind without a schema, with the subresource status."""
    return ServedKind(
        resource=resource,
        shape=RegisteredShape(),
        has_status=True,
        has_generation=True,
        storage_version=resource.version,
        singular=resource.kind.lower(),
    )


@dataclass(slots=True)
class KindRegistry:
    """All served kinds, which are the built-in ones at first."""

    _by_path: dict[tuple[str, str, str], ServedKind] = field(default_factory=lambda: dict(_builtin_kinds()))

    def add(self, kind: ServedKind) -> None:
        """Serve ``kind``. It replaces a previous one of the same name and version."""
        self._by_path[_path_of(kind)] = kind

    def remove(self, collection: GroupResource) -> None:
        """Stop serving all versions of ``collection``."""
        self._by_path = {p: k for p, k in self._by_path.items() if k.collection != collection}

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """Return the kind of a path, or None."""
        return self._by_path.get((group, version, plural))

    def find_by_collection(self, collection: GroupResource) -> ServedKind | None:
        """Return the storage version of ``collection`` if it is served.

        Otherwise another version, or None.
        """
        found = [k for k in self._by_path.values() if k.collection == collection]
        return next((k for k in found if k.resource.version == k.storage_version), found[0] if found else None)

    def find_by_gvk(self, api_version: str, kind: str) -> ServedKind | None:
        """Return the kind with ``apiVersion`` and ``kind``, or None."""
        return next(
            (k for k in self if k.resource.api_version == api_version and k.resource.kind == kind),
            None,
        )

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(self._by_path.values())
