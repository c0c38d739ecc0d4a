"""Verdicts of a Prometheus on monitors and rules: their status and Events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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


class Verdict(NamedTuple):
    """Verdict of a Prometheus on a selected object.

    Attributes:
        problem: why the configuration does not contain the object. Empty if it does.
        ignored: fields without effect.
    """

    problem: str = ""
    ignored: Sequence[str] = ()

    @property
    def reason(self) -> str:
        """Reason of the condition Accepted."""
        return "InvalidConfiguration" if self.problem else "FieldsIgnored" if self.ignored else "Accepted"

    @property
    def message(self) -> str:
        """Message of the condition Accepted."""
        if self.problem or not self.ignored:
            return self.problem[:_MAX_MESSAGE_LENGTH]
        names = ", ".join(self.ignored)
        return f"This operator does not support these fields. Remove them: {names}"[:_MAX_MESSAGE_LENGTH]


Verdicts = Mapping[tuple[type[Object], ObjectKey], Verdict]

KINDS: tuple[type[ConfigurationResource], ...] = (ServiceMonitor, PodMonitor, PrometheusRule)
_MAX_MESSAGE_LENGTH = 1024

log = get_logger("bindings")


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
        self._recorded: dict[tuple[ObjectKey, str], str] = {}

    async def write(self, prometheus: Prometheus, verdicts: Verdicts) -> None:
        """Write the verdicts, and remove the binding from all other objects.

        Raises:
            Conflict: another client changed an object meanwhile.
        """
        for kind in KINDS:
            for obj in await self._client.list(kind):
                await self._write(prometheus.key, obj, verdicts.get((kind, obj.key)))

    async def _write(self, prometheus: ObjectKey, obj: ConfigurationResource, verdict: Verdict | None) -> None:
        bindings = obj.status.bindings
        previous = next((binding for binding in bindings if _is_of(prometheus, binding)), None)
        condition = None if verdict is None else self._condition(obj, previous, verdict)
        current = find_condition(previous.conditions, "Accepted") if previous is not None else None
        if verdict is not None and verdict.message and (current is None or current.message != verdict.message):
            self._record(prometheus, obj, verdict)
        if condition == current or type(obj) in self._without_bindings:
            return
        others = [binding for binding in bindings if not _is_of(prometheus, binding)]
        await self._patch(obj, others if condition is None else [*others, _binding(prometheus, condition)])

    def _condition(self, obj: ConfigurationResource, previous: WorkloadBinding | None, verdict: Verdict) -> Condition:
        accepted = Condition(
            type="Accepted",
            status="False" if verdict.problem else "True",
            reason=verdict.reason,
            message=verdict.message,
            observed_generation=obj.metadata.generation,
        )
        conditions = previous.conditions if previous is not None else ()
        return next(
            each for each in set_condition(conditions, accepted, self._clock.now()) if each.type == "Accepted"
        )

    def _record(self, prometheus: ObjectKey, obj: ConfigurationResource, verdict: Verdict) -> None:
        recorded = prometheus, obj.metadata.uid
        if self._recorded.get(recorded) != verdict.message:
            self._recorded[recorded] = verdict.message
            effect = "leaves it out" if verdict.problem else "ignores a part of it"
            note = f"Prometheus {prometheus} {effect}: {verdict.message}"
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


def _is_of(prometheus: ObjectKey, binding: WorkloadBinding) -> bool:
    return (binding.resource, binding.namespace, binding.name) == ("prometheuses", *prometheus)


def _binding(prometheus: ObjectKey, accepted: Condition) -> WorkloadBinding:
    return WorkloadBinding(
        group="monitoring.coreos.com",
        resource="prometheuses",
        namespace=prometheus.namespace,
        name=prometheus.name,
        conditions=(accepted,),
    )
