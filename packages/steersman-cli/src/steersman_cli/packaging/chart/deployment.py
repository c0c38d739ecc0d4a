"""Template of the operator's Deployment."""

from __future__ import annotations

import copy
from typing import Any

from steersman_cli.packaging.chart.model import ChartModel
from steersman_cli.packaging.chart.template import escape_template
from steersman_manifests.manifest_files import Manifest
from steersman_manifests.yaml_codec import dump_yaml

CERTIFICATE_MOUNT_PATH = "/certs"
"""Mount path of cert-manager's Secret."""

_BY_CERT_MANAGER = 'eq $.Values.webhooks.certificates "cert-manager"'
_CERTIFICATE_VOLUME = "webhook-certificate"
# Fields of the pod spec with a value of the same name.
_POD_VALUES = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


def deployment_template(model: ChartModel) -> str:
    """Render ``templates/deployment.yaml``."""
    names, text = model.names, model.template
    found = names.release_manifest(model.manifests.deployment)
    spec: dict[str, Any] = found["spec"]
    spec["replicas"] = text.number("{{ $.Values.replicaCount }}")
    template = copy.deepcopy(model.manifests.deployment["spec"]["template"])
    metadata = template["metadata"]
    metadata.pop("annotations", None)
    metadata["labels"] = {
        **names.labels(metadata["labels"]),
        **_value_block("podLabels", model, key=False),
    }
    template["metadata"] = {**_value_block("podAnnotations", model, key="annotations"), **metadata}
    template["spec"] = _pod_spec(model)
    spec["template"] = template
    replica_check = "{{- if and (gt (int $.Values.replicaCount) 1) (not $.Values.leaderElection.enabled) }}\n"
    replica_check += (
        '{{- fail "replicaCount above 1 requires leaderElection.enabled: otherwise all replicas reconcile" }}\n'
    )
    return f"{replica_check}{{{{- end }}}}\n{text.render(found)}"


def _pod_spec(model: ChartModel) -> dict[str, Any]:
    pod = model.manifests.pod
    handled = (
        "imagePullSecrets",
        "serviceAccountName",
        "priorityClassName",
        "securityContext",
        "containers",
        "volumes",
    )
    remaining = {k: v for k, v in pod.items() if k not in (*handled, *_POD_VALUES)}
    value_blocks = [_value_block(name, model) for name in _POD_VALUES]
    return {
        **_value_block("imagePullSecrets", model),
        "serviceAccountName": model.names.service_account,
        **model.template.block(
            "{{- with $.Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}\n"
        ),
        **_value_block("podSecurityContext", model, key="securityContext"),
        **{k: v for each in value_blocks for k, v in each.items()},
        **remaining,
        "containers": [_manager_container(model) if c is model.manifests.container else c for c in pod["containers"]],
        **_volumes_block("volumes", pod.get("volumes", []), model),
    }


def _manager_container(model: ChartModel) -> dict[str, Any]:
    container, text = model.manifests.container, model.template
    handled = ("name", "imagePullPolicy", "args", "env", "resources", "securityContext", "volumeMounts")
    return {
        "name": container["name"],
        "imagePullPolicy": text.inline("{{ $.Values.image.pullPolicy }}"),
        "args": [*model.arguments, text.item(_flag_lines(model))],
        "env": [*container.get("env", []), text.item(_extra_items("extraEnv"))],
        **{k: v for k, v in container.items() if k not in handled},
        **_value_block("resources", model),
        **_value_block("securityContext", model),
        **_volumes_block("volumeMounts", container.get("volumeMounts", []), model),
    }


def _flag_lines(model: ChartModel) -> str:
    """Return the arguments that values set."""
    lines = [
        "{{- if $.Values.leaderElection.enabled }}",
        "- --leader-elect",
        f"- --leader-election-id={model.names.release_name(model.lease)}",
        *(["{{- else }}", "- --no-leader-elect"] if "--no-leader-elect" in model.flags else []),
        "{{- end }}",
        "- --log-level={{ $.Values.logging.level }}",
        "- --log-format={{ $.Values.logging.format }}",
        "{{- with $.Values.watchNamespaces }}",
        '- --namespaces={{ join "," . }}',
        "{{- end }}",
    ]
    if model.has_webhooks:
        lines.append(
            f"- --webhook-service={model.names.namespace}/{model.names.release_name(model.names.webhook_service)}"
        )
    if model.has_webhook_certificates:
        lines += [
            f"{{{{- if {_BY_CERT_MANAGER} }}}}",
            f"- --webhook-cert-path={CERTIFICATE_MOUNT_PATH}",
            "{{- end }}",
        ]
    return "\n".join(lines) + "\n" + _extra_items("extraArgs")


def _extra_items(value: str) -> str:
    """Return the items of a list value."""
    return f"{{{{- with $.Values.{value} }}}}\n{{{{- toYaml . | nindent <0> }}}}\n{{{{- end }}}}\n"


def _value_block(value: str, model: ChartModel, *, key: str | bool = True) -> dict[str, None]:
    """Return the block of a value, optionally below a key."""
    name = value if key is True else key
    head = f"{name}:\n  {{{{- toYaml . | nindent <2> }}}}" if name else "{{- toYaml . | nindent <0> }}"
    return model.template.block(f"{{{{- with $.Values.{value} }}}}\n{head}\n{{{{- end }}}}\n")


def _volumes_block(key: str, present: list[dict[str, Any]], model: ChartModel) -> dict[str, Any]:
    """Return ``volumes`` or ``volumeMounts`` of the manifests, the certificate and values."""
    extra = "extraVolumes" if key == "volumes" else "extraVolumeMounts"
    present = [v for v in present if v["name"] not in _certificate_volumes(model)]
    conditions = [f"$.Values.{extra}"]
    lines = escape_template(dump_yaml(present)).rstrip("\n") + "\n" if present else ""
    if model.has_webhook_certificates:
        conditions.append(f"({_BY_CERT_MANAGER})")
        item: Manifest = {"name": _CERTIFICATE_VOLUME}
        if key == "volumes":
            item["secret"] = {"secretName": model.names.secret_name(model.names.certificate_secret)}
        else:
            item |= {"mountPath": CERTIFICATE_MOUNT_PATH, "readOnly": True}
        lines += f"{{{{- if {_BY_CERT_MANAGER} }}}}\n{dump_yaml([item])}{{{{- end }}}}\n"
    lines += _extra_items(extra).replace("<0>", "<2>")
    indented = "".join(f"  {line}\n" for line in lines.splitlines())
    block = f"{key}:\n{indented}"
    if not present:
        block = f"{{{{- if or {' '.join([*conditions, 'false'])} }}}}\n{block}{{{{- end }}}}\n"
    return model.template.block(block)


def _certificate_volumes(model: ChartModel) -> list[str]:
    """Return the names of the certificate's volumes in the manifests."""
    volumes: list[dict[str, Any]] = model.manifests.pod.get("volumes", []) if model.has_webhook_certificates else []
    secrets = [c["spec"]["secretName"] for c in model.webhook_certificates if c["kind"] == "Certificate"]
    return [v["name"] for v in volumes if v.get("secret", {}).get("secretName") in secrets]
