"""Supporting objects of a cluster: access, ConfigMaps, Services, budget, policy.

They do not disturb servers, so each reconcile applies them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import msgspec

from steersman.api.core_v1 import ConfigMap, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.meta import ApplyConfiguration, ObjectKey
from steersman_databases.cluster.executor import Snapshot
from steersman_databases.core.apply_drift import comparable, repair_patch
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.context import ClusterContext, is_owned
from steersman_databases.core.data_ownership import data_state_of, wait_for_garbage_collection, wait_for_other_owner
from steersman_databases.core.labels import cluster_labels, data_labels
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.naming import BACKUP_PORTS
from steersman_databases.features.access import policies, rbac
from steersman_databases.features.services.specs import (
    SERVICE_LABEL,
    ServicePlan,
    cluster_headless_service,
    cluster_service,
    endpoint_slices,
)
from steersman_databases.specs.data_secrets import owned_by

RecreatedState = Callable[[Snapshot], Awaitable[tuple[ObjectKey, Mapping[str, str]] | None]]


class SupportingObjects:
    """Ensures the objects around the instances of one cluster."""

    def __init__(self, context: ClusterContext, engine: ClusterEngine) -> None:
        self._context = context
        self._engine = engine
        self._declared = context.declared
        self._names = context.declared.names
        self._labels = cluster_labels(context.declared)

    async def ensure_access(self, instances: Sequence[int]) -> None:
        """Apply ServiceAccount, Role and RoleBinding.

        The Role covers existing and planned instances.
        """
        context, names, labels = self._context, self._names, self._labels
        role = rbac.role(
            names,
            labels,
            self._engine.permissions,
            dcs_config_maps=self._declared.dcs.all_keys,
            instances=instances,
            writable=self._declared.writable_services,
        )
        identity = self._declared.pod_settings.identity
        annotations = None if identity is None else identity.annotations
        await context.apply(ServiceAccount, rbac.service_account(names, labels, annotations))
        await context.apply(Role, role)
        await context.apply(RoleBinding, rbac.role_binding(names, labels))

    async def ensure_dcs(self, snapshot: Snapshot, recreated_state: RecreatedState) -> None:
        """Create the objects that members need at their start.

        The members' ConfigMaps exist as long as the PVCs.

        Args:
            recreated_state: returns the ConfigMap that needs annotations when it is created, and these.
        """
        for config in self._engine.supporting_objects(self._declared):
            if config.key in self._declared.dcs.all_keys:
                await self._ensure_config_map(config, snapshot, recreated_state)
            else:
                await self._context.apply(ConfigMap, config)

    async def _ensure_config_map(
        self, config: ApplyConfiguration[ConfigMap], snapshot: Snapshot, recreated_state: RecreatedState
    ) -> None:
        present = await get_cached_or_live(self._context.client, ConfigMap, config.key)
        if present is not None:
            self._context.require_labels(present, snapshot.pvcs)
            if not is_owned(present, snapshot.pvcs_present):
                present = await self._reset_stale_leader(present, snapshot)
        labels = {**data_labels(self._declared), **(config.metadata.labels or {})}
        metadata = msgspec.structs.replace(
            config.metadata, labels=labels, owner_references=[owned_by(c) for c in snapshot.pvcs_in_use]
        )
        if present is None:
            state = await recreated_state(snapshot)
            if state is not None and state[0] == config.key:
                # Created and not applied: the next apply would remove the annotations, which belong to the members.
                created = msgspec.structs.replace(metadata, annotations=state[1])
                await self._context.client.create(msgspec.structs.replace(config, metadata=created))
        await self._context.client.apply(msgspec.structs.replace(config, metadata=metadata))
        if present is None:
            self._context.emit_created(ConfigMap, config.key)

    async def _reset_stale_leader(self, present: ConfigMap, snapshot: Snapshot) -> ConfigMap | None:
        """Delete the members' state if it belongs to other data."""
        data_state = await data_state_of(self._context, present, snapshot.pvcs)
        if data_state == "Present":
            return present
        if data_state == "Gone":
            raise wait_for_garbage_collection(present)
        if pods := sorted(m.pod.name for m in snapshot.state.members.members):
            raise wait_for_other_owner(present, f"volumes that are retained; waiting for {', '.join(pods)} to stop")
        await self._context.delete(ConfigMap, present)
        return None

    async def ensure_services(self, services: Sequence[ServicePlan], *, was_provisioned: bool) -> None:
        """Apply the declared Services, and delete others of the cluster.

        Args:
            was_provisioned: instances exist, so that a problem of the Service -rw must not stop the reconcile.
        """
        context, port = self._context, self._engine.port
        await context.apply(Service, cluster_headless_service(self._declared, port))
        for plan in services:
            needed = plan.key == self._names.service("rw") and await self._owner_of(plan.key) != "cluster"
            with nullcontext() if needed else context.deferred:
                await context.apply(Service, cluster_service(self._declared, plan, port))
        desired = {plan.key for plan in services} | {self._names.headless_service}
        for service in await context.client.list(Service, namespace=self._names.key.namespace, owner=context.cluster):
            if service.key not in desired and service.metadata.labels.items() >= self._labels.items():
                with context.deferred:
                    await context.delete_if_controlled(Service, service.key)
        namespace = self._names.key.namespace
        # A foreign Service must not lead to the cluster's primary.
        writable = [
            service
            for service in self._declared.writable_services
            if await self._owner_of(ObjectKey(namespace, service)) != "stranger"
        ]
        for slice_ in await context.client.list(EndpointSlice, namespace=namespace, owner=context.cluster):
            if slice_.metadata.labels.get(SERVICE_LABEL) not in writable:
                await context.delete_if_controlled(EndpointSlice, slice_.key)
        for service in writable:
            needed = service == self._names.service("rw").name and not was_provisioned
            with nullcontext() if needed else context.deferred:
                for config in endpoint_slices(self._declared, service, port):
                    await self._ensure_slice(config)

    async def _ensure_slice(self, config: ApplyConfiguration[EndpointSlice]) -> None:
        """Create or repair a slice without its endpoints.

        These belong to the primary, so the slice is created, and not applied.
        """
        context = self._context
        present = await get_cached_or_live(context.client, EndpointSlice, config.key)
        if present is None:
            await context.client.create(config, owner=context.cluster)
            context.emit_created(EndpointSlice, config.key)
            return
        present = await context.require_control(EndpointSlice, present)
        if repair := repair_patch(present, config):
            repaired = await context.client.patch(EndpointSlice, config.key, repair)
            if comparable(repaired) != comparable(present):
                context.emit_updated(EndpointSlice, config.key)

    async def _owner_of(self, service: ObjectKey) -> Literal["cluster", "stranger", "nobody"]:
        present = await get_cached_or_live(self._context.client, Service, service)
        if present is None:
            return "nobody"
        return "cluster" if self._context.may_control(present) else "stranger"

    async def ensure_policies(self, *, max_unavailable: int | None, network: bool, operator: str) -> None:
        """Ensure the PodDisruptionBudget and the NetworkPolicy.

        Args:
            max_unavailable: None for no budget.
            operator: namespace from which the operator reaches members.
        """
        context, names, labels = self._context, self._names, self._labels
        with context.deferred:
            if max_unavailable is None:
                await context.delete_if_controlled(PodDisruptionBudget, names.service_account)
            else:
                await context.apply(PodDisruptionBudget, policies.disruption_budget(names, labels, max_unavailable))
        with context.deferred:
            if network:
                ports = (self._engine.port, self._engine.member_ports)
                backup_port = BACKUP_PORTS[self._engine.name]
                policy = policies.network_policy(
                    names,
                    labels,
                    *ports,
                    operator,
                    None if backup_port == self._engine.port else backup_port,
                )
                await context.apply(NetworkPolicy, policy)
            else:
                await context.delete_if_controlled(NetworkPolicy, names.service_account)
