"""What the objects of an installation are called in a release of its chart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from steersman.meta.manifests import Manifest
from steersman_cli.packaging.chart.text import TemplateText
from steersman_cli.packaging.installation import Installation

CERTIFICATE = "-cert"
"""Ends the name of the Secret of a Service's certificate, as ``WebhookServing`` names it."""

# Others keep their names: what refers to them is not known here.
_RENAMED = frozenset(
    {
        "ServiceAccount",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "Service",
        "Deployment",
        "NetworkPolicy",
        "PodMonitor",
        "ServiceMonitor",
        "Issuer",
        "Certificate",
    }
)
_STANDARD_LABELS = frozenset(
    f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "managed-by", "part-of")
)
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class Names:
    """Names, namespaces, labels and selectors as templates have them.

    Args:
        installation: whose they are.
        text: notes the actions.
    """

    def __init__(self, installation: Installation, text: TemplateText) -> None:
        self._installation = installation
        self._text = text
        self._own = installation.name
        self.full = text.inline(self.included("fullname"))
        self.namespace = text.inline("{{ $.Release.Namespace }}")
        self.account = text.inline(self.included("serviceAccountName"))

    def included(self, part: str, indent: str = "") -> str:
        """The action that includes the helper ``part``; on a line of its own with ``indent``."""
        if indent:
            return f'{{{{- include "{self._own}.{part}" $ | nindent {indent} }}}}'
        return f'{{{{ include "{self._own}.{part}" $ }}}}'

    def of(self, name: str) -> str:
        """What an object that is called ``name`` is called in a release."""
        if name == self._own:
            return self.full
        return f"{self.full}-{name.removeprefix(f'{self._own}-')}"

    @property
    def longest(self) -> int:
        """How many characters follow the release's in the longest name of a Service."""
        names = [self.of(m["metadata"]["name"]) for m in self._installation.of("Service")]
        return max(len(n) for n in [*names, f"{self.full}-metrics"]) - len(self.full)

    # Webhooks

    @property
    def webhook_service(self) -> str:
        """The name, in the manifests, of the Service before the webhooks; empty where there are none."""
        configurations = [w for m in self._installation.webhooks for w in m.get("webhooks", ())]
        conversions = [d["spec"].get("conversion", {}).get("webhook", {}) for d in self._installation.definitions]
        clients = [c.get("clientConfig", {}).get("service", {}) for c in [*configurations, *conversions]]
        own = [s["name"] for s in clients if s.get("namespace") == self._installation.namespace]
        return own[0] if own else ""

    @property
    def certificate(self) -> str:
        """The name, in the manifests, of the Secret of that Service's certificate."""
        return f"{self.webhook_service}{CERTIFICATE}"

    def configuration(self, name: str) -> str:
        """The name of a webhook configuration: as its Service, where the operator derives it from that."""
        return self.of(name) if name == self.webhook_service else name

    def secret(self, name: str) -> str:
        """The name of a Secret: as the Service whose certificate it holds, or as it is."""
        return self.of(name) if self.webhook_service and name == self.certificate else name

    def client(self, config: dict[str, Any]) -> dict[str, Any]:
        """A ``clientConfig`` whose Service is the release's."""
        service = config.get("service")
        if not service or service.get("namespace") != self._installation.namespace:
            return config
        return {**config, "service": {**service, "name": self.of(service["name"]), "namespace": self.namespace}}

    def address(self, address: str) -> str:
        """A DNS name, where it is of a Service of the release."""
        service, _, rest = address.partition(".")
        namespace, _, domain = rest.partition(".")
        known = {self.webhook_service, *(m["metadata"]["name"] for m in self._installation.of("Service"))}
        if service not in known or namespace != self._installation.namespace:
            return address
        return f"{self.of(service)}.{self.namespace}" + (f".{domain}" if domain else "")

    def is_before_webhooks(self, address: str) -> bool:
        """Whether a DNS name is of the Service before the webhooks."""
        return bool(self.webhook_service) and f"{address}.".startswith(
            f"{self.webhook_service}.{self._installation.namespace}."
        )

    # Access

    def rules(self, rules: list[dict[str, Any]], lease: str) -> list[dict[str, Any]]:
        """The rules of a role, where they are for objects whose names follow the release's."""
        return [self._rule(r, lease) if "resourceNames" in r else r for r in rules]

    def _rule(self, rule: dict[str, Any], lease: str) -> dict[str, Any]:
        resources = {r.partition("/")[0] for r in rule["resources"]}
        names: list[str] = rule["resourceNames"]
        if resources == {"leases"}:
            names = [self.of(n) if n == lease else n for n in names]
        elif resources == {"secrets"}:
            names = [self.secret(n) for n in names]
        elif resources <= set(_CONFIGURATIONS):
            names = [self.configuration(n) for n in names]
        return {**rule, "resourceNames": names}

    def subjects(self, subjects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Whom a binding is for."""
        return [self._subject(s) for s in subjects]

    def _subject(self, subject: dict[str, Any]) -> dict[str, Any]:
        if subject.get("namespace") != self._installation.namespace:
            return subject
        return {**subject, "name": self.account_of(subject["name"]), "namespace": self.namespace}

    def account_of(self, name: str) -> str:
        """What the ServiceAccount ``name`` is called in a release."""
        own = self._installation.service_account["metadata"]["name"]
        return self.account if name == own else self.of(name)

    # Whole manifests

    def manifest(self, manifest: Manifest) -> Manifest:
        """``manifest`` with the name, the namespace, the labels and the selectors of a release."""
        found = copy.deepcopy(manifest)
        metadata: dict[str, Any] = found.pop("metadata")
        kept = {k: v for k, v in metadata.items() if k not in ("name", "namespace", "labels")}
        name = self.of(metadata["name"]) if manifest["kind"] in _RENAMED else metadata["name"]
        place = {"namespace": self._place(metadata["namespace"])} if "namespace" in metadata else {}
        head = {k: found.pop(k) for k in ("apiVersion", "kind")}
        return {
            **head,
            "metadata": {"name": name, **place, "labels": self.labels(metadata.get("labels", {})), **kept},
            **self.selected(found),
        }

    def labels(self, labels: dict[str, str]) -> dict[str, Any]:
        """The labels of every object of a release, and those of ``labels`` that a chart does not set itself."""
        kept = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.included('labels', '<0>')}\n"), **kept}

    def selector(self, labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """What the operator's pods are selected by: the release's own labels, and what else is in ``labels``."""
        kept = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.included('selectorLabels', '<0>')}\n"), **kept}

    def selected(self, value: Any) -> Any:
        """``value`` with the release's selectors where it selects the operator's pods."""
        if isinstance(value, list):
            return [self.selected(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("dict[str, Any]", value)
        return {
            k: self.selector(v) if k in ("matchLabels", "selector") and self._selects_pods(v) else self.selected(v)
            for k, v in found.items()
        }

    def _selects_pods(self, labels: Any) -> bool:
        pods = self._installation.deployment["spec"]["template"]["metadata"]["labels"]
        return bool(labels) and isinstance(labels, dict) and labels.items() <= pods.items()  # pyright: ignore

    def _place(self, namespace: str) -> str:
        return self.namespace if namespace == self._installation.namespace else namespace
