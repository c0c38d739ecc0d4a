"""Input of the chart's templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steersman_cli.packaging.chart.release_names import ReleaseNames
from steersman_cli.packaging.chart.template import HelmTemplate
from steersman_cli.packaging.operator_manifests import OperatorManifests
from steersman_manifests.manifest_files import Manifest

# Flags of ``ManagerFlags`` that values set, in all spellings.
_SWITCH_FLAGS = {"--leader-elect": "--leader-elect", "--no-leader-elect": "--no-leader-elect"}
# Only if the chart has the Certificate.
_CERTIFICATE_PATH_FLAG = "--webhook-cert-path"
_VALUE_FLAGS = {
    "--leader-election-id": "--leader-election-id",
    "--log-level": "--log-level",
    "--zap-log-level": "--log-level",
    "--log-format": "--log-format",
    "--zap-encoder": "--log-format",
    "--namespaces": "--namespaces",
    "--namespace": "--namespaces",
    _CERTIFICATE_PATH_FLAG: _CERTIFICATE_PATH_FLAG,
}


@dataclass
class ChartModel:
    """Manifests and names for the templates of a chart.

    Attributes:
        manifests: manifests of the operator, with the image of the release.
        image: image of the operator with its tag or digest; empty if it is unknown.
        cluster_scoped: groups and plurals of cluster-scoped resources.
        template: registry of the template actions.
        names: names of objects in a release.
        arguments: arguments of the manager that no value sets.
        flags: values of the other arguments, by flag.
    """

    manifests: OperatorManifests
    image: str
    cluster_scoped: frozenset[tuple[str, str]]
    template: HelmTemplate = field(default_factory=HelmTemplate)

    def __post_init__(self) -> None:
        image = self.template.inline(f'{{{{ include "{self.manifests.name}.image" $ }}}}')
        with_image = tuple(self.manifests.with_image(image))
        self.manifests = replace(self.manifests, manifests=with_image, image=image)
        self.names = ReleaseNames(self.manifests, self.template)
        value_flags = {
            k: v for k, v in _VALUE_FLAGS.items() if k != _CERTIFICATE_PATH_FLAG or self.has_webhook_certificates
        }
        self.arguments, self.flags = _split_arguments(self.manifests.container.get("args", ()), value_flags)

    @property
    def lease(self) -> str:
        """Name of the Lease in the manifests."""
        return self.flags.get("--leader-election-id") or self.manifests.name

    @property
    def has_webhooks(self) -> bool:
        """True if the operator has webhooks."""
        return bool(self.names.webhook_service)

    @property
    def has_webhook_certificates(self) -> bool:
        """True if the manifests contain a Certificate of cert-manager for the webhooks."""
        return any(m["kind"] == "Certificate" for m in self.webhook_certificates)

    @property
    def webhook_certificates(self) -> tuple[Manifest, ...]:
        """Certificate of the webhooks, and its Issuer if nothing else uses it."""
        listed = (*self.manifests.of_kind("Issuer", "Certificate"), *self._component_manifests("certmanager"))
        found = [m for m in listed if m["kind"] == "Certificate"]
        webhook_certificates = [
            m for m in found if any(self.names.is_webhook_service_dns_name(n) for n in m["spec"].get("dnsNames", ()))
        ]
        shared_issuers = {_issuer_name(m) for m in found if m not in webhook_certificates}
        issuers = {_issuer_name(m) for m in webhook_certificates} - shared_issuers
        return tuple(
            m
            for m in listed
            if m in webhook_certificates or (m["kind"] == "Issuer" and m["metadata"]["name"] in issuers)
        )

    @property
    def network_policies(self) -> tuple[Manifest, ...]:
        """NetworkPolicies of config/default and of the optional component."""
        return (*self.manifests.of_kind("NetworkPolicy"), *self._component_manifests("network-policy"))

    @property
    def disruption_budget(self) -> Manifest | None:
        """PodDisruptionBudget of the operator's pods."""
        pods = self.manifests.deployment["spec"]["template"]["metadata"]["labels"]
        budgets = self.manifests.of_kind("PodDisruptionBudget")
        return next(
            (b for b in budgets if b["spec"]["selector"].get("matchLabels", {}).items() <= pods.items()), None
        )

    @property
    def monitors(self) -> tuple[Manifest, ...]:
        """PodMonitors and ServiceMonitors, wherever they are listed."""
        return (*self.manifests.of_kind("PodMonitor", "ServiceMonitor"), *self._component_manifests("prometheus"))

    def port(self, name: str) -> int | None:
        """The manager's port of that name."""
        ports: list[dict[str, Any]] = self.manifests.container.get("ports", [])
        return next((p["containerPort"] for p in ports if p.get("name") == name), None)

    def _component_manifests(self, name: str) -> tuple[Manifest, ...]:
        return self.manifests.components.get(name, ())


def _issuer_name(certificate: Manifest) -> str:
    return certificate["spec"]["issuerRef"]["name"]


def _split_arguments(arguments: Iterable[str], value_flags: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Split arguments into those that stay and flags that values set."""
    remaining: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in value_flags:
            flags[value_flags[name]] = value if equals else next(rest, "")
        elif argument in _SWITCH_FLAGS:
            flags[_SWITCH_FLAGS[argument]] = ""
        else:
            remaining.append(argument)
    return remaining, flags
