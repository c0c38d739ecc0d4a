"""Controller of Prometheus: the configuration, its servers, and the verdicts on monitors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from steersman import (
    Conflict,
    Manager,
    MergePatch,
    NotFound,
    Object,
    ObjectKey,
    ReconcileOutcome,
    Reconciler,
    ReconcilerContext,
    Result,
    generation_changed,
    labels_changed,
)
from steersman.api.apply import core
from steersman.api.apps_v1 import StatefulSet, StatefulSetStatus
from steersman.api.core_v1 import ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount
from steersman.cache import InformerOptions
from steersman.controller.threads import ReconcileThread
from steersman.errors import Invalid
from steersman.meta import metadata_only

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusStatus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import (
    DeclaredConfiguration,
    Inputs,
    Monitor,
    build,
    ignored_fields,
    source_objects,
)
from monitoring_operator.controllers.bindings import BindingWriter, Verdict, Verdicts
from monitoring_operator.controllers.conditions import (
    Observed,
    available_condition,
    condition,
    reconciled_condition,
    rejected_rules,
)
from monitoring_operator.controllers.inputs import read_inputs
from monitoring_operator.controllers.ownership import ManagedElsewhere, require_own_objects
from monitoring_operator.controllers.replicas import inspect_replicas
from monitoring_operator.resources import (
    DEFAULT_SERVICE_ACCOUNT,
    MANAGED_BY,
    PORT,
    REVISION_ANNOTATION,
    StorageChanged,
    configuration_secret,
    headless_service,
    owning_prometheus,
    selector_labels,
    statefulset,
    workload_key,
)
from monitoring_operator.servers import HttpServers, Servers

_OWNED_ONLY = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")
_RESYNC_SECONDS = 60.0
_POLL_SECONDS = 3.0
_SECRET_INDEX = "secrets"


class PrometheusReconciler(Reconciler[Prometheus]):
    """Reconciles one Prometheus. It keeps no state between reconciles.

    Args:
        context: the context that the controller passes.
        servers: queries running servers. Tests pass a model.
    """

    def __init__(self, context: ReconcilerContext, servers: Servers) -> None:
        super().__init__(context)
        self._servers = servers
        self._bindings = BindingWriter(self.client, self.events, self.runtime.clock)

    async def reconcile(self, obj: Prometheus) -> Result:
        """Apply the configuration and the servers, and report what they run."""
        await require_own_objects(self.client, obj)
        if obj.spec.paused:
            return await self._report_paused(obj)
        inputs = await read_inputs(self.client, obj)
        # In a thread: the event loop renews the Lease meanwhile.
        declared, secret = await ReconcileThread(self.runtime).run(lambda: _declare(inputs))
        workload = await self._apply(obj, secret)
        pods = await self.client.list(Pod, namespace=obj.metadata.namespace, owner=workload)
        await self._notify(pods, declared.revision)
        observed = Observed(
            prometheus=obj,
            declared=declared,
            workload=workload,
            replicas=await inspect_replicas(self._servers, pods),
            has_service_account=await self._has_service_account(obj),
        )
        rejected = {declared.rule_sources[name]: reason for name, reason in rejected_rules(observed).items()}
        verdicts: Verdicts = {
            **{
                (type(each), each.key): Verdict(ignored=ignored_fields(each))
                for each in (*inputs.service_monitors, *inputs.pod_monitors)
            },
            **{(PrometheusRule, each.key): Verdict(rejected.get(each.key, "")) for each in inputs.rules},
            **{key: Verdict(str(problem)) for key, problem in declared.problems.items()},
        }
        await self._bindings.write(obj, verdicts)
        return await self._report(observed)

    async def cleanup(self, obj: Prometheus) -> None:
        """Remove the verdicts of a deleted Prometheus. The garbage collector deletes its objects."""
        await self._bindings.write(obj, {})

    async def update_status(self, obj: Prometheus, outcome: ReconcileOutcome) -> None:
        """Report an error of a reconcile."""
        if outcome.error is None or isinstance(outcome.error, Conflict):
            return
        reason, message = type(outcome.error).__name__, str(outcome.error)
        if isinstance(outcome.error, ManagedElsewhere):
            # The other operator writes the status.
            self.events.warning(obj, reason, message)
            return
        failed = condition(obj, "Reconciled", False, reason, message)
        await self.status(obj, **_replica_counts(obj, obj.status), conditions=[failed])

    async def _apply(self, prometheus: Prometheus, secret: core.Secret) -> StatefulSet:
        """Apply all objects. The Secret precedes the pods that mount it."""
        try:
            stages = [(headless_service(prometheus), secret), statefulset(prometheus)]
            state = await self.dependents.apply(prometheus, stages)
        except Invalid as error:
            raise StorageChanged.or_same(error, workload_key(prometheus)) from None
        return next(each for each in state.objects if isinstance(each, StatefulSet))

    async def _report(self, observed: Observed) -> Result:
        prometheus, reconciled = observed.prometheus, reconciled_condition(observed)
        await self.status(
            prometheus,
            **_replica_counts(prometheus, observed.workload.status),
            selector=",".join(f"{name}={value}" for name, value in sorted(selector_labels(prometheus).items())),
            conditions=[reconciled, available_condition(observed)],
        )
        return Result(requeue_after=_RESYNC_SECONDS if reconciled.status == "True" else _POLL_SECONDS)

    async def _report_paused(self, prometheus: Prometheus) -> Result:
        workload = await self.client.get_or_none(StatefulSet, workload_key(prometheus))
        counts = prometheus.status if workload is None else workload.status
        message = "The operator changes nothing. Set spec.paused to false to continue."
        paused = condition(prometheus, "Reconciled", False, "Paused", message)
        await self.status(prometheus, **_replica_counts(prometheus, counts), conditions=[paused])
        return Result()

    async def _has_service_account(self, prometheus: Prometheus) -> bool:
        name = prometheus.spec.service_account_name or DEFAULT_SERVICE_ACCOUNT
        key = ObjectKey(prometheus.metadata.namespace, name)
        return await self.client.get_or_none(ServiceAccount, key) is not None

    async def _notify(self, pods: Iterable[Pod], revision: str) -> None:
        """Change an annotation of the pods.

        The kubelet then updates their volumes now, and not within a minute.
        """
        for pod in pods:
            if pod.metadata.annotations.get(REVISION_ANNOTATION) != revision:
                metadata = {"uid": pod.metadata.uid, "annotations": {REVISION_ANNOTATION: revision}}
                try:
                    await self.client.patch(Pod, pod.key, MergePatch({"metadata": metadata}))
                except NotFound:
                    continue

    @classmethod
    def setup_with_manager(cls, manager: Manager, servers: Servers | None = None) -> None:
        """Register the controller and its watches with the manager."""
        # Cache only objects of the operator, not all Secrets and Pods of the cluster.
        for kind in (StatefulSet, Service, Secret, Pod):
            manager.cache.configure(kind, _OWNED_ONLY)
        every_prometheus = _every_prometheus(manager)
        is_changed = generation_changed | labels_changed
        (
            manager.controller(Prometheus)
            .with_predicate(generation_changed)
            .owns(StatefulSet)
            .owns(Service)
            .owns(Secret)
            .watches(Pod, owning_prometheus)
            .watches(ServiceMonitor, every_prometheus, is_changed)
            .watches(PodMonitor, every_prometheus, is_changed)
            .watches(PrometheusRule, every_prometheus, is_changed)
            .watches(Namespace, every_prometheus, labels_changed)
            .watches(metadata_only(Secret), _if_referenced(manager, every_prometheus))
            .index(ServiceMonitor, _SECRET_INDEX, _referenced_secrets)
            .index(PodMonitor, _SECRET_INDEX, _referenced_secrets)
            .needs(Secret, "get", "list", "watch", "create", "patch")
            .needs(ConfigMap, "get")
            .needs(ServiceAccount, "get")
            .needs(Pod, "patch")
            .needs(ServiceMonitor, "patch", subresource="status")
            .needs(PodMonitor, "patch", subresource="status")
            .needs(PrometheusRule, "patch", subresource="status")
            .max_concurrent_reconciles(4)
            .max_retry_delay(_RESYNC_SECONDS)
            .complete(lambda context: cls(context, servers or HttpServers(PORT)))
        )


def _declare(inputs: Inputs) -> tuple[DeclaredConfiguration, core.Secret]:
    declared = build(inputs)
    return declared, configuration_secret(inputs.prometheus, declared)


def _replica_counts(prometheus: Prometheus, counts: StatefulSetStatus | PrometheusStatus) -> dict[str, Any]:
    """Return the fields that the CRD of prometheus-operator requires in each status."""
    available = counts.available_replicas or 0
    return {
        "paused": prometheus.spec.paused,
        "replicas": counts.replicas or 0,
        "updated_replicas": counts.updated_replicas or 0,
        "available_replicas": available,
        "unavailable_replicas": max(0, prometheus.spec.replicas - available),
    }


def _every_prometheus(manager: Manager) -> Callable[[Object], list[ObjectKey]]:
    """Return a mapping to all Prometheuses, because each may select the object."""
    store = manager.cache.informer(Prometheus).store
    return lambda _: [prometheus.key for prometheus in store]


def _if_referenced(
    manager: Manager, mapping: Callable[[Object], list[ObjectKey]]
) -> Callable[[Object], list[ObjectKey]]:
    """Return ``mapping``, limited to Secrets that a monitor refers to."""
    stores = [manager.cache.informer(kind).store for kind in (ServiceMonitor, PodMonitor)]
    return lambda secret: (
        mapping(secret) if any(store.by_index(_SECRET_INDEX, str(secret.key)) for store in stores) else []
    )


def _referenced_secrets(monitor: Monitor) -> list[str]:
    return [str(ObjectKey(each.namespace, each.name)) for each in source_objects(monitor) if each.kind == "Secret"]
