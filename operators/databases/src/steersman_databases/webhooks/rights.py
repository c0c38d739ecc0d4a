"""Whether who writes an object may do themselves what the operator would do for them because the object says so."""

from __future__ import annotations

import asyncio

from steersman.api.core_v1 import Pod, Secret
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman.webhook import AdmissionRequest, FieldError
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.named_secrets import NamedSecret, Naming, named_secrets

_CLUSTERS = (PostgreSQLCluster, MySQLCluster)


class Rights:
    """Asks the API server about users.

    Args:
        client: the operator's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def check(self, obj: Naming, former: Naming | None, request: AdmissionRequest) -> list[FieldError]:
        """What the user may not do of what is new in ``obj``; all of it is new where it is created."""
        known = _known(obj, former)
        named = [each for each in named_secrets(obj) if _use(each) not in known]
        keys = list(dict.fromkeys(each.key for each in named))
        allowed = dict(zip(keys, await asyncio.gather(*(self._may_read(k, request) for k in keys)), strict=True))
        causes = [_unreadable(each, request) for each in named if not allowed[each.key]]
        if (chosen := _chosen(obj, former)) and not await self._may_run(request):
            causes += [_unrunnable(field, request) for field in chosen]
        return causes

    async def _may_read(self, secret: ObjectKey, request: AdmissionRequest) -> bool:
        return await request.user.is_allowed(
            self._client, "get", Secret, namespace=secret.namespace, name=secret.name
        )

    async def _may_run(self, request: AdmissionRequest) -> bool:
        return await request.user.is_allowed(self._client, "create", Pod, namespace=request.namespace)


def _use(named: NamedSecret) -> tuple[str, ObjectKey, tuple[str, ...]]:
    """What is done with the Secret, wherever in a list it stands."""
    return named.field.partition("[")[0], named.key, named.entries


def _known(obj: Naming, former: Naming | None) -> set[tuple[str, ObjectKey, tuple[str, ...]]]:
    """The uses that were asked about before. Who changes how a server is told decides who gets its Secrets."""
    if former is None:
        return set()
    uses = {_use(each) for each in named_secrets(former)}
    if isinstance(obj, _CLUSTERS) or isinstance(former, _CLUSTERS):
        return uses
    same = obj.spec.server_ref == former.spec.server_ref
    return {use for use in uses if same or not use[0].startswith("spec.serverRef.")}


def _chosen(obj: Naming, former: Naming | None) -> list[str]:
    """Fields that say of pods what neither the operator chose nor somebody who was asked before."""
    if not isinstance(obj, _CLUSTERS):
        return []
    before = _of_pods(former) if isinstance(former, _CLUSTERS) else {}
    return [field for field, said in _of_pods(obj).items() if said not in (None, before.get(field))]


def _of_pods(cluster: Cluster) -> dict[str, str | None]:
    """What only those may say of a pod who may create one, by field: it decides what runs, and what that may do.

    Labels let it into others' Services and policies, annotations into networks or out of confinement, and for a
    priority others' pods are ended. On which nodes it is, and what it takes of them, any cluster has to say.
    """
    spec = cluster.spec
    upgrade = spec.upgrade_image if isinstance(spec, PostgreSQLClusterSpec) else None
    return {
        "spec.image": spec.image,
        "spec.upgradeImage": upgrade,
        "spec.priorityClassName": spec.priority_class_name,
        **{f"spec.podMetadata.labels[{name}]": said for name, said in spec.pod_metadata.labels.items()},
        **{f"spec.podMetadata.annotations[{name}]": said for name, said in spec.pod_metadata.annotations.items()},
    }


def _unreadable(named: NamedSecret, request: AdmissionRequest) -> FieldError:
    namespace, name = named.key.namespace, named.key.name
    return FieldError(
        named.field,
        f'user "{request.user.username}" may not get Secret {name} in namespace {namespace}, which the operator '
        f"would use for them: have it applied by somebody who may, or let them get secrets of resourceNames [{name}] "
        f"by a Role in {namespace}",
        reason="FieldValueForbidden",
    )


def _unrunnable(field: str, request: AdmissionRequest) -> FieldError:
    is_image = field.lower().endswith("image")
    does, instead = ("run this image", " for the operator's own") if is_image else ("run pods with it", "")
    return FieldError(
        field,
        f'user "{request.user.username}" may not create pods in namespace {request.namespace}, where the operator '
        f"would {does} for them: leave it out{instead}, or have it applied by somebody who may",
        reason="FieldValueForbidden",
    )
