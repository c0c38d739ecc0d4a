"""The configuration of Prometheus as types. Source: "Configuration" in the documentation of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, cast

import yaml

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Base class of the sections. ``render`` omits values that equal their default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelConfig(Section):
    """A rule that changes labels, or drops what has them."""

    source_labels: Sequence[str] = ()
    separator: str | None = None
    regex: str | None = None
    modulus: int | None = None
    target_label: str | None = None
    replacement: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSettings(Section):
    """TLS of a scrape."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationHeader(Section):
    """Authorization header of a scrape."""

    type: str | None = None
    credentials_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuthentication(Section):
    """Basic authentication of a scrape. The user name has no file before Prometheus 2.50."""

    username: str | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces(Section):
    """Namespaces of a service discovery."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesDiscovery(Section):
    """Service discovery of Kubernetes."""

    role: str
    namespaces: Namespaces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeConfig(Section):
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
    params: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    basic_auth: BasicAuthentication | None = None
    authorization: AuthorizationHeader | None = None
    tls_config: TLSSettings | None = None
    kubernetes_sd_configs: Sequence[KubernetesDiscovery]
    relabel_configs: Sequence[RelabelConfig]
    metric_relabel_configs: Sequence[RelabelConfig] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalSettings(Section):
    """Defaults of all jobs, and the labels of this server."""

    scrape_interval: str
    evaluation_interval: str
    external_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(Section):
    """The file prometheus.yaml."""

    global_: GlobalSettings
    rule_files: Sequence[str] = ()
    scrape_configs: Sequence[ScrapeConfig]


def render(content: object) -> str:
    """Return sections, dicts and lists as YAML. Equal contents have equal texts."""
    return yaml.dump(_plain(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        # ``global`` is a keyword of Python.
        present = ((f.name.rstrip("_"), getattr(value, f.name)) for f in fields(value) if _is_set(value, f))
        return {name: _plain(content) for name, content in present}
    if isinstance(value, Mapping):
        return {name: _plain(content) for name, content in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(content) for content in cast("Sequence[Any]", value)]
    return value


def _is_set(section: Section, declared: Field[Any]) -> bool:
    value = getattr(section, declared.name)
    return bool(value) or (value != declared.default and value not in ({}, (), []))
