"""Jobs of ServiceMonitors and PodMonitors.

The labels of targets are those of prometheus-operator: namespace, service, pod, container, endpoint, job and node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from steersman.api.core_v1 import ConfigMapKeySelector, SecretKeySelector

from monitoring_operator.api.v1.podmonitor import PodMetricsEndpoint, PodMonitor
from monitoring_operator.api.v1.scraping import NamespaceSelector, ScrapeEndpoint, SecretOrConfigMap, TLSConfig
from monitoring_operator.api.v1.servicemonitor import Endpoint, ServiceMonitor
from monitoring_operator.configuration.certificates import check_authorities, check_certificate, check_key
from monitoring_operator.configuration.credentials import CredentialFiles, Monitor
from monitoring_operator.configuration.durations import milliseconds
from monitoring_operator.configuration.model import (
    AuthorizationHeader,
    BasicAuthentication,
    KubernetesDiscovery,
    Namespaces,
    RelabelConfig,
    ScrapeConfig,
    TLSSettings,
)
from monitoring_operator.configuration.problems import InvalidObject
from monitoring_operator.configuration.relabeling import (
    NOT_EMPTY,
    copied_labels,
    copy_label,
    keep,
    label_name,
    selector_rules,
    user_rules,
)

_META = "__meta_kubernetes"
# Source: RFC 9110, 5.6.2.
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]*")


def jobs_of(monitor: Monitor, credentials: CredentialFiles, default_interval: str) -> Iterator[ScrapeConfig]:
    """Yield a job for each endpoint of a monitor.

    Args:
        monitor: the monitor.
        credentials: collects the files that the jobs refer to.
        default_interval: scrape interval of endpoints without one.

    Raises:
        InvalidObject: a field is invalid, or a Secret or ConfigMap does not exist.
    """
    if isinstance(monitor, ServiceMonitor):
        for number, endpoint in enumerate(monitor.spec.endpoints):
            yield _job(monitor, number, endpoint, _service_rules(monitor, endpoint), credentials, default_interval)
    else:
        for number, endpoint in enumerate(monitor.spec.pod_metrics_endpoints):
            yield _job(monitor, number, endpoint, _pod_rules(monitor, endpoint), credentials, default_interval)


def _job(
    monitor: Monitor,
    number: int,
    endpoint: ScrapeEndpoint,
    rules: Sequence[RelabelConfig],
    credentials: CredentialFiles,
    default_interval: str,
) -> ScrapeConfig:
    is_service = isinstance(monitor, ServiceMonitor)
    field = f"{'endpoints' if is_service else 'podMetricsEndpoints'}[{number}]"
    kind, role = ("serviceMonitor", "endpointslice") if is_service else ("podMonitor", "pod")
    _check_durations(endpoint, field, default_interval)
    basic_auth, authorization = _authentication(endpoint, field, credentials)
    return ScrapeConfig(
        job_name=f"{kind}/{monitor.metadata.namespace}/{monitor.metadata.name}/{number}",
        honor_labels=endpoint.honor_labels,
        honor_timestamps=endpoint.honor_timestamps,
        scrape_interval=endpoint.interval or None,
        scrape_timeout=endpoint.scrape_timeout or None,
        metrics_path=endpoint.path or None,
        scheme=endpoint.scheme.lower() if endpoint.scheme else None,
        follow_redirects=endpoint.follow_redirects,
        enable_http2=endpoint.enable_http2,
        params=endpoint.params or None,
        basic_auth=basic_auth,
        authorization=authorization,
        tls_config=_tls(endpoint.tls_config, f"{field}.tlsConfig", credentials),
        kubernetes_sd_configs=[_discovery(role, monitor.spec.namespace_selector, monitor.metadata.namespace)],
        relabel_configs=[
            copy_label("job", "__tmp_prometheus_job_name"),
            *rules,
            *user_rules(endpoint.relabelings, f"{field}.relabelings"),
        ],
        metric_relabel_configs=user_rules(endpoint.metric_relabelings, f"{field}.metricRelabelings"),
    )


def _service_rules(monitor: ServiceMonitor, endpoint: Endpoint) -> list[RelabelConfig]:
    port = endpoint.port or endpoint.target_port
    rules = list(selector_rules(monitor.spec.selector, "service"))
    if endpoint.port:
        rules.append(keep(f"{_META}_endpointslice_port_name", endpoint.port))
    elif endpoint.target_port:
        rules.append(_keep_container_port(endpoint.target_port))
    address = [f"{_META}_endpointslice_address_target_{part}" for part in ("kind", "name")]
    for kind in ("Node", "Pod"):
        rules.append(RelabelConfig(source_labels=address, regex=f"{kind};(.*)", target_label=kind.lower()))
    for source, target in (
        ("namespace", "namespace"),
        ("service_name", "service"),
        ("pod_name", "pod"),
        ("pod_container_name", "container"),
    ):
        rules.append(copy_label(f"{_META}_{source}", target))
    rules += _ended_pods(endpoint)
    rules += copied_labels("service", monitor.spec.target_labels, "targetLabels")
    rules += copied_labels("pod", monitor.spec.pod_target_labels, "podTargetLabels")
    rules.append(copy_label(f"{_META}_service_name", "job"))
    rules += _identity("service", monitor.spec.job_label, port)
    return rules


def _pod_rules(monitor: PodMonitor, endpoint: PodMetricsEndpoint) -> list[RelabelConfig]:
    port = endpoint.port or endpoint.port_number or endpoint.target_port
    rules = [*_ended_pods(endpoint), *selector_rules(monitor.spec.selector, "pod")]
    if port:
        rules.append(_keep_container_port(port))
    for source, target in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod")):
        rules.append(copy_label(f"{_META}_{source}", target))
    rules += copied_labels("pod", monitor.spec.pod_target_labels, "podTargetLabels")
    rules.append(RelabelConfig(target_label="job", replacement=str(monitor.key)))
    # As in prometheus-operator, a port number does not become the label endpoint.
    rules += _identity("pod", monitor.spec.job_label, endpoint.port or endpoint.target_port)
    return rules


def _keep_container_port(port: int | str) -> RelabelConfig:
    part = "number" if isinstance(port, int) else "name"
    return keep(f"{_META}_pod_container_port_{part}", str(port))


def _ended_pods(endpoint: ScrapeEndpoint) -> list[RelabelConfig]:
    if endpoint.filter_running is False:
        return []
    return [RelabelConfig(action="drop", source_labels=[f"{_META}_pod_phase"], regex="(Failed|Succeeded)")]


def _identity(prefix: str, job_label: str | None, port: int | str | None) -> list[RelabelConfig]:
    rules: list[RelabelConfig] = []
    if job_label:
        rules.append(copy_label(f"{_META}_{prefix}_label_{label_name(job_label)}", "job", regex=NOT_EMPTY))
    if port:
        rules.append(RelabelConfig(target_label="endpoint", replacement=str(port).replace("$", "$$")))
    return rules


def _discovery(role: str, selector: NamespaceSelector, own_namespace: str) -> KubernetesDiscovery:
    if selector.any:
        return KubernetesDiscovery(role=role)
    return KubernetesDiscovery(role=role, namespaces=Namespaces(names=selector.match_names or (own_namespace,)))


def _check_durations(endpoint: ScrapeEndpoint, field: str, default_interval: str) -> None:
    interval = endpoint.interval or default_interval
    interval_ms = milliseconds(interval, f"{field}.interval")
    if not endpoint.scrape_timeout:
        return
    if milliseconds(endpoint.scrape_timeout, f"{field}.scrapeTimeout") > interval_ms:
        problem = f"of {endpoint.scrape_timeout} exceeds the interval of {interval}"
        raise InvalidObject(f"{field}.scrapeTimeout", problem, f"Set it to {interval} or less.")


def _authentication(
    endpoint: ScrapeEndpoint, field: str, credentials: CredentialFiles
) -> tuple[BasicAuthentication | None, AuthorizationHeader | None]:
    basic, header = endpoint.basic_auth, endpoint.authorization
    if basic is not None and header is not None:
        raise InvalidObject(field, "has both basicAuth and authorization", "Remove one of them.")
    if basic is not None:
        return _basic_auth(endpoint, f"{field}.basicAuth", credentials), None
    if header is None or header.credentials is None or not credentials.has(header.credentials):
        return None, None
    if header.type is not None and not _TOKEN.fullmatch(header.type.strip()):
        # Prometheus compares without case, and some letters of Unicode are lower-case ASCII then.
        raise InvalidObject(f"{field}.authorization.type", f"is {header.type!r}", "Use a type such as Bearer.")
    if (header.type or "").strip().lower() == "basic":
        raise InvalidObject(f"{field}.authorization.type", "is Basic", "Use basicAuth instead.")
    path = credentials.path(f"{field}.authorization.credentials", header.credentials)
    return None, AuthorizationHeader(type=header.type, credentials_file=path)


def _basic_auth(endpoint: ScrapeEndpoint, field: str, credentials: CredentialFiles) -> BasicAuthentication | None:
    basic = endpoint.basic_auth
    if basic is None or basic.username is None or basic.password is None:
        raise InvalidObject(field, "lacks username or password", "Set both.")
    username = password_file = None
    try:
        if credentials.has(basic.username):
            username = credentials.read(f"{field}.username", basic.username).decode()
    except UnicodeDecodeError:
        raise InvalidObject(f"{field}.username", "is not UTF-8", "Store a text in the Secret.") from None
    if credentials.has(basic.password):
        password_file = credentials.path(f"{field}.password", basic.password)
    if username is None and password_file is None:
        return None
    return BasicAuthentication(username=username, password_file=password_file)


def _tls(config: TLSConfig | None, field: str, credentials: CredentialFiles) -> TLSSettings | None:
    if config is None:
        return None
    ca = _reference(config.ca, f"{field}.ca", credentials)
    cert = _reference(config.cert, f"{field}.cert", credentials)
    secret = config.key_secret
    key = (f"{field}.keySecret", secret) if secret is not None and credentials.has(secret) else None
    if (cert is None) != (key is None):
        raise InvalidObject(field, "has only one of cert and keySecret", "Set both, or none.")
    if ca is not None:
        check_authorities(ca[0], credentials.read(*ca))
    if cert is not None and key is not None:
        check_certificate(cert[0], credentials.read(*cert))
        check_key(key[0], credentials.read(*key), credentials.read(*cert))
    return TLSSettings(
        ca_file=credentials.path(*ca) if ca is not None else None,
        cert_file=credentials.path(*cert) if cert is not None else None,
        key_file=credentials.path(*key) if key is not None else None,
        server_name=config.server_name,
        insecure_skip_verify=config.insecure_skip_verify,
    )


def _reference(
    either: SecretOrConfigMap | None, field: str, credentials: CredentialFiles
) -> tuple[str, SecretKeySelector | ConfigMapKeySelector] | None:
    """Return the reference with the path of its field, or None."""
    if either is None:
        return None
    if either.secret is not None and either.config_map is not None:
        raise InvalidObject(field, "has both secret and configMap", "Remove one of them.")
    name, selector = ("secret", either.secret) if either.secret is not None else ("configMap", either.config_map)
    return (f"{field}.{name}", selector) if selector is not None and credentials.has(selector) else None
