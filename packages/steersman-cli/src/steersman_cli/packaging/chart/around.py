"""What is around the operator in a chart: its definitions, webhooks, certificates, metrics and the rest."""

from __future__ import annotations

from typing import Any

from steersman.meta.documents import as_text
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.chart.parts import Parts
from steersman_cli.packaging.chart.text import literal, under

KEEP = "helm.sh/resource-policy"
INJECT = "cert-manager.io/inject-ca-from"
_BY_CERT_MANAGER = 'eq $.Values.webhooks.certificates "cert-manager"'
_WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "Job")
# What has templates of its own.
_TOLD = frozenset(
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


def definitions(parts: Parts) -> dict[str, str]:
    """The definitions, among the templates so that an upgrade of the release upgrades them."""
    return {
        f"crds/{d['metadata']['name']}.yaml": under("$.Values.crds.install", parts.text.write(_definition(parts, d)))
        for d in parts.installation.definitions
    }


def webhooks(parts: Parts) -> dict[str, str]:
    """The webhook configurations, and who makes their certificate."""
    files: dict[str, str] = {}
    if parts.installation.webhooks:
        texts = [parts.text.write(_configuration(parts, w)) for w in parts.installation.webhooks]
        files["webhooks.yaml"] = "---\n".join(texts)
    if parts.has_certificates:
        texts = [parts.text.write(_certificate(parts, m)) for m in parts.certificates]
        files["certificates.yaml"] = under(_BY_CERT_MANAGER, "---\n".join(texts))
    return files


def service_account(parts: Parts) -> str:
    """``templates/serviceaccount.yaml``."""
    found = parts.names.manifest(parts.installation.service_account)
    found["metadata"]["name"] = parts.names.account
    found["metadata"].pop("annotations", None)
    found["metadata"] |= _annotations(parts, "serviceAccount.annotations")
    return under("$.Values.serviceAccount.create", parts.text.write(found))


def metrics(parts: Parts) -> dict[str, str]:
    """A Service before the metrics, and what tells a Prometheus of it."""
    files: dict[str, str] = {}
    names, text = parts.names, parts.text
    if parts.port("metrics"):
        own = {"app.kubernetes.io/component": "metrics"}
        head = {"name": f"{names.full}-metrics", "namespace": names.namespace, "labels": {**names.labels({}), **own}}
        number = text.number("{{ $.Values.metrics.service.port }}")
        service: Manifest = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**head, **_annotations(parts, "metrics.service.annotations")},
            "spec": {
                "ports": [{"name": "metrics", "port": number, "targetPort": "metrics"}],
                "selector": names.selector(),
            },
        }
        wanted = "or $.Values.metrics.service.enabled $.Values.metrics.serviceMonitor.enabled"
        files["metrics/service.yaml"] = under(wanted, text.write(service))
        labels = "{{- with $.Values.metrics.serviceMonitor.labels }}\n{{- toYaml . | nindent <0> }}\n{{- end }}\n"
        interval = "{{- with $.Values.metrics.serviceMonitor.interval }}\ninterval: {{ . }}\n{{- end }}\n"
        monitor: Manifest = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {**head, "labels": {**names.labels({}), **text.block(labels)}},
            "spec": {
                "endpoints": [{"port": "metrics", **_way(parts), **text.block(interval)}],
                "selector": {"matchLabels": {**names.selector(), **own}},
            },
        }
        files["metrics/servicemonitor.yaml"] = under("$.Values.metrics.serviceMonitor.enabled", text.write(monitor))
    if parts.monitors:
        files["metrics/monitors.yaml"] = under("$.Values.metrics.monitors.enabled", _all(parts, parts.monitors))
    return files


def _way(parts: Parts) -> dict[str, Any]:
    """How a Prometheus reaches the metrics: where they are served to whom is allowed, as itself."""
    if "--metrics-secure" not in parts.arguments:
        return {}
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
    return {"scheme": "https", "bearerTokenFile": token, "tlsConfig": {"insecureSkipVerify": True}}


def policies(parts: Parts) -> dict[str, str]:
    """NetworkPolicies, and the PodDisruptionBudget."""
    names, text = parts.names, parts.text
    amount = (
        '{{- if ne (toString $.Values.podDisruptionBudget.minAvailable) "" }}\n'
        "minAvailable: {{ $.Values.podDisruptionBudget.minAvailable }}\n"
        "{{- else }}\n"
        "maxUnavailable: {{ $.Values.podDisruptionBudget.maxUnavailable }}\n"
        "{{- end }}\n"
    )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.full, "namespace": names.namespace, "labels": names.labels({})},
        "spec": {**text.block(amount), "selector": {"matchLabels": names.selector()}},
    }
    files = {"poddisruptionbudget.yaml": under("$.Values.podDisruptionBudget.enabled", text.write(budget))}
    if parts.policies:
        files["networkpolicies.yaml"] = under("$.Values.networkPolicy.enabled", _all(parts, parts.policies))
    return files


def others(parts: Parts) -> dict[str, str]:
    """What else the manifests have."""
    own = [parts.installation.deployment, parts.installation.service_account]
    told = [*own, *parts.certificates]
    rest = [m for m in parts.installation.manifests if m["kind"] not in _TOLD and not any(m is o for o in told)]
    files: dict[str, list[str]] = {}
    for manifest in rest:
        # Objects of one name may be in several namespaces, or of several groups.
        name = f"{manifest['kind'].lower()}-{manifest['metadata']['name'].replace(':', '-')}.yaml"
        files.setdefault(name, []).append(parts.text.write(_other(parts, manifest)))
    return {name: "---\n".join(texts) for name, texts in files.items()}


def _annotations(parts: Parts, value: str) -> dict[str, None]:
    lines = f"{{{{- with $.Values.{value} }}}}\nannotations:\n  {{{{- toYaml . | nindent <2> }}}}\n{{{{- end }}}}\n"
    return parts.text.block(lines)


def _all(parts: Parts, manifests: tuple[Manifest, ...]) -> str:
    return "---\n".join(parts.text.write(parts.names.manifest(m)) for m in manifests)


def _other(parts: Parts, manifest: Manifest) -> Manifest:
    if manifest["kind"] == "Certificate":
        return _certificate(parts, manifest)
    found = parts.names.manifest(manifest)
    if manifest["kind"] in _WORKLOADS and "serviceAccountName" in (pod := found["spec"]["template"]["spec"]):
        pod["serviceAccountName"] = parts.names.account_of(pod["serviceAccountName"])
    return found


def _definition(parts: Parts, definition: Manifest) -> Manifest:
    found = parts.names.manifest(definition)
    annotations = {"$.Values.crds.keep": {KEEP: "keep"}}
    conversion = found["spec"].get("conversion", {}).get("webhook")
    if conversion:
        conversion["clientConfig"] = parts.names.client(conversion["clientConfig"])
        annotations |= _injected(parts)
    return _annotated(parts, found, annotations)


def _configuration(parts: Parts, configuration: Manifest) -> Manifest:
    found = parts.names.manifest(configuration)
    found["metadata"]["name"] = parts.names.configuration(configuration["metadata"]["name"])
    for webhook in found["webhooks"]:
        webhook["clientConfig"] = parts.names.client(webhook["clientConfig"])
        webhook |= _watched(parts, webhook.pop("namespaceSelector", {}))
    return _annotated(parts, found, _injected(parts))


def _watched(parts: Parts, selector: Manifest) -> Manifest:
    """Its `namespaceSelector`, narrowed to what is watched: only there is anything refused while nobody answers."""
    condition, rest = "$.Values.watchNamespaces", dict(selector)
    own = rest.pop("matchExpressions", [])
    watched = "- key: kubernetes.io/metadata.name\n  operator: In\n  values: {{ toJson $.Values.watchNamespaces }}\n"
    lines = literal(as_text(rest)) if rest else ""
    if own:
        lines += f"matchExpressions:\n{literal(as_text(own))}{under(condition, watched)}"
    else:
        lines += under(condition if rest else "", f"matchExpressions:\n{watched}")
    whole = "namespaceSelector:\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    return parts.text.block(under("" if selector else condition, whole))


def _injected(parts: Parts) -> dict[str, dict[str, str]]:
    """By what cert-manager finds where its authority belongs."""
    found = [m for m in parts.certificates if m["kind"] == "Certificate"]
    if not parts.has_certificates or not found:
        return {}
    name = parts.names.of(found[0]["metadata"]["name"])
    return {_BY_CERT_MANAGER: {INJECT: f"{parts.names.namespace}/{name}"}}


def _annotated(parts: Parts, manifest: Manifest, on_condition: dict[str, dict[str, str]]) -> Manifest:
    """``manifest`` with annotations of which each is there under a condition, beside those that it has."""
    metadata: dict[str, Any] = dict(manifest["metadata"])
    present = {k: v for k, v in metadata.pop("annotations", {}).items() if k != INJECT}
    if not on_condition:
        return manifest
    lines = literal(as_text(present)) if present else ""
    lines += "".join(under(condition, as_text(given)) for condition, given in on_condition.items())
    whole = "annotations:\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    if not present:
        whole = under(f"or {' '.join(f'({c})' for c in on_condition)}", whole)
    return {**manifest, "metadata": {**metadata, **parts.text.block(whole)}}


def _certificate(parts: Parts, manifest: Manifest) -> Manifest:
    found = parts.names.manifest(manifest)
    spec: dict[str, Any] = found["spec"]
    known = (*parts.installation.of("Issuer"), *parts.certificates)
    issuers = {m["metadata"]["name"] for m in known if m["kind"] == "Issuer"}
    ref = spec.get("issuerRef", {})
    if manifest in parts.certificates and "secretName" in spec:
        # As the operator calls it that keeps its own: there is one mount.
        spec["secretName"] = parts.names.secret(parts.names.certificate)
    if ref.get("kind", "Issuer") == "Issuer" and ref.get("name") in issuers:
        spec["issuerRef"] = {**ref, "name": parts.names.of(ref["name"])}
    if "dnsNames" in spec:
        spec["dnsNames"] = [parts.names.address(n) for n in spec["dnsNames"]]
    return found
