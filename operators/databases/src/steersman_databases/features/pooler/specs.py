"""PgBouncer in front of a cluster: Deployment, Service and configuration per role.

The pods use the cluster's image. They have no label of its members, because Patroni treats each pod with such a
label as a member.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import apps, core, meta, networking, policy
from steersman.api.apps_v1 import Deployment
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api.cluster_common import POOLER_VALUES, PoolerSettings
from steersman_databases.cluster.rules.pod_hashes import auxiliary_hash
from steersman_databases.core.content_hash import content_hash
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.certificates.model import pooler_certificate, pooler_services
from steersman_databases.features.pooler import pgbouncer
from steersman_databases.specs.scheduling import (
    anti_affinity,
    auxiliary_affinity,
    to_apply,
    topology_spread,
    with_scheduling,
)

PoolerRole = Literal["rw", "ro"]
POOLER_LABEL = "databases.steersman.dev/pooler"
"""Label of poolers' pods: the role that they lead to."""
_UID = 10001
_CONFIGURATION_HASH = "databases.steersman.dev/configuration-hash"
DECLARED_HASH = "databases.steersman.dev/declared-hash"
"""On Deployments: hash of the declared fields and of the image."""
TEMPLATE_HASH = "databases.steersman.dev/template-hash"
"""On Deployments: hash of the whole pod template as it was applied."""
_ADMIN_CONSOLE_COMMAND = (
    f"psql -h {pgbouncer.RUN} -p {pgbouncer.PORT} -U postgres -AtX -d {pgbouncer.ADMIN_DATABASE} -c"
)
# Checks that PgBouncer responds, paused or not. It also resumes a pause that outlasts the clients' maximal wait,
# because the operator that paused it may have stopped.
_LIVENESS_SCRIPT = """state=$({console} 'SHOW STATE') || exit 1
case $state in *'paused|yes'*) ;; *) rm -f {mark}; exit 0 ;; esac
[ -e {mark} ] || touch {mark}
[ -e "$(find {mark} ! -newermt '{waits} seconds ago')" ] && {console} RESUME && rm -f {mark}
exit 0
"""


def pooler_key(cluster: DeclaredCluster, role: PoolerRole) -> ObjectKey:
    """Return the name of a role's Deployment, Service and ConfigMap."""
    return ObjectKey(cluster.key.namespace, pooler_services(cluster)[0 if role == "rw" else 1])


def pooler_policy_key(cluster: DeclaredCluster) -> ObjectKey:
    """Return the name of the NetworkPolicy of both roles."""
    return ObjectKey(cluster.key.namespace, f"{cluster.key.name}-pooler")


def pooler_labels(cluster: DeclaredCluster, role: PoolerRole) -> dict[str, str]:
    """Return the labels of all objects of one pooler."""
    return {**_shared_labels(cluster), POOLER_LABEL: role}


def _shared_labels(cluster: DeclaredCluster) -> dict[str, str]:
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "pgbouncer",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "pooler",
    }


def pooler_configuration(cluster: DeclaredCluster, pooler: PoolerSettings, role: PoolerRole) -> core.ConfigMap:
    """Return PgBouncer's files."""
    return core.ConfigMap(metadata=_metadata(cluster, role), data=_files(cluster, pooler, role))


def pooler_service(cluster: DeclaredCluster, role: PoolerRole) -> core.Service:
    """Return the Service for clients."""
    port = core.ServicePort(name="sql", port=pgbouncer.PORT, target_port="sql", protocol="TCP")
    return core.Service(
        metadata=_metadata(cluster, role),
        spec=core.ServiceSpec(type="ClusterIP", selector=pooler_labels(cluster, role), ports=[port]),
    )


def pooler_budget(cluster: DeclaredCluster, role: PoolerRole) -> policy.PodDisruptionBudget:
    """Return the budget: one pod at a time may be evicted.

    A pod that is not ready may always be evicted.
    """
    return policy.PodDisruptionBudget(
        metadata=_metadata(cluster, role),
        spec=policy.PodDisruptionBudgetSpec(
            max_unavailable=1,
            selector=meta.LabelSelector(match_labels=pooler_labels(cluster, role)),
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )


def pooler_policy(cluster: DeclaredCluster) -> networking.NetworkPolicy:
    """Return the policy that opens the poolers' only port to all.

    Clients and the operator use it, as the SQL port of servers. Kubelets always reach the pods of their node.
    """
    key, labels = pooler_policy_key(cluster), _shared_labels(cluster)
    port = networking.NetworkPolicyPort(port=pgbouncer.PORT, protocol="TCP")
    return networking.NetworkPolicy(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        spec=networking.NetworkPolicySpec(
            pod_selector=meta.LabelSelector(match_labels=labels),
            policy_types=["Ingress"],
            ingress=[networking.NetworkPolicyIngressRule(ports=[port])],
        ),
    )


def pooler_deployment(
    cluster: DeclaredCluster, pooler: PoolerSettings, role: PoolerRole, *, image: str
) -> apps.Deployment:
    """Return the Deployment.

    A changed configuration changes the pod template, so pods are replaced one by one.
    """
    labels = pooler_labels(cluster, role)
    text = repr(sorted(_files(cluster, pooler, role).items()))
    annotations = {_CONFIGURATION_HASH: hashlib.sha256(text.encode()).hexdigest()[:16]}
    template = core.PodTemplateSpec(
        metadata=meta.TemplateMeta(labels=labels, annotations=annotations),
        spec=_pod(cluster, pooler, role, image),
    )
    declared = [to_builtins(pooler), auxiliary_hash(cluster, image), cluster.tls_required]
    hashes = {DECLARED_HASH: content_hash(declared), TEMPLATE_HASH: content_hash(to_builtins(template))}
    return apps.Deployment(
        metadata=replace(_metadata(cluster, role), annotations=hashes),
        spec=apps.DeploymentSpec(
            replicas=pooler.replicas,
            # The default of Kubernetes, explicit so that no other client can replace all pods at once.
            strategy=apps.DeploymentStrategy(
                type="RollingUpdate",
                rolling_update=apps.RollingUpdateDeployment(max_surge="25%", max_unavailable="25%"),
            ),
            selector=meta.LabelSelector(match_labels=labels),
            template=template,
        ),
    )


def is_unrequested(present: Deployment, desired: apps.Deployment) -> bool:
    """Return True if ``desired`` replaces pods without a request."""
    assert not isinstance(desired.metadata, UnsetType) and not isinstance(desired.metadata.annotations, UnsetType)
    hashes, recorded = desired.metadata.annotations, present.metadata.annotations
    return hashes[DECLARED_HASH] == recorded.get(DECLARED_HASH) and hashes[TEMPLATE_HASH] != recorded.get(
        TEMPLATE_HASH
    )


def _files(cluster: DeclaredCluster, pooler: PoolerSettings, role: PoolerRole) -> dict[str, str]:
    service = cluster.names.service(role)
    return pgbouncer.files(
        pgbouncer.PgBouncerSettings(
            host=f"{service.name}.{service.namespace}.svc.{cluster.cluster_domain}",
            mode=pooler.mode,
            parameters=_accepted_parameters(pooler),
            tls_required=cluster.tls_required,
        )
    )


def _accepted_parameters(pooler: PoolerSettings) -> Mapping[str, str]:
    """Return the valid parameters.

    An object that was stored under previous rules may have others.
    """
    return {
        name: value
        for name, value in pooler.parameters.items()
        if any(name in names and re.fullmatch(pattern, value) for names, pattern, _ in POOLER_VALUES)
    }


def _pod(cluster: DeclaredCluster, pooler: PoolerSettings, role: PoolerRole, image: str) -> core.PodSpec:
    pods, selector = cluster.pod_settings, meta.LabelSelector(match_labels=pooler_labels(cluster, role))
    pod = core.PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        # A stopping pooler accepts no new clients and waits for the others.
        termination_grace_period_seconds=60,
        # A constraint with its own selector concerns other pods.
        topology_spread_constraints=topology_spread(
            [c for c in pods.topology_spread_constraints if not c.label_selector], selector
        )
        or UNSET,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=_UID,
            run_as_group=_UID,
            fs_group=_UID,
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=[_container(cluster, pooler, image)],
        volumes=[
            core.Volume(
                name="configuration",
                config_map=core.ConfigMapVolumeSource(name=pooler_key(cluster, role).name),
            ),
            _secret("tls", cluster.names.server_certificate),
            _secret("login", pooler_certificate(cluster)),
            core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(size_limit="16Mi")),
        ],
    )
    return with_scheduling(pods, pod, auxiliary_affinity(pods, pod_anti_affinity=anti_affinity(selector)))


def _secret(name: str, key: ObjectKey) -> core.Volume:
    return core.Volume(name=name, secret=core.SecretVolumeSource(secret_name=key.name, default_mode=0o440))


def _container(cluster: DeclaredCluster, pooler: PoolerSettings, image: str) -> core.Container:
    readiness = int(_accepted_parameters(pooler).get("query_wait_timeout", pgbouncer.WAIT_SECONDS))
    # The user has chosen an unlimited wait.
    liveness = _LIVENESS_SCRIPT.format(
        console=_ADMIN_CONSOLE_COMMAND, mark=f"{pgbouncer.RUN}/paused", waits=readiness or 10**9
    )
    return core.Container(
        name="pgbouncer",
        image=image,
        image_pull_policy=cluster.pod_settings.image_pull_policy,
        command=[pgbouncer.PROGRAM, f"{pgbouncer.CONFIGURATION}/pgbouncer.ini"],
        ports=[core.ContainerPort(name="sql", container_port=pgbouncer.PORT, protocol="TCP")],
        liveness_probe=core.Probe(
            exec=core.ExecAction(command=["sh", "-c", liveness]),
            period_seconds=10,
            timeout_seconds=10,
            failure_threshold=3,
        ),
        readiness_probe=core.Probe(
            tcp_socket=core.TCPSocketAction(port="sql"), period_seconds=2, timeout_seconds=5, failure_threshold=3
        ),
        # All nodes remove the endpoint before PgBouncer refuses clients.
        lifecycle=core.Lifecycle(pre_stop=core.LifecycleHandler(exec=core.ExecAction(command=["sleep", "5"]))),
        resources=_resources(pooler),
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
        volume_mounts=[
            core.VolumeMount(name="configuration", mount_path=pgbouncer.CONFIGURATION, read_only=True),
            core.VolumeMount(name="tls", mount_path=pgbouncer.TLS, read_only=True),
            core.VolumeMount(name="login", mount_path=pgbouncer.LOGIN, read_only=True),
            core.VolumeMount(name="run", mount_path=pgbouncer.RUN),
        ],
    )


def _resources(pooler: PoolerSettings) -> core.ResourceRequirements:
    declared = pooler.resources
    if declared is None:
        return core.ResourceRequirements(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "128Mi"})
    return to_apply(declared, core.ResourceRequirements)


def _metadata(cluster: DeclaredCluster, role: PoolerRole) -> meta.ObjectMeta:
    key = pooler_key(cluster, role)
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=pooler_labels(cluster, role))
