"""Verdicts of a Prometheus on monitors and rules: their status and Events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from steersman import (
    CachedClient,
    Condition,
    EventRecorder,
    MergePatch,
    NotFound,
    Object,
    ObjectKey,
    find_condition,
    set_condition,
)
from steersman.errors import ApiError, Conflict
from steersman.meta import to_builtins
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Clock

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.scraping import WorkloadBinding
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor

ConfigurationResource = ServiceMonitor | PodMonitor | PrometheusRule
Verdicts = Mapping[tuple[type[Object], ObjectKey], str]
"""Problem of each selected object. Empty if it is part of the configuration."""

KINDS: tuple[type[ConfigurationResource], ...] = (ServiceMonitor, PodMonitor, PrometheusRule)
_MAX_MESSAGE_LENGTH = 1024

log = get_logger("bindings")


@dataclass(frozen=True, slots=True)
class _Identity:
    """Identity of a Prometheus in bindings."""

    namespace: str
    name: str

    def is_of(self, binding: WorkloadBinding) -> bool:
        return (binding.resource, binding.namespace, binding.name) == ("prometheuses", self.namespace, self.name)


class BindingWriter:
    """Writes the binding of a Prometheus into the status of selected objects.

    CRDs of other versions have no status subresource, or no bindings. Such kinds only receive Events.

    Args:
        client: reads and patches the objects.
        events: records rejections.
        clock: the time of transitions.
    """

    def __init__(self, client: CachedClient, events: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._without_bindings: set[type[Object]] = set()
        # Only prevents repeated Events of kinds whose status cannot show that one was recorded.
        self._recorded: dict[tuple[_Identity, str], str] = {}

    async def write(self, prometheus: Prometheus, verdicts: Verdicts) -> None:
        """Write the verdicts, and remove the binding from all other objects.

        Raises:
            Conflict: another client changed an object meanwhile.
        """
        identity = _Identity(prometheus.metadata.namespace, prometheus.metadata.name)
        for kind in KINDS:
            for obj in await self._client.list(kind):
                await self._write(identity, obj, verdicts.get((kind, obj.key)))

    async def _write(self, identity: _Identity, obj: ConfigurationResource, problem: str | None) -> None:
        bindings = obj.status.bindings
        previous = next((binding for binding in bindings if identity.is_of(binding)), None)
        verdict = None if problem is None else self._verdict(obj, previous, problem)
        current = find_condition(previous.conditions, "Accepted") if previous is not None else None
        if problem and verdict is not None and (current is None or current.message != verdict.message):
            self._record(identity, obj, verdict)
        if verdict == current or type(obj) in self._without_bindings:
            return
        others = [binding for binding in bindings if not identity.is_of(binding)]
        await self._patch(obj, others if verdict is None else [*others, _binding(identity, verdict)])

    def _verdict(self, obj: ConfigurationResource, previous: WorkloadBinding | None, problem: str) -> Condition:
        verdict = Condition(
            type="Accepted",
            status="False" if problem else "True",
            reason="InvalidConfiguration" if problem else "Accepted",
            message=problem[:_MAX_MESSAGE_LENGTH],
            observed_generation=obj.metadata.generation,
        )
        conditions = previous.conditions if previous is not None else ()
        return next(each for each in set_condition(conditions, verdict, self._clock.now()) if each.type == "Accepted")

    def _record(self, identity: _Identity, obj: ConfigurationResource, verdict: Condition) -> None:
        recorded = identity, obj.metadata.uid
        if self._recorded.get(recorded) != verdict.message:
            self._recorded[recorded] = verdict.message
            note = f"Prometheus {identity.namespace}/{identity.name} leaves it out: {verdict.message}"
            self._events.warning(obj, verdict.reason, note)

    async def _patch(self, obj: ConfigurationResource, bindings: Iterable[WorkloadBinding]) -> None:
        # A merge patch, because server-side apply rejects fields that the CRD lacks. The resourceVersion protects
        # the bindings of other Prometheuses.
        metadata = {"resourceVersion": obj.metadata.resource_version}
        wanted = tuple(bindings)
        patch = MergePatch({"metadata": metadata, "status": {"bindings": to_builtins(wanted)}})
        try:
            patched = await self._client.patch(type(obj), obj.key, patch, subresource="status")
        except NotFound:
            if await self._exists(obj):
                self._without_bindings.add(type(obj))
            return
        except ApiError as error:
            if isinstance(error, Conflict):
                raise
            # An object from before its CRD was tightened, or that a policy or a webhook protects, must not block the
            # others, or the deletion of a Prometheus. The next reconcile tries again.
            log.warning("status of the object not written", object=str(obj.key), error=str(error))
            return
        if patched.status.bindings != wanted:
            self._without_bindings.add(type(obj))

    async def _exists(self, obj: ConfigurationResource) -> bool:
        try:
            await self._client.live.get(type(obj), obj.key)
        except NotFound:
            return False
        return True


def _binding(identity: _Identity, verdict: Condition) -> WorkloadBinding:
    return WorkloadBinding(
        group="monitoring.coreos.com",
        resource="prometheuses",
        namespace=identity.namespace,
        name=identity.name,
        conditions=(verdict,),
    )
