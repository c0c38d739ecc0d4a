"""From monitors and rules to the files of Prometheus, without I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steersman import Object, ObjectKey
from steersman.meta import to_builtins

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import DEFAULT_INTERVAL, Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration.credentials import Contents, CredentialFiles, Monitor
from monitoring_operator.configuration.model import GlobalSettings, compress, render
from monitoring_operator.configuration.problems import InvalidObject
from monitoring_operator.configuration.scraping import jobs_of

_REVISION_LENGTH = 16
_MAX_NAME_LENGTH = 200
# All monitors and rules share one Secret of 1 MiB, in which files are compressed.
_MAX_JOBS_LENGTH = 512 * 1024
_MAX_RULES_BYTES = 128 * 1024
# Configurations compress well, and servers return them uncompressed. One namespace must not use up the memory.
_MAX_NAMESPACE_LENGTH = 8 * 1024 * 1024


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
        problems: invalid monitors and rules. The configuration does not contain them.
        rule_sources: key of the PrometheusRule of each rule file.
    """

    revision: str
    text: str
    rules: Mapping[str, str]
    credentials: Mapping[str, bytes]
    problems: Mapping[tuple[type[Object], ObjectKey], InvalidObject]
    rule_sources: Mapping[str, ObjectKey]


def build(inputs: Inputs) -> DeclaredConfiguration:
    """Return the configuration of valid objects, and the problems of others.

    Thousands of monitors take seconds. Do not call it on an event loop.
    """
    jobs: list[str] = []
    credentials: dict[str, bytes] = {}
    problems: dict[tuple[type[Object], ObjectKey], InvalidObject] = {}
    monitors: list[Monitor] = [*inputs.service_monitors, *inputs.pod_monitors]
    lengths = Counter[str]()
    for monitor in monitors:
        files = CredentialFiles(monitor.metadata.namespace, inputs.contents)
        try:
            text = _jobs_text(monitor, files, _interval(inputs.prometheus.spec.scrape_interval))
            _require_room(monitor, lengths[monitor.metadata.namespace] + len(text))
        except InvalidObject as problem:
            problems[type(monitor), monitor.key] = problem
        else:
            jobs.append(text)
            lengths[monitor.metadata.namespace] += len(text)
            credentials |= files.files
    rules: dict[str, str] = {}
    for rule in inputs.rules:
        try:
            rules[_file_name(rule)] = _rules_text(rule)
        except InvalidObject as problem:
            problems[type(rule), rule.key] = problem
    head = render({"global": _global_settings(inputs.prometheus)})
    body = "".join(["scrape_configs:\n", *jobs]) if any(jobs) else ""
    revision = _digest(head + body, rules)
    return DeclaredConfiguration(
        revision=revision,
        text=head + render({"rule_files": [f"{revision}/rules/*.yaml"]}) + body,
        rules=rules,
        credentials=credentials,
        problems=problems,
        rule_sources={name: rule.key for rule in inputs.rules if (name := _file_name(rule)) in rules},
    )


def _jobs_text(monitor: Monitor, files: CredentialFiles, default_interval: str) -> str:
    """Return the jobs of a monitor as items of YAML.

    Raises:
        InvalidObject: a field is invalid, or the jobs are too long.
    """
    texts: list[str] = []
    remaining = _MAX_JOBS_LENGTH
    for job in jobs_of(monitor, files, default_interval):
        texts.append(render([job]))
        remaining -= len(texts[-1])
        # One job at a time: each repeats the selector, and all of them may not fit into the memory.
        if remaining < 0:
            problem = f"result in over {_MAX_JOBS_LENGTH} characters of configuration"
            raise InvalidObject(_endpoints_field(monitor), problem, "Split the monitor.")
    return "".join(texts)


def _require_room(monitor: Monitor, length: int) -> None:
    if length > _MAX_NAMESPACE_LENGTH:
        problem = f"would result in over {_MAX_NAMESPACE_LENGTH} characters of configuration in this namespace"
        raise InvalidObject(_endpoints_field(monitor), problem, "Select fewer endpoints or namespaces.")


def _endpoints_field(monitor: Monitor) -> str:
    return "endpoints" if isinstance(monitor, ServiceMonitor) else "podMetricsEndpoints"


def _rules_text(rule: PrometheusRule) -> str:
    """Return the rule file.

    Raises:
        InvalidObject: it is too large.
    """
    text = render({"groups": to_builtins(rule.spec.groups)})
    if len(text.encode()) > _MAX_RULES_BYTES and (size := len(compress(text))) > _MAX_RULES_BYTES:
        problem = f"have {size} bytes after compression, and {_MAX_RULES_BYTES} are allowed"
        raise InvalidObject("groups", problem, "Split the PrometheusRule.")
    return text


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
