"""Names of objects in a release of the chart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from steersman_cli.packaging.chart.template import HelmTemplate
from steersman_cli.packaging.operator_manifests import OperatorManifests
from steersman_manifests.manifest_files import Manifest

CERTIFICATE_SECRET_SUFFIX = "-cert"  # noqa: S105
"""Suffix of the certificate's Secret, the same as in ``WebhookServerOptions``."""

# Other kinds keep their names, because references to them are unknown.
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
    """Names, namespaces, labels and selectors in templates.

    Args:
        installation: manifests of the operator.
        text: registry of the template actions.
    """

    def __init__(self, installation: OperatorManifests, text: HelmTemplate) -> None:
        self._installation = installation
        self._text = text
        self._chart_name = installation.name
        self.full_name = text.inline(self.include("fullname"))
        self.namespace = text.inline("{{ $.Release.Namespace }}")
        self.service_account = text.inline(self.include("serviceAccountName"))

    def include(self, helper: str, indent: str = "") -> str:
        """Return the action that includes a helper, optionally with ``nindent``."""
        if indent:
            return f'{{{{- include "{self._chart_name}.{helper}" $ | nindent {indent} }}}}'
        return f'{{{{ include "{self._chart_name}.{helper}" $ }}}}'

    def release_name(self, name: str) -> str:
        """Return the name of the object ``name`` in a release."""
        if name == self._chart_name:
            return self.full_name
        return f"{self.full_name}-{name.removeprefix(f'{self._chart_name}-')}"

    @property
    def max_suffix_length(self) -> int:
        """Length of the longest suffix that a Service appends to ``full_name``.

        The chart truncates ``full_name`` to 63 characters minus this length, so that all Service names are valid.
        """
        names = [self.release_name(m["metadata"]["name"]) for m in self._installation.of_kind("Service")]
        return max(len(n) for n in [*names, f"{self.full_name}-metrics"]) - len(self.full_name)

    # Webhooks

    @property
    def webhook_service(self) -> str:
        """Name of the webhooks' Service in the manifests; empty without webhooks."""
        configurations = [w for m in self._installation.webhooks for w in m.get("webhooks", ())]
        conversions = [d["spec"].get("conversion", {}).get("webhook", {}) for d in self._installation.crds]
        clients = [c.get("clientConfig", {}).get("service", {}) for c in [*configurations, *conversions]]
        local_services = [s["name"] for s in clients if s.get("namespace") == self._installation.namespace]
        return local_services[0] if local_services else ""

    @property
    def certificate_secret(self) -> str:
        """Name of the certificate's Secret in the manifests."""
        return f"{self.webhook_service}{CERTIFICATE_SECRET_SUFFIX}"

    def webhook_configuration_name(self, name: str) -> str:
        """Return the name of a webhook configuration in a release.

        The operator derives it from the name of the Service, unless it is configured.
        """
        return self.release_name(name) if name == self.webhook_service else name

    def secret_name(self, name: str) -> str:
        """Return the name of a Secret in a release. Only the certificate's Secret is renamed."""
        return self.release_name(name) if self.webhook_service and name == self.certificate_secret else name

    def client_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a ``clientConfig`` that refers to the Service of the release."""
        service = config.get("service")
        if not service or service.get("namespace") != self._installation.namespace:
            return config
        return {
            **config,
            "service": {**service, "name": self.release_name(service["name"]), "namespace": self.namespace},
        }

    def service_dns_name(self, address: str) -> str:
        """Replace Service and namespace in a DNS name."""
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
        """Return True if a DNS name belongs to the webhooks' Service."""
        return bool(self.webhook_service) and f"{address}.".startswith(
            f"{self.webhook_service}.{self._installation.namespace}."
        )

    # Access

    def rules(self, rules: list[dict[str, Any]], lease: str) -> list[dict[str, Any]]:
        """Return rules with the resource names of the release."""
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
        """Return the subjects of a binding with the names of the release."""
        return [self._subject(s) for s in subjects]

    def _subject(self, subject: dict[str, Any]) -> dict[str, Any]:
        if subject.get("namespace") != self._installation.namespace:
            return subject
        return {**subject, "name": self.service_account_name(subject["name"]), "namespace": self.namespace}

    def service_account_name(self, name: str) -> str:
        """Return the name of the ServiceAccount ``name`` in a release."""
        operator_account = self._installation.service_account["metadata"]["name"]
        return self.service_account if name == operator_account else self.release_name(name)

    # Whole manifests

    def release_manifest(self, manifest: Manifest) -> Manifest:
        """Return ``manifest`` with name, namespace, labels and selectors of a release."""
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
        """Return the chart's labels and the extra ones of ``labels``."""
        extra = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.include('labels', '<0>')}\n"), **extra}

    def selector(self, labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """Return the selector labels and the extra ones of ``labels``."""
        extra = {k: v for k, v in labels.items() if k not in _STANDARD_LABELS}
        return {**self._text.block(f"{self.include('selectorLabels', '<0>')}\n"), **extra}

    def replace_selectors(self, value: Any) -> Any:
        """Replace selectors of the operator's pods by those of a release."""
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
