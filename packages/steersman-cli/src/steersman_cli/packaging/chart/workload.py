"""The operator's Deployment as a template."""

from __future__ import annotations

import copy
from typing import Any

from steersman.meta.documents import as_text
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.chart.parts import Parts
from steersman_cli.packaging.chart.text import literal

CERTIFICATES = "/certs"
"""Where cert-manager's Secret is mounted."""

_BY_CERT_MANAGER = 'eq $.Values.webhooks.certificates "cert-manager"'
_VOLUME = "webhook-certificate"
# Parts of a pod that a value of the same name gives.
_OF_PODS = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


def deployment(parts: Parts) -> str:
    """``templates/deployment.yaml``."""
    names, text = parts.names, parts.text
    found = names.manifest(parts.installation.deployment)
    spec: dict[str, Any] = found["spec"]
    spec["replicas"] = text.number("{{ $.Values.replicaCount }}")
    template = copy.deepcopy(parts.installation.deployment["spec"]["template"])
    metadata = template["metadata"]
    metadata.pop("annotations", None)
    metadata["labels"] = {
        **names.labels(metadata["labels"]),
        **_given("podLabels", parts, key=False),
    }
    template["metadata"] = {**_given("podAnnotations", parts, key="annotations"), **metadata}
    template["spec"] = _pod(parts)
    spec["template"] = template
    alone = "{{- if and (gt (int $.Values.replicaCount) 1) (not $.Values.leaderElection.enabled) }}\n"
    alone += '{{- fail "replicaCount is more than 1, and leaderElection.enabled is false: all would do the work" }}\n'
    return f"{alone}{{{{- end }}}}\n{text.write(found)}"


def _pod(parts: Parts) -> dict[str, Any]:
    pod = parts.installation.pod
    own = ("imagePullSecrets", "serviceAccountName", "priorityClassName", "securityContext", "containers", "volumes")
    kept = {k: v for k, v in pod.items() if k not in (*own, *_OF_PODS)}
    given = [_given(name, parts) for name in _OF_PODS]
    return {
        **_given("imagePullSecrets", parts),
        "serviceAccountName": parts.names.account,
        **parts.text.block(
            "{{- with $.Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}\n"
        ),
        **_given("podSecurityContext", parts, key="securityContext"),
        **{k: v for each in given for k, v in each.items()},
        **kept,
        "containers": [_manager(parts) if c is parts.installation.container else c for c in pod["containers"]],
        **_mounted("volumes", pod.get("volumes", []), parts),
    }


def _manager(parts: Parts) -> dict[str, Any]:
    container, text = parts.installation.container, parts.text
    own = ("name", "imagePullPolicy", "args", "env", "resources", "securityContext", "volumeMounts")
    return {
        "name": container["name"],
        "imagePullPolicy": text.inline("{{ $.Values.image.pullPolicy }}"),
        "args": [*parts.arguments, text.item(_flags(parts))],
        "env": [*container.get("env", []), text.item(_more("extraEnv"))],
        **{k: v for k, v in container.items() if k not in own},
        **_given("resources", parts),
        **_given("securityContext", parts),
        **_mounted("volumeMounts", container.get("volumeMounts", []), parts),
    }


def _flags(parts: Parts) -> str:
    """The arguments that values stand for."""
    lines = [
        "{{- if $.Values.leaderElection.enabled }}",
        "- --leader-elect",
        f"- --leader-election-id={parts.names.of(parts.lease)}",
        *(["{{- else }}", "- --no-leader-elect"] if "--no-leader-elect" in parts.flags else []),
        "{{- end }}",
        "- --log-level={{ $.Values.logging.level }}",
        "- --log-format={{ $.Values.logging.format }}",
        "{{- with $.Values.watchNamespaces }}",
        '- --namespaces={{ join "," . }}',
        "{{- end }}",
    ]
    if parts.has_webhooks:
        lines.append(f"- --webhook-service={parts.names.namespace}/{parts.names.of(parts.names.webhook_service)}")
    if parts.has_certificates:
        lines += [f"{{{{- if {_BY_CERT_MANAGER} }}}}", f"- --webhook-cert-path={CERTIFICATES}", "{{- end }}"]
    return "\n".join(lines) + "\n" + _more("extraArgs")


def _more(value: str) -> str:
    """The items of a list that users give, among others."""
    return f"{{{{- with $.Values.{value} }}}}\n{{{{- toYaml . | nindent <0> }}}}\n{{{{- end }}}}\n"


def _given(value: str, parts: Parts, *, key: str | bool = True) -> dict[str, None]:
    """What users give as a value, below a key: that of the same name, another, or none."""
    name = value if key is True else key
    head = f"{name}:\n  {{{{- toYaml . | nindent <2> }}}}" if name else "{{- toYaml . | nindent <0> }}"
    return parts.text.block(f"{{{{- with $.Values.{value} }}}}\n{head}\n{{{{- end }}}}\n")


def _mounted(key: str, present: list[dict[str, Any]], parts: Parts) -> dict[str, Any]:
    """``volumes`` or ``volumeMounts``: what the manifests have, the certificate, and what users give."""
    extra = "extraVolumes" if key == "volumes" else "extraVolumeMounts"
    present = [v for v in present if v["name"] not in _certificate_volumes(parts)]
    conditions = [f"$.Values.{extra}"]
    lines = literal(as_text(present)).rstrip("\n") + "\n" if present else ""
    if parts.has_certificates:
        conditions.append(f"({_BY_CERT_MANAGER})")
        item: Manifest = {"name": _VOLUME}
        if key == "volumes":
            item["secret"] = {"secretName": parts.names.secret(parts.names.certificate)}
        else:
            item |= {"mountPath": CERTIFICATES, "readOnly": True}
        lines += f"{{{{- if {_BY_CERT_MANAGER} }}}}\n{as_text([item])}{{{{- end }}}}\n"
    lines += _more(extra).replace("<0>", "<2>")
    indented = "".join(f"  {line}\n" for line in lines.splitlines())
    whole = f"{key}:\n{indented}"
    if not present:
        whole = f"{{{{- if or {' '.join([*conditions, 'false'])} }}}}\n{whole}{{{{- end }}}}\n"
    return parts.text.block(whole)


def _certificate_volumes(parts: Parts) -> list[str]:
    """Volumes that the manifests themselves have of the certificate."""
    volumes: list[dict[str, Any]] = parts.installation.pod.get("volumes", []) if parts.has_certificates else []
    secrets = [c["spec"]["secretName"] for c in parts.certificates if c["kind"] == "Certificate"]
    return [v["name"] for v in volumes if v.get("secret", {}).get("secretName") in secrets]
