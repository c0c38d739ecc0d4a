"""The configuration of Prometheus as types. Source: "Configuration" in the documentation of Prometheus."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from msgspec import to_builtins
from steersman import FrozenStruct

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class RelabelConfig(FrozenStruct, rename=None):
    """A rule that changes labels, or drops what has them."""

    source_labels: Sequence[str] = ()
    separator: str | None = None
    regex: str | None = None
    modulus: int | None = None
    target_label: str | None = None
    replacement: str | None = None
    action: str | None = None


class TLSSettings(FrozenStruct, rename=None):
    """TLS of a scrape."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool | None = None


class AuthorizationHeader(FrozenStruct, rename=None):
    """Authorization header of a scrape."""

    type: str | None = None
    credentials_file: str | None = None


class BasicAuthentication(FrozenStruct, rename=None):
    """Basic authentication of a scrape. The user name has no file before Prometheus 2.50."""

    username: str | None = None
    password_file: str | None = None


class Namespaces(FrozenStruct, rename=None):
    """Namespaces of a service discovery."""

    names: Sequence[str]


class KubernetesDiscovery(FrozenStruct, rename=None):
    """Service discovery of Kubernetes."""

    role: str
    namespaces: Namespaces | None = None


class ScrapeConfig(FrozenStruct, rename=None):
    """A job."""

    job_name: str
    honor_labels: bool = False
    honor_timestamps: bool | None = None
    scrape_interval: str | None = None
    scrape_timeout: str | None = None
    metrics_path: str | None = None
    scheme: str | None = None
    follow_redirects: bool | None = None
    enable_http2: bool | None = None
    params: Mapping[str, Sequence[str]] | None = None
    basic_auth: BasicAuthentication | None = None
    authorization: AuthorizationHeader | None = None
    tls_config: TLSSettings | None = None
    kubernetes_sd_configs: Sequence[KubernetesDiscovery]
    relabel_configs: Sequence[RelabelConfig]
    metric_relabel_configs: Sequence[RelabelConfig] = ()


class GlobalSettings(FrozenStruct, rename=None):
    """Defaults of all jobs, and the labels of this server."""

    scrape_interval: str
    evaluation_interval: str
    external_labels: Mapping[str, str]


def render(content: object) -> str:
    """Return structs, dicts and lists as YAML, without defaults. Equal contents have equal texts."""
    return yaml.dump(to_builtins(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1)


def compress(text: str) -> bytes:
    """Return the text as gzip. Equal texts have equal bytes."""
    return gzip.compress(text.encode(), mtime=0)
