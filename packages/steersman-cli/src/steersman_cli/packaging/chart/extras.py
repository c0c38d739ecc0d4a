"""Templates of CRDs, webhooks, certificates, metrics, policies and other objects."""

from __future__ import annotations

from typing import Any

from steersman_cli.packaging.chart.model import ChartModel
from steersman_cli.packaging.chart.template import conditional, escape_template
from steersman_manifests.manifest_files import Manifest
from steersman_manifests.yaml_codec import dump_yaml

RESOURCE_POLICY_ANNOTATION = "helm.sh/resource-policy"
INJECT_CA_ANNOTATION = "cert-manager.io/inject-ca-from"
_BY_CERT_MANAGER = 'eq $.Values.webhooks.certificates "cert-manager"'
_WORKLOAD_KINDS = ("Deployment", "DaemonSet", "StatefulSet", "Job")
# Kinds with their own templates.
_TEMPLATED_KINDS = frozenset(
    {
        "Namespace",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "NetworkPolicy",
        "PodMonitor",
        "ServiceMonitor",
    }
)


def crd_templates(model: ChartModel) -> dict[str, str]:
    """Render the CRDs as templates, so that ``helm upgrade`` updates them."""
    return {
        f"crds/{d['metadata']['name']}.yaml": conditional(
            "$.Values.crds.install", model.template.render(_crd_manifest(model, d))
        )
        for d in model.manifests.crds
    }


def webhook_templates(model: ChartModel) -> dict[str, str]:
    """Render the webhook configurations and the Certificate."""
    files: dict[str, str] = {}
    if model.manifests.webhooks:
        texts = [model.template.render(_webhook_configuration(model, w)) for w in model.manifests.webhooks]
        files["webhooks.yaml"] = "---\n".join(texts)
    if model.has_webhook_certificates:
        texts = [model.template.render(_certificate_manifest(model, m)) for m in model.webhook_certificates]
        files["certificates.yaml"] = conditional(_BY_CERT_MANAGER, "---\n".join(texts))
    return files


def service_account_template(model: ChartModel) -> str:
    """Render ``templates/serviceaccount.yaml``."""
    found = model.names.release_manifest(model.manifests.service_account)
    found["metadata"]["name"] = model.names.service_account
    found["metadata"].pop("annotations", None)
    found["metadata"] |= _annotations_block(model, "serviceAccount.annotations")
    return conditional("$.Values.serviceAccount.create", model.template.render(found))


def metrics_templates(model: ChartModel) -> dict[str, str]:
    """Render the metrics Service and the monitors of the Prometheus operator."""
    files: dict[str, str] = {}
    names, text = model.names, model.template
    if model.port("metrics"):
        component_label = {"app.kubernetes.io/component": "metrics"}
        head = {
            "name": f"{names.full_name}-metrics",
            "namespace": names.namespace,
            "labels": {**names.labels({}), **component_label},
        }
        number = text.number("{{ $.Values.metrics.service.port }}")
        service: Manifest = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**head, **_annotations_block(model, "metrics.service.annotations")},
            "spec": {
                "ports": [{"name": "metrics", "port": number, "targetPort": "metrics"}],
                "selector": names.selector(),
            },
        }
        condition = "or $.Values.metrics.service.enabled $.Values.metrics.serviceMonitor.enabled"
        files["metrics/service.yaml"] = conditional(condition, text.render(service))
        labels = "{{- with $.Values.metrics.serviceMonitor.labels }}\n{{- toYaml . | nindent <0> }}\n{{- end }}\n"
        interval = "{{- with $.Values.metrics.serviceMonitor.interval }}\ninterval: {{ . }}\n{{- end }}\n"
        monitor: Manifest = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {**head, "labels": {**names.labels({}), **text.block(labels)}},
            "spec": {
                "endpoints": [{"port": "metrics", **_scrape_options(model), **text.block(interval)}],
                "selector": {"matchLabels": {**names.selector(), **component_label}},
            },
        }
        files["metrics/servicemonitor.yaml"] = conditional(
            "$.Values.metrics.serviceMonitor.enabled", text.render(monitor)
        )
    if model.monitors:
        files["metrics/monitors.yaml"] = conditional(
            "$.Values.metrics.monitors.enabled", _render_all(model, model.monitors)
        )
    return files


def _scrape_options(model: ChartModel) -> dict[str, Any]:
    """Return the scrape options for ``--metrics-secure``: TLS and the token of Prometheus."""
    if "--metrics-secure" not in model.arguments:
        return {}
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
    return {"scheme": "https", "bearerTokenFile": token, "tlsConfig": {"insecureSkipVerify": True}}


def policy_templates(model: ChartModel) -> dict[str, str]:
    """Render the NetworkPolicies and the PodDisruptionBudget."""
    names, text = model.names, model.template
    amount = (
        '{{- if ne (toString $.Values.podDisruptionBudget.minAvailable) "" }}\n'
        "minAvailable: {{ $.Values.podDisruptionBudget.minAvailable }}\n"
        "{{- else }}\n"
        "maxUnavailable: {{ $.Values.podDisruptionBudget.maxUnavailable }}\n"
        "{{- end }}\n"
    )
    declared: dict[str, Any] = (
        {"selector": {}} if model.disruption_budget is None else model.disruption_budget["spec"]
    )
    settings = {k: v for k, v in declared.items() if k not in ("minAvailable", "maxUnavailable", "selector")}
    labels = declared["selector"].get("matchLabels", {})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.full_name, "namespace": names.namespace, "labels": names.labels({})},
        "spec": {**settings, **text.block(amount), "selector": {"matchLabels": names.selector(labels)}},
    }
    files = {"poddisruptionbudget.yaml": conditional("$.Values.podDisruptionBudget.enabled", text.render(budget))}
    if model.network_policies:
        files["networkpolicies.yaml"] = conditional(
            "$.Values.networkPolicy.enabled", _render_all(model, model.network_policies)
        )
    return files


def other_templates(model: ChartModel) -> dict[str, str]:
    """Render the manifests of all other kinds."""
    templated_elsewhere = [model.manifests.deployment, model.manifests.service_account]
    excluded = [*templated_elsewhere, *model.webhook_certificates, model.disruption_budget]
    rest = [
        m
        for m in model.manifests.manifests
        if m["kind"] not in _TEMPLATED_KINDS and not any(m is o for o in excluded)
    ]
    files: dict[str, list[str]] = {}
    for manifest in rest:
        # Objects of one name may be in several namespaces, or of several groups.
        name = f"{manifest['kind'].lower()}-{manifest['metadata']['name'].replace(':', '-')}.yaml"
        files.setdefault(name, []).append(model.template.render(_other_manifest(model, manifest)))
    return {name: "---\n".join(texts) for name, texts in files.items()}


def _annotations_block(model: ChartModel, value: str) -> dict[str, None]:
    lines = f"{{{{- with $.Values.{value} }}}}\nannotations:\n  {{{{- toYaml . | nindent <2> }}}}\n{{{{- end }}}}\n"
    return model.template.block(lines)


def _render_all(model: ChartModel, manifests: tuple[Manifest, ...]) -> str:
    return "---\n".join(model.template.render(model.names.release_manifest(m)) for m in manifests)


def _other_manifest(model: ChartModel, manifest: Manifest) -> Manifest:
    if manifest["kind"] == "Certificate":
        return _certificate_manifest(model, manifest)
    found = model.names.release_manifest(manifest)
    if manifest["kind"] in _WORKLOAD_KINDS and "serviceAccountName" in (pod := found["spec"]["template"]["spec"]):
        pod["serviceAccountName"] = model.names.service_account_name(pod["serviceAccountName"])
    return found


def _crd_manifest(model: ChartModel, definition: Manifest) -> Manifest:
    found = model.names.release_manifest(definition)
    annotations = {"$.Values.crds.keep": {RESOURCE_POLICY_ANNOTATION: "keep"}}
    conversion = found["spec"].get("conversion", {}).get("webhook")
    if conversion:
        conversion["clientConfig"] = model.names.client_config(conversion["clientConfig"])
        annotations |= _ca_injection(model)
    return _with_conditional_annotations(model, found, annotations)


def _webhook_configuration(model: ChartModel, configuration: Manifest) -> Manifest:
    found = model.names.release_manifest(configuration)
    found["metadata"]["name"] = model.names.webhook_configuration_name(configuration["metadata"]["name"])
    for webhook in found["webhooks"]:
        webhook["clientConfig"] = model.names.client_config(webhook["clientConfig"])
        webhook |= _watched_namespace_selector(model, webhook.pop("namespaceSelector", {}))
    return _with_conditional_annotations(model, found, _ca_injection(model))


def _watched_namespace_selector(model: ChartModel, selector: Manifest) -> Manifest:
    """Return the `namespaceSelector`, restricted to the watched namespaces.

    A webhook that is down must not block writes elsewhere.
    """
    condition, rest = "$.Values.watchNamespaces", dict(selector)
    expressions = rest.pop("matchExpressions", [])
    watched = "- key: kubernetes.io/metadata.name\n  operator: In\n  values: {{ toJson $.Values.watchNamespaces }}\n"
    lines = escape_template(dump_yaml(rest)) if rest else ""
    if expressions:
        lines += f"matchExpressions:\n{escape_template(dump_yaml(expressions))}{conditional(condition, watched)}"
    else:
        lines += conditional(condition if rest else "", f"matchExpressions:\n{watched}")
    block = "namespaceSelector:\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    return model.template.block(conditional("" if selector else condition, block))


def _ca_injection(model: ChartModel) -> dict[str, dict[str, str]]:
    """Return the annotation by which cert-manager injects its CA."""
    found = [m for m in model.webhook_certificates if m["kind"] == "Certificate"]
    if not model.has_webhook_certificates or not found:
        return {}
    name = model.names.release_name(found[0]["metadata"]["name"])
    return {_BY_CERT_MANAGER: {INJECT_CA_ANNOTATION: f"{model.names.namespace}/{name}"}}


def _with_conditional_annotations(
    model: ChartModel, manifest: Manifest, on_condition: dict[str, dict[str, str]]
) -> Manifest:
    """Return ``manifest`` with further annotations, each under a condition."""
    metadata: dict[str, Any] = dict(manifest["metadata"])
    present = {k: v for k, v in metadata.pop("annotations", {}).items() if k != INJECT_CA_ANNOTATION}
    if not on_condition:
        return manifest
    lines = escape_template(dump_yaml(present)) if present else ""
    lines += "".join(conditional(condition, dump_yaml(given)) for condition, given in on_condition.items())
    block = "annotations:\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    if not present:
        block = conditional(f"or {' '.join(f'({c})' for c in on_condition)}", block)
    return {**manifest, "metadata": {**metadata, **model.template.block(block)}}


def _certificate_manifest(model: ChartModel, manifest: Manifest) -> Manifest:
    found = model.names.release_manifest(manifest)
    spec: dict[str, Any] = found["spec"]
    candidates = (*model.manifests.of_kind("Issuer"), *model.webhook_certificates)
    issuers = {m["metadata"]["name"] for m in candidates if m["kind"] == "Issuer"}
    ref = spec.get("issuerRef", {})
    if manifest in model.webhook_certificates and "secretName" in spec:
        # The same Secret as without cert-manager, so that one volume mount suffices.
        spec["secretName"] = model.names.secret_name(model.names.certificate_secret)
    if ref.get("kind", "Issuer") == "Issuer" and ref.get("name") in issuers:
        spec["issuerRef"] = {**ref, "name": model.names.release_name(ref["name"])}
    if "dnsNames" in spec:
        spec["dnsNames"] = [model.names.service_dns_name(n) for n in spec["dnsNames"]]
    return found
