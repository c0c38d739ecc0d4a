"""PgBouncer in front of a cluster: for each role a Deployment, its Service and its configuration.

The pods run the cluster's image, and bear no label of its members: whatever bears one is a member to Patroni.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET

from steersman.api.apply import apps, core, meta, networking, policy
from steersman.meta import ObjectKey
from steersman_databases.api.cluster_parts import POOLER_VALUES, Pooler
from steersman_databases.clusters.keyring import pooler_certificate, pooler_services
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.postgresql import pgbouncer
from steersman_databases.resources.names import MANAGED_BY
from steersman_databases.resources.placement import apart, applied, beside, placed, spread

PooledRole = Literal["rw", "ro"]
POOLER_LABEL = "databases.steersman.dev/pooler"
"""On poolers' pods: the role that they lead to."""
_UID = 10001
_CONFIGURATION_HASH = "databases.steersman.dev/configuration-hash"
_CONSOLE = f"psql -h {pgbouncer.RUN} -p {pgbouncer.PORT} -U postgres -AtX -d {pgbouncer.CONSOLE} -c"
# Whether it answers, paused or not. By the way: who paused it may have gone away for ever, so when everybody has
# waited for as long as they do, it goes on.
_LIVES = """told=$({console} 'SHOW STATE') || exit 1
case $told in *'paused|yes'*) ;; *) rm -f {mark}; exit 0 ;; esac
[ -e {mark} ] || touch {mark}
[ -e "$(find {mark} ! -newermt '{waits} seconds ago')" ] && {console} RESUME && rm -f {mark}
exit 0
"""


def pooler_key(cluster: ClusterView, role: PooledRole) -> ObjectKey:
    """Deployment, Service and ConfigMap of one role."""
    return ObjectKey(cluster.key.namespace, pooler_services(cluster)[0 if role == "rw" else 1])


def pooler_policy_key(cluster: ClusterView) -> ObjectKey:
    """The NetworkPolicy of both roles."""
    return ObjectKey(cluster.key.namespace, f"{cluster.key.name}-pooler")


def pooler_labels(cluster: ClusterView, role: PooledRole) -> dict[str, str]:
    """What all objects of one pooler bear."""
    return {**_shared_labels(cluster), POOLER_LABEL: role}


def _shared_labels(cluster: ClusterView) -> dict[str, str]:
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "pgbouncer",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "pooler",
    }


def pooler_configuration(cluster: ClusterView, pooler: Pooler, role: PooledRole) -> core.ConfigMap:
    """What PgBouncer reads."""
    return core.ConfigMap(metadata=_metadata(cluster, role), data=_files(cluster, pooler, role))


def pooler_service(cluster: ClusterView, role: PooledRole) -> core.Service:
    """Where clients connect."""
    port = core.ServicePort(name="sql", port=pgbouncer.PORT, target_port="sql", protocol="TCP")
    return core.Service(
        metadata=_metadata(cluster, role),
        spec=core.ServiceSpec(type="ClusterIP", selector=pooler_labels(cluster, role), ports=[port]),
    )


def pooler_budget(cluster: ClusterView, role: PooledRole) -> policy.PodDisruptionBudget:
    """One at a time is drained; one that is not ready anyway may always be."""
    return policy.PodDisruptionBudget(
        metadata=_metadata(cluster, role),
        spec=policy.PodDisruptionBudgetSpec(
            max_unavailable=1,
            selector=meta.LabelSelector(match_labels=pooler_labels(cluster, role)),
            unhealthy_pod_eviction_policy="AlwaysAllow",
        ),
    )


def pooler_policy(cluster: ClusterView) -> networking.NetworkPolicy:
    """Everybody reaches the one port that poolers have, as that of servers for SQL: clients, and the operator.

    Kubelets reach the pods of their node whatever a policy says.
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


def pooler_deployment(cluster: ClusterView, pooler: Pooler, role: PooledRole, *, image: str) -> apps.Deployment:
    """The pods. Another configuration is another template: they are replaced one by one."""
    labels = pooler_labels(cluster, role)
    text = repr(sorted(_files(cluster, pooler, role).items()))
    annotations = {_CONFIGURATION_HASH: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return apps.Deployment(
        metadata=_metadata(cluster, role),
        spec=apps.DeploymentSpec(
            replicas=pooler.replicas,
            # What Kubernetes would say unasked: so that nobody else says that all are to go at once.
            strategy=apps.DeploymentStrategy(
                type="RollingUpdate",
                rolling_update=apps.RollingUpdateDeployment(max_surge="25%", max_unavailable="25%"),
            ),
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(labels=labels, annotations=annotations),
                spec=_pod(cluster, pooler, role, image),
            ),
        ),
    )


def _files(cluster: ClusterView, pooler: Pooler, role: PooledRole) -> dict[str, str]:
    service = cluster.names.service(role)
    return pgbouncer.files(
        pgbouncer.Pooling(
            host=f"{service.name}.{service.namespace}.svc.{cluster.cluster_domain}",
            mode=pooler.mode,
            parameters=_taken(pooler),
            tls_required=cluster.tls_required,
        )
    )


def _taken(pooler: Pooler) -> Mapping[str, str]:
    """What may be given to PgBouncer: an object that was stored under former rules may hold more."""
    return {
        name: value
        for name, value in pooler.parameters.items()
        if any(name in names and re.fullmatch(pattern, value) for names, pattern, _ in POOLER_VALUES)
    }


def _pod(cluster: ClusterView, pooler: Pooler, role: PooledRole, image: str) -> core.PodSpec:
    pods, selector = cluster.pods, meta.LabelSelector(match_labels=pooler_labels(cluster, role))
    pod = core.PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        # A pooler that ends takes nobody new and waits for its clients.
        termination_grace_period_seconds=60,
        # One with a selector of its own is about other pods than these.
        topology_spread_constraints=spread(
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
    return placed(pods, pod, beside(pods, apart=apart(selector)))


def _secret(name: str, key: ObjectKey) -> core.Volume:
    return core.Volume(name=name, secret=core.SecretVolumeSource(secret_name=key.name, default_mode=0o440))


def _container(cluster: ClusterView, pooler: Pooler, image: str) -> core.Container:
    waits = int(_taken(pooler).get("query_wait_timeout", pgbouncer.WAIT_SECONDS))
    # Clients that wait without limit have said what they want.
    lives = _LIVES.format(console=_CONSOLE, mark=f"{pgbouncer.RUN}/paused", waits=waits or 10**9)
    return core.Container(
        name="pgbouncer",
        image=image,
        image_pull_policy=cluster.pods.image_pull_policy,
        command=[pgbouncer.PROGRAM, f"{pgbouncer.CONFIGURATION}/pgbouncer.ini"],
        ports=[core.ContainerPort(name="sql", container_port=pgbouncer.PORT, protocol="TCP")],
        liveness_probe=core.Probe(
            exec=core.ExecAction(command=["sh", "-c", lives]),
            period_seconds=10,
            timeout_seconds=10,
            failure_threshold=3,
        ),
        readiness_probe=core.Probe(
            tcp_socket=core.TCPSocketAction(port="sql"), period_seconds=2, timeout_seconds=5, failure_threshold=3
        ),
        # Endpoints are taken out everywhere before it refuses anybody.
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


def _resources(pooler: Pooler) -> core.ResourceRequirements:
    declared = pooler.resources
    if declared is None:
        return core.ResourceRequirements(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "128Mi"})
    return applied(declared, core.ResourceRequirements)


def _metadata(cluster: ClusterView, role: PooledRole) -> meta.ObjectMeta:
    key = pooler_key(cluster, role)
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=pooler_labels(cluster, role))
