"""Credentials of endpoints: keys of Secrets and ConfigMaps that become files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from steersman.api.core_v1 import ConfigMapKeySelector, SecretKeySelector

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.scraping import ScrapeEndpoint, SecretOrConfigMap
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration.problems import InvalidObject

Monitor = ServiceMonitor | PodMonitor

_MAX_BYTES = 128 * 1024
DIRECTORY = "../declared"
"""Directory of the files, relative to the configuration."""


class SourceObject(NamedTuple):
    """A Secret or ConfigMap."""

    kind: Literal["Secret", "ConfigMap"]
    namespace: str
    name: str


Contents = Mapping[SourceObject, Mapping[str, bytes]]
"""Data of the objects that exist."""


class CredentialFiles:
    """Collects the files of one monitor.

    Args:
        namespace: namespace of the monitor, and of all objects that it refers to.
        contents: data of the objects.
    """

    def __init__(self, namespace: str, contents: Contents) -> None:
        self._namespace = namespace
        self._contents = contents
        self.files: dict[str, bytes] = {}

    def has(self, selector: SecretKeySelector | ConfigMapKeySelector | None) -> bool:
        """Return True unless the key is optional and does not exist."""
        if selector is None:
            return False
        exists = selector.key in self._contents.get(_source(self._namespace, selector), {})
        return exists or not selector.optional

    def read(self, field: str, selector: SecretKeySelector | ConfigMapKeySelector) -> bytes:
        """Return the content of a key.

        Raises:
            InvalidObject: the object or the key does not exist.
        """
        source = _source(self._namespace, selector)
        data = self._contents.get(source)
        if data is None:
            problem = (
                f"refers to {source.kind} {source.namespace}/{source.name}, which does not exist or cannot be read"
            )
            raise InvalidObject(field, problem, f"Create the {source.kind}, or change the reference.")
        if selector.key not in data:
            problem = f"refers to key {selector.key!r}, which {source.kind} {source.namespace}/{source.name} lacks"
            raise InvalidObject(field, problem, "Add the key, or change the reference.")
        return data[selector.key]

    def path(self, field: str, selector: SecretKeySelector | ConfigMapKeySelector) -> str:
        """Return the path of the file with the content of a key.

        Raises:
            InvalidObject: the object or the key does not exist, or the monitor has too many bytes of credentials.
        """
        content = self.read(field, selector)
        identity = "\0".join((*_source(self._namespace, selector), selector.key))
        name = f"credential-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
        self.files[name] = content
        if sum(map(len, self.files.values())) > _MAX_BYTES:
            # All monitors share one Secret of 1 MiB.
            problem = f"has over {_MAX_BYTES} bytes, with the other credentials of the monitor"
            raise InvalidObject(field, problem, "Store only the certificates that the targets need.")
        return f"{DIRECTORY}/{name}"


def endpoints_of(monitor: Monitor) -> Iterator[tuple[str, ScrapeEndpoint]]:
    """Yield the endpoints of a monitor with the paths of their fields."""
    name = "endpoints" if isinstance(monitor, ServiceMonitor) else "podMetricsEndpoints"
    endpoints = monitor.spec.endpoints if isinstance(monitor, ServiceMonitor) else monitor.spec.pod_metrics_endpoints
    for number, endpoint in enumerate(endpoints):
        yield f"{name}[{number}]", endpoint


def source_objects(monitor: Monitor) -> set[SourceObject]:
    """Return the Secrets and ConfigMaps that a monitor refers to."""
    selectors: list[SecretKeySelector | ConfigMapKeySelector | None] = []
    for _, endpoint in endpoints_of(monitor):
        if endpoint.basic_auth is not None:
            selectors += endpoint.basic_auth.username, endpoint.basic_auth.password
        if endpoint.authorization is not None:
            selectors.append(endpoint.authorization.credentials)
        if (tls := endpoint.tls_config) is not None:
            selectors.append(tls.key_secret)
            for either in (tls.ca or SecretOrConfigMap(), tls.cert or SecretOrConfigMap()):
                selectors += either.secret, either.config_map
    return {_source(monitor.metadata.namespace, selector) for selector in selectors if selector is not None}


def _source(namespace: str, selector: SecretKeySelector | ConfigMapKeySelector) -> SourceObject:
    kind = "Secret" if isinstance(selector, SecretKeySelector) else "ConfigMap"
    return SourceObject(kind, namespace, selector.name or "")
