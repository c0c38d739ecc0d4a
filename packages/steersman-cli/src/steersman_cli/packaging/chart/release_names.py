"""What the objects of an installation are called in a release of its chart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from steersman.meta.manifests import Manifest
from steersman_cli.packaging.chart.template import HelmTemplate
from steersman_cli.packaging.operator_manifests import OperatorManifests

CERTIFICATE_SECRET_SUFFIX = "-cert"  # noqa: S105
"""Ends the name of the Secret of a Service's certificate, as ``WebhookServing`` names it."""

# Others keep their names: what refers to them is not known here.
_RENAMED_KINDS = frozenset(
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
_WEBHOOK_CONFIGURATION_RESOURCES = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class ReleaseNames:
    """Names, namespaces, labels and selectors as templates have them.

    Args:
        installation: whose they are.
        text: notes the actions.
    """

    def __init__(self, installation: OperatorManifests, text: HelmTemplate) -> None:
        self._installation = installation
        self._text = text
        self._chart_name = installation.name
        self.full_name = text.inline(self.include("fullname"))
        self.namespace = text.inline("{{ $.Release.Namespace }}")
        self.service_account = text.inline(self.include("serviceAccountName"))

    def include(self, helper: str, indent: str = "") -> str:
        """The action that includes the helper ``part``; on a line of its own with ``indent``."""
        if indent:
            return f'{{{{- include "{self._chart_name}.{helper}" $ | nindent {indent} }}}}'
        return f'{{{{ include "{self._chart_name}.{helper}" $ }}}}'

    def release_name(self, name: str) -> str:
        """What an object that is called ``name`` is called in a release."""
        if name == self._chart_name:
            return self.full_name
        return f"{self.full_name}-{name.removeprefix(f'{self._chart_name}-')}"

    @property
    def max_suffix_length(self) -> int:
        """How many characters follow the release's in the longest name of a Service."""
        names = [self.release_name(m["metadata"]["name"]) for m in self._installation.of_kind("Service")]
        return max(len(n) for n in [*names, f"{self.full_name}-metrics"]) - len(self.full_name)

    # Webhooks

    @property
    def webhook_service(self) -> str:
        """The name, in the manifests, of the Service before the webhooks; empty where there are none."""
        configurations = [w for m in self._installation.webhooks for w in m.get("webhooks", ())]
        conversions = [d["spec"].get("conversion", {}).get("webhook", {}) for d in self._installation.crds]
        clients = [c.get("clientConfig", {}).get("service", {}) for c in [*configurations, *conversions]]
        local_services = [s["name"] for s in clients if s.get("namespace") == self._installation.namespace]
        return local_services[0] if local_services else ""

    @property
    def certificate_secret(self) -> str:
        """The name, in the manifests, of the Secret of that Service's certificate."""
        return f"{self.webhook_service}{CERTIFICATE_SECRET_SUFFIX}"

    def webhook_configuration_name(self, name: str) -> str:
        """The name of a webhook configuration: as its Service, where the operator derives it from that."""
        return self.release_name(name) if name == self.webhook_service else name

    def secret_name(self, name: str) -> str:
        """The name of a Secret: as the Service whose certificate it holds, or as it is."""
        return self.release_name(name) if self.webhook_service and name == self.certificate_secret else name

    def client_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """A ``clientConfig`` whose Service is the release's."""
        service = config.get("service")
        if not service or service.get("namespace") != self._installation.namespace:
            return config
        return {
            **config,
            "service": {**service, "name": self.release_name(service["name"]), "namespace": self.namespace},
        }

    def service_dns_name(self, address: str) -> str:
        """A DNS name, where it is of a Service of the release."""
        service, _, rest = address.partition(".")
        namespace, _, domain = rest.partition(".")
        service_names = {
            self.webhook_service,
            *(m["metadata"]["name"] for m in self._installation.of_kind("Service")),
        }
        if service not in service_names or namespace != self._installation.namespace:
            return address
        return f"{self.release_name(service)}.{self.namespace}" + (f".{domain}" if domain else "")

    def is_webhook_service_dns_name(self, address: str) -> bool:
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
            names = [self.release_name(n) if n == lease else n for n in names]
        elif resources == {"secrets"}:
            names = [self.secret_name(n) for n in names]
        elif resources <= set(_WEBHOOK_CONFIGURATION_RESOURCES):
            names = [self.webhook_configuration_name(n) for n in names]
        return {**rule, "resourceNames": names}

    def subjects(self, subjects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Whom a binding is for."""
        return [self._subject(s) for s in subjects]

    def _subject(self, subject: dict[str, Any]) -> dict[str, Any]:
        if subject.get("namespace") != self._installation.namespace:
            return subject
        return {**subject, "name": self.service_account_name(subject["name"]), "namespace": self.namespace}

    def service_account_name(self, name: str) -> str:
        """What the ServiceAccount ``name`` is called in a release."""
        operator_account = self._installation.service_account["metadata"]["name"]
        return self.service_account if name == operator_account else self.release_name(name)

    # Whole manifests

    def release_manifest(self, manifest: Manifest) -> Manifest:
        """``manifest`` with the name, the namespace, the labels and the selectors of a release."""
        found = copy.deepcopy(manifest)
        metadata: dict[str, Any] = found.pop("metadata")
        other_metadata = {k: v for k, v in metadata.items() if k not in ("name", "namespace", "labels")}
        name = self.release_name(metadata["name"]) if manifest["kind"] in _RENAMED_KINDS else metadata["name"]
        namespace_entry = (
            {"namespace": self._release_namespace(metadata["namespace"])} if "namespace" in metadata else {}
        )
        type_meta = {k: found.pop(k) for k in ("apiVersion", "kind")}
        return {
            **type_meta,
            "metadata": {
                "name": name,
                **namespace_entry,
                "labels": self.labels(metadata.get("labels", {})),
                **other_metadata,
            },
            **self.replace_selectors(found),
        }

    def labels(self, labels: dict[str, str]) -> dict[str, Any]:
        """The labels of every object of a release, and those of ``labels`` that a chart does not set itself."""
        extra = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.include('labels', '<0>')}\n"), **extra}

    def selector(self, labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """What the operator's pods are selected by: the release's own labels, and what else is in ``labels``."""
        extra = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.include('selectorLabels', '<0>')}\n"), **extra}

    def replace_selectors(self, value: Any) -> Any:
        """``value`` with the release's selectors where it selects the operator's pods."""
        if isinstance(value, list):
            return [self.replace_selectors(item) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("dict[str, Any]", value)
        return {
            k: self.selector(v)
            if k in ("matchLabels", "selector") and self._selects_pods(v)
            else self.replace_selectors(v)
            for k, v in found.items()
        }

    def _selects_pods(self, labels: Any) -> bool:
        pods = self._installation.deployment["spec"]["template"]["metadata"]["labels"]
        return bool(labels) and isinstance(labels, dict) and labels.items() <= pods.items()  # pyright: ignore

    def _release_namespace(self, namespace: str) -> str:
        return self.namespace if namespace == self._installation.namespace else namespace
