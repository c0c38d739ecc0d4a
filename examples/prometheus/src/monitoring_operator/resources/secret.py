"""Secret with the configuration, its rules and credentials.

One object has all of them, because the kubelet replaces the files of one Secret at once.
"""

from __future__ import annotations

from importlib.resources import files

from steersman import SteersmanError
from steersman.api.apply import core

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.configuration import DeclaredConfiguration, compress
from monitoring_operator.resources.names import object_metadata

_RELOADER = files("monitoring_operator.resources").joinpath("reload.sh").read_bytes()
_MAX_SECRET_BYTES = 1024 * 1024
"""Limit of the API server."""


class ConfigurationTooLarge(SteersmanError):
    """The configuration does not fit into a Secret."""


def configuration_secret(prometheus: Prometheus, declared: DeclaredConfiguration) -> core.Secret:
    """Return the Secret that the pods mount.

    Raises:
        ConfigurationTooLarge: the files have over 1 MiB. The running configuration stays.
    """
    data = {
        "revision": declared.revision.encode(),
        "reload.sh": _RELOADER,
        "prometheus.yaml.gz": compress(declared.text),
        **{f"{name}.gz": compress(content) for name, content in declared.rules.items()},
        **declared.credentials,
    }
    size = sum(len(content) for content in data.values())
    if size > _MAX_SECRET_BYTES:
        raise ConfigurationTooLarge(
            f"the compressed configuration has {size} bytes, and a Secret holds {_MAX_SECRET_BYTES}. "
            "Select fewer monitors and rules, and create a second Prometheus for the rest."
        )
    return core.Secret(metadata=object_metadata(prometheus), type="Opaque", data=data)
