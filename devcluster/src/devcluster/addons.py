"""Initial objects of the cluster: Nodes, roles, DNS and the StorageClass."""

from collections.abc import Mapping, Sequence

import yaml

from devcluster import certificates, layout, oci
from devcluster.layout import NodeLayout

Manifest = Mapping[str, object]

PROVISIONER_NAME = "devcluster.steersman.dev/directory"
DNS_LABELS = {"k8s-app": "kube-dns"}

# Names outside the cluster get NXDOMAIN at once: after a server failure resolvers would retry for seconds.
COREFILE = f"""\
{layout.CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health
    ready
    loadbalance
    kubernetes {{
        pods insecure
        ttl 5
    }}
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _node(node: NodeLayout) -> Manifest:
    """Return the Node object; only an administrator may set its pod CIDR."""
    labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"podCIDR": str(node.pod_cidr), "podCIDRs": [str(node.pod_cidr)]},
    }


def _cluster_role(name: str, rules: list[tuple[list[str], list[str], list[str]]]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": groups, "resources": resources, "verbs": verbs} for groups, resources, verbs in rules
        ],
    }


def _binding(name: str, role: str, subject: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def _user(name: str) -> Mapping[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def _roles() -> list[Manifest]:
    read, write = ["get", "list", "watch"], ["get", "list", "watch", "create", "update", "patch", "delete"]
    administrators = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Group",
        "name": certificates.ADMINISTRATORS_GROUP,
    }
    return [
        _binding("steersman:administrators", "cluster-admin", administrators),
        _binding("steersman:kube-apiserver", "system:kubelet-api-admin", _user("steersman:kube-apiserver")),
        _cluster_role(
            certificates.VOLUMES_USER,
            [
                ([""], ["persistentvolumes"], write),
                ([""], ["persistentvolumeclaims"], read),
                ([""], ["persistentvolumeclaims/status"], ["update"]),
                ([""], ["nodes"], read),
                ([""], ["events"], ["create", "update", "patch"]),
                (["storage.k8s.io"], ["storageclasses"], read),
            ],
        ),
        _binding(certificates.VOLUMES_USER, certificates.VOLUMES_USER, _user(certificates.VOLUMES_USER)),
        _cluster_role(
            "system:coredns",
            [
                ([""], ["services", "pods", "namespaces"], ["list", "watch"]),
                (["discovery.k8s.io"], ["endpointslices"], ["list", "watch"]),
            ],
        ),
        _binding(
            "system:coredns",
            "system:coredns",
            {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"},
        ),
    ]


def _storage_classes() -> list[Manifest]:
    common = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "provisioner": PROVISIONER_NAME,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return [
        {**common, "metadata": {"name": "standard", "annotations": default}},
        {
            **common,
            "metadata": {"name": "limited"},
            "parameters": {"limited": "true"},
            "allowVolumeExpansion": True,
        },
    ]


def _dns_container() -> Manifest:
    return {
        "name": "coredns",
        "image": oci.COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"memory": "170Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 30},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns", "readOnly": True}],
    }


def _dns_pod() -> Manifest:
    """Return the DNS pod; each node runs one."""
    anti_affinity_term = {"labelSelector": {"matchLabels": DNS_LABELS}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti_affinity_term]}},
        "containers": [_dns_container()],
        "volumes": [{"name": "configuration", "configMap": {"name": "coredns"}}],
    }


def _dns(nodes: int) -> list[Manifest]:
    def metadata(name: str) -> Manifest:
        return {"name": name, "namespace": "kube-system", "labels": DNS_LABELS}

    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("coredns")},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("coredns"), "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata("kube-dns"),
            "spec": {
                "clusterIP": str(layout.DNS_SERVICE_IP),
                "selector": DNS_LABELS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata("coredns"),
            "spec": {
                "replicas": nodes,
                "selector": {"matchLabels": DNS_LABELS},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                "template": {"metadata": {"labels": DNS_LABELS}, "spec": _dns_pod()},
            },
        },
    ]


def manifests(nodes: Sequence[NodeLayout]) -> str:
    """Return all objects as one YAML stream for `kubectl apply`."""
    objects = [*(_node(node) for node in nodes), *_roles(), *_storage_classes(), *_dns(len(nodes))]
    return yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False)
