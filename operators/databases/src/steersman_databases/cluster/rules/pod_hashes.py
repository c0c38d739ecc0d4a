"""Hashes of the declared fields of a pod, for its annotations."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from steersman.meta import to_builtins
from steersman_databases.cluster.state import PULL_HASH, RESIZABLE_HASH, RESTART_HASH
from steersman_databases.core.content_hash import content_hash
from steersman_databases.engines.cluster_engine import DEFAULT_PULL_POLICY, DeclaredCluster


def restart_hash(cluster: DeclaredCluster, image: str) -> str:
    """Hash of all declared fields that take effect with a new pod.

    The operator's own part of the template is excluded, so that another version of the operator restarts nothing.
    """
    return _declaration_hash(cluster, image, resources=to_builtins(cluster.pod_settings.resources))


def resizable_hash(cluster: DeclaredCluster, image: str) -> str:
    """`restart_hash` without the resources, which a running pod can change."""
    return _declaration_hash(cluster, image, resources=None)


def _declaration_hash(cluster: DeclaredCluster, image: str, *, resources: Any) -> str:
    pods = cluster.pod_settings
    declared: dict[str, Any] = {
        "image": image,
        "resources": resources,
        "shm": None if pods.shm_size is None else str(pods.shm_size),
        "affinity": None if pods.affinity is None else to_builtins(pods.affinity),
        "nodeSelector": dict(pods.node_selector),
        "tolerations": to_builtins(pods.tolerations),
        "spread": to_builtins(pods.topology_spread_constraints),
        "priority": pods.priority_class,
        "labels": dict(pods.labels),
        "annotations": dict(pods.annotations),
        "restart": cluster.requests.restarted_at,
        "identity": None if pods.identity is None else dict(pods.identity.environment),
    }
    # Undeclared fields are left out: a field of a later version would restart all pods.
    values = {key: value for key, value in declared.items() if value}
    return content_hash(values)


def auxiliary_hash(cluster: DeclaredCluster, image: str) -> str:
    """`restart_hash` of pods that do not use the object store."""
    pods = dataclasses.replace(cluster.pod_settings, identity=None)
    return restart_hash(dataclasses.replace(cluster, pod_settings=pods), image)


def pull_hash(cluster: DeclaredCluster) -> str:
    """Hash of the declared image pull settings; empty if there are none.

    A pod with an image needs no new pod for other settings. Pods are not compared: admission may add the pull
    secrets of service accounts or change the pull policy.
    """
    pods = cluster.pod_settings
    policy = "" if pods.image_pull_policy == DEFAULT_PULL_POLICY else pods.image_pull_policy
    secrets = sorted(secret.name for secret in pods.image_pull_secrets)
    if not policy and not secrets:
        return ""
    return hashlib.sha256(msgspec.json.encode([policy, secrets])).hexdigest()[:16]


def template_hashes(cluster: DeclaredCluster, image: str) -> Mapping[str, str]:
    """Annotations that record the declaration of a pod."""
    pulled = pull_hash(cluster)
    return {
        RESTART_HASH: restart_hash(cluster, image),
        RESIZABLE_HASH: resizable_hash(cluster, image),
        **({PULL_HASH: pulled} if pulled else {}),
    }
