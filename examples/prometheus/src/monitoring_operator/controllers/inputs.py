"""Reads everything that the configuration of a Prometheus depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from steersman import CachedClient, NotFound, ObjectKey
from steersman.api.core_v1 import ConfigMap, Namespace, Secret
from steersman.errors import ApiError, Conflict, ServerError, TooManyRequests, Unauthorized
from steersman.observability.logging import get_logger

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import Inputs, Monitor, SourceObject, select, source_objects

log = get_logger("inputs")


async def read_inputs(client: CachedClient, prometheus: Prometheus) -> Inputs:
    """Return selected monitors and rules, and data that they refer to."""
    spec, own = prometheus.spec, prometheus.metadata.namespace
    namespaces = {each.metadata.name: each.metadata.labels for each in await client.list(Namespace)}
    selected = partial(select, own_namespace=own, namespaces=namespaces)
    service_monitors = selected(
        await client.list(ServiceMonitor), spec.service_monitor_selector, spec.service_monitor_namespace_selector
    )
    pod_monitors = selected(
        await client.list(PodMonitor), spec.pod_monitor_selector, spec.pod_monitor_namespace_selector
    )
    rules = selected(await client.list(PrometheusRule), spec.rule_selector, spec.rule_namespace_selector)
    return Inputs(
        prometheus=prometheus,
        service_monitors=service_monitors,
        pod_monitors=pod_monitors,
        rules=rules,
        contents=await _read_contents(client, [*service_monitors, *pod_monitors]),
    )


async def _read_contents(
    client: CachedClient, monitors: Iterable[Monitor]
) -> dict[SourceObject, Mapping[str, bytes]]:
    """Return the data of the objects that exist. They are read from the API server, since only metadata is cached.

    An object that cannot be read counts as missing, so that it affects no other monitor.
    """
    contents: dict[SourceObject, Mapping[str, bytes]] = {}
    for source in sorted({source for monitor in monitors for source in source_objects(monitor)}):
        key = ObjectKey(source.namespace, source.name)
        try:
            if source.kind == "Secret":
                contents[source] = (await client.live.get(Secret, key)).data
            else:
                config_map = await client.live.get(ConfigMap, key)
                contents[source] = {name: text.encode() for name, text in config_map.data.items()}
        except (NotFound, ValueError):
            # ValueError: the name cannot be that of an object.
            continue
        except ApiError as error:
            if is_transient(error):
                raise
            log.warning("referenced object not read", kind=source.kind, object=str(key), error=str(error))
    return contents


def is_transient(error: ApiError) -> bool:
    """Return True if the same request may succeed soon."""
    return isinstance(error, Conflict | ServerError | TooManyRequests | Unauthorized)
