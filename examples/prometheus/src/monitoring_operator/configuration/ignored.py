"""Fields of monitors without effect."""

from __future__ import annotations

from collections.abc import Iterator

from steersman import FrozenStruct
from steersman.api.core_v1 import SecretKeySelector

from monitoring_operator.api.v1.scraping import IgnoredEndpointFields, IgnoredMonitorFields, IgnoredTLSFields
from monitoring_operator.configuration.credentials import Monitor, endpoints_of


def ignored_fields(monitor: Monitor) -> list[str]:
    """Return the paths of the fields that this operator does not support."""
    found = list(_set_fields(monitor.spec, IgnoredMonitorFields, "spec"))
    for path, endpoint in endpoints_of(monitor):
        found += _set_fields(endpoint, IgnoredEndpointFields, f"spec.{path}")
        if endpoint.tls_config is not None:
            found += _set_fields(endpoint.tls_config, IgnoredTLSFields, f"spec.{path}.tlsConfig")
    return found


def _set_fields(value: FrozenStruct, fields: type[FrozenStruct], path: str) -> Iterator[str]:
    # False, zero and an empty text mean the same as an absent field. So does a reference without a key.
    for name, wire_name in zip(fields.__struct_fields__, fields.__struct_encode_fields__, strict=True):
        found = getattr(value, name)
        if found and found != SecretKeySelector(key=""):
            yield f"{path}.{wire_name}"
