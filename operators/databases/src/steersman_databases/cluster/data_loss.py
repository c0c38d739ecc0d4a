"""Loss of all data of a cluster that has served.

Such a cluster never bootstraps again by itself. A user restores the data elsewhere, or accepts an empty cluster. The
identity of the data is in the status and on the Secrets, which exist as long as the cluster: either may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman_databases.api import Cluster
from steersman_databases.api.group import GROUP
from steersman_databases.cluster.executor import Snapshot
from steersman_databases.cluster.state import has_data
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.data_ownership import data_state_of
from steersman_databases.core.labels import belongs_to
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines.versions import version_tuple
from steersman_databases.features.major_upgrade.model import version_of
from steersman_databases.specs.data_secrets import DATA_IDENTITY_ANNOTATION

ACCEPT_DATA_LOSS_ANNOTATION = f"{GROUP}/accept-data-loss"
"""Annotation of a cluster: identity of the lost data.

New data have another identity, so that it accepts no later loss.
"""


@dataclass(frozen=True, slots=True)
class DataRecord:
    """Record of the data that a cluster has served."""

    context: ClusterContext
    cluster: Cluster

    async def require_data(self, snapshot: Snapshot) -> None:
        """Check that a volume has the served data.

        Raises:
            ReconcileBlocked: all volumes are lost. Or they only lack labels, which the message names.
        """
        if any(map(has_data, snapshot.state.instances)):
            return
        identity = await self._identity(snapshot.pvcs)
        accepted = self._accepted
        if not identity or accepted == identity:
            return
        name = type(self.cluster).api_resource.kind, self.cluster.metadata.name
        other = f", which is {accepted} now" if accepted else ""
        raise ReconcileBlocked(
            "Failed",
            "DataLost",
            f"no volume has the data of {' '.join(name)}: {await self._missing(snapshot)}. To continue with an empty "
            f"cluster, set its annotation {ACCEPT_DATA_LOSS_ANNOTATION} to {identity}{other}",
        )

    async def identity_on_volumes(self, snapshot: Snapshot) -> str:
        """Return the identity of the data on the volumes.

        "" if it is unknown. A major upgrade changes it, and so does a user who accepts an empty cluster.
        """
        newest = max(map(version_of, snapshot.state.instances), key=version_tuple, default="")
        if newest and not (self.cluster.status.version or "").startswith(f"{newest}."):
            return ""
        identity = await self._identity(snapshot.pvcs)
        return "" if identity in (self._accepted, self.cluster.metadata.uid) else identity

    @property
    def _accepted(self) -> str:
        """Identity whose loss a user accepts, or ""."""
        return self.cluster.metadata.annotations.get(ACCEPT_DATA_LOSS_ANNOTATION, "").strip()

    async def _identity(self, pvcs: Sequence[PersistentVolumeClaim]) -> str:
        """Return the identity of the served data, or "".

        Raises:
            ReconcileBlocked: a PVC exists, but lacks labels.
        """
        names, recorded = self.context.declared.names, ""
        for key in (names.administrator_secret, names.ca_secret):
            secret = await get_cached_or_live(self.context.client, Secret, key)
            if secret is None or not belongs_to(secret, self.context.declared):
                continue
            # Raises if a PVC that owns it lacks labels.
            await data_state_of(self.context, secret, pvcs)
            owners = {owner.uid for owner in secret.metadata.owner_references}
            # A deleted cluster of this name leaves Secrets with other owners. A restored one has none.
            if not owners or self.cluster.metadata.uid in owners:
                recorded = recorded or secret.metadata.annotations.get(DATA_IDENTITY_ANNOTATION, "")
        status = self.cluster.status
        # Earlier versions recorded only the version.
        return recorded or status.data_identity or (self.cluster.metadata.uid if status.version else "")

    async def _missing(self, snapshot: Snapshot) -> str:
        """Describe the missing volumes."""
        names, reported = self.context.declared.names, list[str]()
        for instance in snapshot.state.instances:
            key = names.data_pvc(instance.ordinal)
            found = await get_live(self.context.client, PersistentVolumeClaim, key)
            if found is None:
                reported.append(f"PVC {key.name} is missing")
            elif not belongs_to(found, self.context.declared):
                reported.append(f"PVC {key.name} exists and does not belong to this cluster")
            elif found.status.phase == "Lost":
                reported.append(f"the volume of PVC {key.name} is missing")
            else:
                reported.append(f"PVC {key.name} has no complete copy of the data")
        return ", ".join(reported) or f"no PVC {names.data_pvc(0).name} or with another number exists"
