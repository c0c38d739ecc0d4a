"""Refuses a Prometheus that prometheus-operator runs."""

from __future__ import annotations

from steersman import CachedClient, NotFound
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Secret
from steersman.errors import NameConflict
from steersman.meta import metadata_only

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.resources import workload_key


class ManagedElsewhere(NameConflict):
    """Another operator runs the Prometheus. A retry succeeds when its objects are deleted."""


async def require_own_objects(client: CachedClient, prometheus: Prometheus) -> None:
    """Require that no other operator runs ``prometheus``.

    prometheus-operator uses the same names and the same controller owner, so an apply would change its objects.

    Raises:
        ManagedElsewhere: Secret or StatefulSet lack the label of this operator.
    """
    key = workload_key(prometheus)
    for kind in (Secret, StatefulSet):
        # The cache has only objects with the label.
        if await client.get_or_none(kind, key) is not None:
            continue
        try:
            found = await client.live.get(metadata_only(kind), key)
        except NotFound:
            continue
        if found.is_controlled_by(prometheus):
            raise ManagedElsewhere(
                f"{kind.api_resource.kind} {key} belongs to another operator, which runs this Prometheus. Limit this "
                "operator to other namespaces by --namespaces, or use another name"
            )
