"""What a cluster needs around its instances: account and rights, the members' store, Services, budget, policy.

None of it disturbs a server, so it is declared in every reconcile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal

import msgspec

from steersman.api.core_v1 import ConfigMap, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.meta import ApplyConfiguration, ObjectKey
from steersman_databases.controllers.belonging import data_of, pending, waits_for_removal
from steersman_databases.controllers.declaring import Charge, is_owned
from steersman_databases.controllers.instances import Seen
from steersman_databases.controllers.lookup import find
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.resources import access, policy
from steersman_databases.resources.cluster_services import (
    SERVICE_LABEL,
    ServicePlan,
    cluster_headless_service,
    cluster_service,
    empty_slices,
)
from steersman_databases.resources.drift import content_of, repair_of
from steersman_databases.resources.labels import cluster_labels
from steersman_databases.resources.secrets import owned_by


class Surroundings:
    """Ensures what stands around the instances of one cluster."""

    def __init__(self, charge: Charge, engine: ClusterEngine) -> None:
        self._charge = charge
        self._engine = engine
        self._view = charge.view
        self._names = charge.view.names
        self._labels = cluster_labels(charge.view)

    async def ensure_access(self, instances: Sequence[int]) -> None:
        """ServiceAccount, Role and RoleBinding of the instances that are there or about to be."""
        charge, names, labels = self._charge, self._names, self._labels
        role = access.role(
            names,
            labels,
            self._engine.rights,
            store=self._view.store.every,
            instances=instances,
            writable=self._view.writable_services,
        )
        await charge.declare(ServiceAccount, access.service_account(names, labels))
        await charge.declare(Role, role)
        await charge.declare(RoleBinding, access.role_binding(names, labels))

    async def ensure_store(self, seen: Seen) -> None:
        """What the members find before they start; their store lives as long as the claims."""
        for config in self._engine.objects(self._view):
            if config.key in self._view.store.every:
                await self._ensure_stored(config, seen)
            else:
                await self._charge.declare(ConfigMap, config)

    async def _ensure_stored(self, config: ApplyConfiguration[ConfigMap], seen: Seen) -> None:
        present = await find(self._charge.client, ConfigMap, config.key)
        if present is not None:
            self._charge.require_labels(present, seen.claims)
            if not is_owned(present, seen.present):
                present = await self._without_former_data(present, seen)
        labels = {**self._labels, **(config.metadata.labels or {})}
        metadata = msgspec.structs.replace(
            config.metadata, labels=labels, owner_references=[owned_by(c) for c in seen.in_use]
        )
        await self._charge.client.apply(msgspec.structs.replace(config, metadata=metadata))
        if present is None:
            self._charge.created(ConfigMap, config.key)

    async def _without_former_data(self, present: ConfigMap, seen: Seen) -> ConfigMap | None:
        """Lets go of what it says of who led, where that is about other data than those that are there."""
        became = await data_of(self._charge, present, seen.claims)
        if became == "Present":
            return present
        if became == "Gone":
            raise waits_for_removal(present)
        if pods := sorted(m.pod.name for m in seen.observed.members.members):
            raise pending(present, f"volumes that are retained; waiting for {', '.join(pods)} to stop")
        await self._charge.delete(ConfigMap, present)
        return None

    async def ensure_services(self, services: Sequence[ServicePlan], *, served: bool) -> None:
        """The declared ones, and none of ours beside them.

        Args:
            served: there are instances, which are not left alone for what is wrong with -rw.
        """
        charge, port = self._charge, self._engine.port
        await charge.declare(Service, cluster_headless_service(self._view, port))
        for plan in services:
            needed = plan.key == self._names.service("rw") and await self._owner_of(plan.key) != "cluster"
            with nullcontext() if needed else charge.aside:
                await charge.declare(Service, cluster_service(self._view, plan, port))
        wanted = {plan.key for plan in services} | {self._names.headless_service}
        for service in await charge.client.list(Service, namespace=self._names.key.namespace, owner=charge.cluster):
            if service.key not in wanted and service.metadata.labels.items() >= self._labels.items():
                with charge.aside:
                    await charge.remove(Service, service.key)
        namespace = self._names.key.namespace
        # Nobody else's Service is to lead to our primary.
        writable = [
            service
            for service in self._view.writable_services
            if await self._owner_of(ObjectKey(namespace, service)) != "stranger"
        ]
        for slice_ in await charge.client.list(EndpointSlice, namespace=namespace, owner=charge.cluster):
            if slice_.metadata.labels.get(SERVICE_LABEL) not in writable:
                await charge.remove(EndpointSlice, slice_.key)
        for service in writable:
            needed = service == self._names.service("rw").name and not served
            with nullcontext() if needed else charge.aside:
                for config in empty_slices(self._view, service, port):
                    await self._ensure_slice(config)

    async def _ensure_slice(self, config: ApplyConfiguration[EndpointSlice]) -> None:
        """All but what is in it, which belongs to the primary: so it is created, and not applied."""
        charge = self._charge
        present = await find(charge.client, EndpointSlice, config.key)
        if present is None:
            await charge.client.create(config, owner=charge.cluster)
            charge.created(EndpointSlice, config.key)
            return
        charge.require_ours(present)
        if repair := repair_of(present, config):
            repaired = await charge.client.patch(EndpointSlice, config.key, repair)
            if content_of(repaired) != content_of(present):
                charge.updated(EndpointSlice, config.key)

    async def _owner_of(self, service: ObjectKey) -> Literal["cluster", "stranger", "nobody"]:
        present = await find(self._charge.client, Service, service)
        if present is None:
            return "nobody"
        return "cluster" if self._charge.controls(present) else "stranger"

    async def ensure_policies(self, *, max_unavailable: int | None, network: bool, operator: str) -> None:
        """PodDisruptionBudget (None: none) and NetworkPolicy, by which the namespace ``operator`` gets to members."""
        charge, names, labels = self._charge, self._names, self._labels
        with charge.aside:
            if max_unavailable is None:
                await charge.remove(PodDisruptionBudget, names.account)
            else:
                await charge.declare(PodDisruptionBudget, policy.disruption_budget(names, labels, max_unavailable))
        with charge.aside:
            if network:
                ports = (self._engine.port, self._engine.member_ports)
                await charge.declare(NetworkPolicy, policy.network_policy(names, labels, *ports, operator))
            else:
                await charge.remove(NetworkPolicy, names.account)
