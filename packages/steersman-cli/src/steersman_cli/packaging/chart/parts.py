"""What a chart is made of, and which parts there are in an installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steersman.meta.manifests import Manifest
from steersman_cli.packaging.chart.names import Names
from steersman_cli.packaging.chart.text import TemplateText
from steersman_cli.packaging.installation import Installation

# Flags of ``ManagerFlags`` that values stand for, by all their spellings.
_SWITCHES = {"--leader-elect": "--leader-elect", "--no-leader-elect": "--no-leader-elect"}
# Only where the chart has the certificate that is there.
_CERTIFICATES = "--webhook-cert-path"
_VALUED = {
    "--leader-election-id": "--leader-election-id",
    "--log-level": "--log-level",
    "--zap-log-level": "--log-level",
    "--log-format": "--log-format",
    "--zap-encoder": "--log-format",
    "--namespaces": "--namespaces",
    "--namespace": "--namespaces",
    _CERTIFICATES: _CERTIFICATES,
}


@dataclass
class Parts:
    """An installation, seen as a chart does.

    Attributes:
        installation: all there is, with what stands for the release's image in place of the operator's.
        image: the operator's, with its tag or digest; empty where it is not known yet.
        cluster_scoped: API groups and plurals of resources that are in no namespace.
        text: notes the template actions.
        names: what objects are called in a release.
        arguments: the manager's, without those that values stand for.
        flags: the values of the latter.
    """

    installation: Installation
    image: str
    cluster_scoped: frozenset[tuple[str, str]]
    text: TemplateText = field(default_factory=TemplateText)

    def __post_init__(self) -> None:
        image = self.text.inline(f'{{{{ include "{self.installation.name}.image" $ }}}}')
        manifests = tuple(self.installation.with_image(image))
        self.installation = replace(self.installation, manifests=manifests, image=image)
        self.names = Names(self.installation, self.text)
        valued = {k: v for k, v in _VALUED.items() if k != _CERTIFICATES or self.has_certificates}
        self.arguments, self.flags = _told_apart(self.installation.container.get("args", ()), valued)

    @property
    def lease(self) -> str:
        """The name of the operator's Lease in the manifests."""
        return self.flags.get("--leader-election-id") or self.installation.name

    @property
    def has_webhooks(self) -> bool:
        """Whether the API server calls it."""
        return bool(self.names.webhook_service)

    @property
    def has_certificates(self) -> bool:
        """Whether cert-manager can make the webhooks' certificate: there are manifests that tell it to."""
        return any(m["kind"] == "Certificate" for m in self.certificates)

    @property
    def certificates(self) -> tuple[Manifest, ...]:
        """The Certificate of the webhooks and an Issuer that is its alone, wherever they are listed."""
        listed = (*self.installation.of("Issuer", "Certificate"), *self._component("certmanager"))
        found = [m for m in listed if m["kind"] == "Certificate"]
        own = [m for m in found if any(self.names.is_before_webhooks(n) for n in m["spec"].get("dnsNames", ()))]
        shared = {_issuer(m) for m in found if m not in own}
        issuers = {_issuer(m) for m in own} - shared
        return tuple(m for m in listed if m in own or (m["kind"] == "Issuer" and m["metadata"]["name"] in issuers))

    @property
    def policies(self) -> tuple[Manifest, ...]:
        """NetworkPolicies, wherever they are listed."""
        return (*self.installation.of("NetworkPolicy"), *self._component("network-policy"))

    @property
    def monitors(self) -> tuple[Manifest, ...]:
        """PodMonitors and ServiceMonitors, wherever they are listed."""
        return (*self.installation.of("PodMonitor", "ServiceMonitor"), *self._component("prometheus"))

    def port(self, name: str) -> int | None:
        """The manager's port of that name."""
        ports: list[dict[str, Any]] = self.installation.container.get("ports", [])
        return next((p["containerPort"] for p in ports if p.get("name") == name), None)

    def _component(self, name: str) -> tuple[Manifest, ...]:
        return self.installation.components.get(name, ())


def _issuer(certificate: Manifest) -> str:
    return certificate["spec"]["issuerRef"]["name"]


def _told_apart(arguments: Iterable[str], valued: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments that stay, and the flags that values stand for."""
    kept: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in valued:
            flags[valued[name]] = value if equals else next(rest, "")
        elif argument in _SWITCHES:
            flags[_SWITCHES[argument]] = ""
        else:
            kept.append(argument)
    return kept, flags
