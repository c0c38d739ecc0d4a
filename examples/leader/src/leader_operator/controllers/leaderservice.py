"""Controller of LeaderService: publishes the leader, and chooses unfenced ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace
from steersman import Manager, ObjectKey, ReconcileOutcome, Reconciler, Request
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap, Pod, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.cache import InformerOptions
from steersman.client import MergePatch
from steersman.controller import field_changed
from steersman.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NameConflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)

from leader_operator.api.v1.leaderservice import GROUP, Leader, LeaderService
from leader_operator.controllers.choice import (
    choose_leader,
    elected_pod,
    is_ready,
    selects,
)
from leader_operator.controllers.conditions import fenced_condition, ready_condition, refused_condition
from leader_operator.resources import (
    ServiceName,
    config_map,
    endpoint_slice,
    headless_service,
    leader_service,
    role_label,
)
from leader_operator.sidecar.sidecar import LEASE_SUFFIX, lease_name
from leader_operator.sidecar.terms import highest_term

_MAX_RETRY_DELAY_SECONDS = 60.0
_OWNED = (Service, EndpointSlice, ConfigMap)
# ValueError: a name that no object can have.
_REFUSALS = (NameConflict, ApiError, ValueError)
_TRANSIENT = (Conflict, ServerError, TooManyRequests, Unauthorized)


class LeaderServiceReconciler(Reconciler[LeaderService]):
    """Publishes the leader of one LeaderService. It keeps no state between reconciles."""

    async def reconcile(self, service: LeaderService) -> None:
        label = role_label(service)
        related = await self._related_pods(service, label)
        pods = [pod for pod in related if selects(service, pod)]
        pod, leader = await self._find_leader(service, pods)
        if leader is not None and _is_new(service, leader):
            if service.spec.fencing == "None":
                service = await self._record(service, leader)
            self.events.normal(service, "LeaderChanged", f"{leader.pod} leads in term {leader.term}")
        try:
            published = await self._publish(service, pod, leader)
            await self._label(related, label, pod)
        except _REFUSALS:
            # Status and label must not stay with the previous leader. The status comes first: a policy may refuse the
            # label as well.
            await self.status(service, leader=leader)
            await self._label(related, label, pod)
            raise
        await self._delete_undeclared(service, published)
        conditions = (ready_condition(service, pods, leader), fenced_condition(service, pods))
        await self.status(service, leader=leader, conditions=conditions)

    async def cleanup(self, service: LeaderService) -> None:
        """Remove the label from the leader. The garbage collector deletes the other objects."""
        label = role_label(service)
        for pod in await self._related_pods(service, label):
            try:
                await self._label([pod], label, None)
            except (Forbidden, Invalid, BadRequest) as error:
                # A policy that protects the pod must not block the deletion.
                self.log.warning("label of the leader not removed", pod=str(pod.key), error=str(error))

    async def update_status(self, service: LeaderService, outcome: ReconcileOutcome) -> None:
        if isinstance(outcome.error, _REFUSALS) and not isinstance(outcome.error, _TRANSIENT):
            await self.status(service, conditions=[refused_condition(service, outcome.error)])

    async def _related_pods(self, service: LeaderService, label: str) -> Sequence[Pod]:
        """Return the selected pods, and those that still have the label."""
        return await self.client.list(
            Pod,
            namespace=service.metadata.namespace,
            where=lambda pod: selects(service, pod) or label in pod.metadata.labels,
        )

    async def _find_leader(self, service: LeaderService, pods: Sequence[Pod]) -> tuple[Pod | None, Leader | None]:
        """Return the leader of the Lease, or choose one."""
        current = service.status.leader
        if service.spec.fencing == "Sidecar":
            key = ObjectKey(service.metadata.namespace, lease_name(service.metadata.name))
            lease = await self.client.get_or_none(Lease, key)
            pod = elected_pod(pods, lease)
            term = (lease.spec.lease_transitions or 0) if lease is not None else 0
        else:
            pod = choose_leader(pods, current)
            is_kept = current is not None and current.term > service.spec.min_term and current.uid == _uid(pod)
            term = current.term if current is not None and is_kept else highest_term(service) + 1
        if pod is None:
            return None, None
        return pod, Leader(pod=pod.metadata.name, uid=pod.metadata.uid, term=term, address=pod.status.pod_ip)

    async def _record(self, service: LeaderService, leader: Leader) -> LeaderService:
        """Write the choice and its term by a compare-and-swap.

        It precedes the publication. Another process of the operator can then neither choose another pod, nor use the
        term again.
        """
        # Not self.status, which would apply the choice to a newer status as well.
        status = replace(service.status, leader=leader, term=leader.term)
        return await self.client.apply_status(service, status, resource_version=service.metadata.resource_version)

    async def _publish(self, service: LeaderService, pod: Pod | None, leader: Leader | None) -> set[str]:
        """Apply all objects. Return their names."""
        names = ServiceName.of(service)
        published: set[str] = set()
        declared = [(names.service, leader_service(service))]
        if service.spec.publish.headless:
            declared.append((names.headless, headless_service(service)))
        for name, config in declared:
            applied = await self.client.apply(config, owner=service)
            published.add(name)
            for family in applied.spec.ip_families or ("IPv4",):
                ready = pod is not None and is_ready(pod)
                await self.client.apply(endpoint_slice(service, name, family, pod, ready), owner=service)
                published.add(f"{name}-{family.lower()}")
        if (name := service.spec.publish.config_map) is not None:
            await self.client.apply(config_map(service, name, leader), owner=service)
            published.add(f"ConfigMap/{name}")
        return published

    async def _label(self, related: Sequence[Pod], label: str, leader: Pod | None) -> None:
        """Label the leader, after removing the label of the previous one."""
        for pod in related:
            if label in pod.metadata.labels and pod is not leader:
                await self._set_label(pod, label, None)
        if leader is not None and leader.metadata.labels.get(label) != "leader":
            await self._set_label(leader, label, "leader")

    async def _set_label(self, pod: Pod, label: str, value: str | None) -> None:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {label: value}}}
        # A deleted pod needs no label.
        with suppress(NotFound):
            await self.client.patch(Pod, pod.key, MergePatch(body))

    async def _delete_undeclared(self, service: LeaderService, names: set[str]) -> None:
        for kind in _OWNED:
            for found in await self.client.list(kind, namespace=service.metadata.namespace, owner=service):
                name = f"ConfigMap/{found.metadata.name}" if kind is ConfigMap else found.metadata.name
                if name not in names and found.metadata.deletion_timestamp is None:
                    await self.client.delete(kind, found.key, uid=found.metadata.uid)

    @classmethod
    def setup_with_manager(cls, manager: Manager) -> None:
        """Register the controller and its watches."""
        # Not all ConfigMaps of the cluster, which may exceed the memory limit.
        for kind in _OWNED:
            manager.cache.configure(kind, InformerOptions(label_selector=f"app.kubernetes.io/managed-by={GROUP}"))
        services = manager.cache.informer(LeaderService).store

        def services_of(pod: Pod) -> list[ObjectKey]:
            found = services.by_index("namespace", pod.metadata.namespace)
            return [
                service.key
                for service in found
                if selects(service, pod) or role_label(service) in pod.metadata.labels
            ]

        # Renewals do not matter, only the holder and its term.
        leadership_changed = field_changed(lambda lease: (lease.spec.holder_identity, lease.spec.lease_transitions))
        (
            manager.controller(LeaderService)
            .owns(Service)
            .owns(EndpointSlice)
            .owns(ConfigMap)
            .watches(Lease, service_of_lease, leadership_changed)
            .watches(Pod, services_of)
            .needs(Service, "delete")
            .needs(EndpointSlice, "delete")
            .needs(ConfigMap, "delete")
            .needs(Pod, "patch")
            # A foreign object of a required name is not watched.
            .max_retry_delay(_MAX_RETRY_DELAY_SECONDS)
            .complete(cls)
        )


def service_of_lease(lease: Lease) -> list[Request]:
    """Return the LeaderService of the Lease. Its name decides: a restored Lease may have no owner."""
    name = lease.metadata.name.removesuffix(LEASE_SUFFIX)
    return [Request(lease.metadata.namespace, name)] if name != lease.metadata.name else []


def _uid(pod: Pod | None) -> str:
    return pod.metadata.uid if pod is not None else ""


def _is_new(service: LeaderService, leader: Leader) -> bool:
    current = service.status.leader
    return current is None or (current.uid, current.term) != (leader.uid, leader.term)
