"""From monitors and rules to the files of Prometheus, without I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from steersman import Object, ObjectKey
from steersman.meta import to_builtins

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import DEFAULT_INTERVAL, Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration.credentials import Contents, CredentialFiles, Monitor
from monitoring_operator.configuration.model import Configuration, GlobalSettings, ScrapeConfig, render
from monitoring_operator.configuration.problems import InvalidMonitor
from monitoring_operator.configuration.scraping import jobs_of

_REVISION_LENGTH = 16
_MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that the configuration depends on.

    Attributes:
        prometheus: the Prometheus.
        service_monitors: selected ServiceMonitors, in the order of their keys.
        pod_monitors: selected PodMonitors, in the order of their keys.
        rules: selected PrometheusRules, in the order of their keys.
        contents: data of the Secrets and ConfigMaps that monitors refer to.
    """

    prometheus: Prometheus
    service_monitors: Sequence[ServiceMonitor] = ()
    pod_monitors: Sequence[PodMonitor] = ()
    rules: Sequence[PrometheusRule] = ()
    contents: Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredConfiguration:
    """The files that a Prometheus should run with.

    Attributes:
        revision: digest of configuration and rules. Credentials are not part of it, since Prometheus reads their
            files before each scrape.
        text: prometheus.yaml. Its ``rule_files`` contain the revision, so that a server reports what it runs.
        rules: rule files by name.
        credentials: credential files by name.
        problems: invalid monitors. The configuration does not contain them.
        rule_sources: key of the PrometheusRule of each rule file.
    """

    revision: str
    text: str
    rules: Mapping[str, str]
    credentials: Mapping[str, bytes]
    problems: Mapping[tuple[type[Object], ObjectKey], InvalidMonitor]
    rule_sources: Mapping[str, ObjectKey]


def build(inputs: Inputs) -> DeclaredConfiguration:
    """Return the configuration of valid monitors, and the problems of others."""
    jobs: list[ScrapeConfig] = []
    credentials: dict[str, bytes] = {}
    problems: dict[tuple[type[Object], ObjectKey], InvalidMonitor] = {}
    monitors: list[Monitor] = [*inputs.service_monitors, *inputs.pod_monitors]
    for monitor in monitors:
        files = CredentialFiles(monitor.metadata.namespace, inputs.contents)
        try:
            jobs += jobs_of(monitor, files, _interval(inputs.prometheus.spec.scrape_interval))
        except InvalidMonitor as problem:
            problems[type(monitor), monitor.key] = problem
        else:
            credentials |= files.files
    rules = {_file_name(rule): render({"groups": to_builtins(rule.spec.groups)}) for rule in inputs.rules}
    configuration = Configuration(global_=_global_settings(inputs.prometheus), scrape_configs=jobs)
    revision = _digest(render(configuration), rules)
    return DeclaredConfiguration(
        revision=revision,
        text=render(replace(configuration, rule_files=[f"{revision}/rules/*.yaml"])),
        rules=rules,
        credentials=credentials,
        problems=problems,
        rule_sources={_file_name(rule): rule.key for rule in inputs.rules},
    )


def _global_settings(prometheus: Prometheus) -> GlobalSettings:
    spec = prometheus.spec
    # Prometheus expands ${…} in external labels, and $$ to $.
    labels = {name: value.replace("$", "$$") for name, value in spec.external_labels.items()}
    identity = {"prometheus": str(prometheus.key), "prometheus_replica": "${POD_NAME}"}
    return GlobalSettings(
        scrape_interval=_interval(spec.scrape_interval),
        evaluation_interval=_interval(spec.evaluation_interval),
        external_labels=dict(sorted((identity | labels).items())),
    )


def _interval(declared: str) -> str:
    """Return the interval, or the default if it is zero or empty."""
    return declared if any(digit in declared for digit in "123456789") else DEFAULT_INTERVAL


def _file_name(rule: PrometheusRule) -> str:
    # Namespace and name may be longer than the key of a Secret. The digest makes the name unique.
    identity = f"{rule.metadata.namespace}_{rule.metadata.name}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return f"rules-{identity[:_MAX_NAME_LENGTH]}-{digest}.yaml"


def _digest(text: str, rules: Mapping[str, str]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, content in sorted(rules.items()):
        digest.update(f"\0{name}\0{content}".encode())
    return digest.hexdigest()[:_REVISION_LENGTH]
