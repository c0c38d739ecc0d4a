"""metrics-server, so that `kubectl top` and HorizontalPodAutoscalers work.

Its build takes minutes and few clusters need it, so `ensure` adds it on request.
"""

from pathlib import Path

import yaml

from devcluster import images, oci
from devcluster.go_module import GoModule
from devcluster.kubectl import kubectl
from devcluster.progress import Progress

MODULE = GoModule(Path(__file__).parents[2] / "metrics", "metrics-server", "metrics")
SERVER_MODULE = "sigs.k8s.io/metrics-server"
NAME = "metrics-server"
LABELS = {"k8s-app": NAME}

COLD_BUILD = "about 2 minutes on 2 cores, once"


def ensure(binaries: Path, architecture: str, progress: Progress) -> None:
    """Install metrics-server and wait for its first metrics.

    `architecture` is Go's name of the machine's. Raises Unsupported without a Go that can build it, NotRunning
    without a cluster, CommandFailed with the output of the compiler or the API server.
    """
    built = MODULE.ensure(_build, progress)
    archive = built.parent / "image.oci.tar"
    image = f"steersman.dev/{NAME}:{MODULE.version(SERVER_MODULE)}"
    if not archive.exists():
        unfinished = archive.with_suffix(".unfinished")
        oci.write(unfinished, {image: (built / NAME, [])}, architecture)
        unfinished.rename(archive)
    images.load_archive(archive)
    with progress.step("Start metrics-server (30 s)"):
        kubectl(binaries, ["apply", "--server-side", "--filename=-"], stdin=_manifests(image))
        for wait in (
            ["rollout", "status", f"deployment/{NAME}", "--namespace=kube-system", "--timeout=90s"],
            ["wait", "apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", "--timeout=30s"],
        ):
            kubectl(binaries, wait, seconds=100)


def _build(directory: Path, progress: Progress) -> None:
    version = MODULE.version(SERVER_MODULE)
    package = f"{SERVER_MODULE}/cmd/{NAME}"
    with progress.step("Fetch the Go modules (1 minute at most)"):
        total = MODULE.count_packages(package)
    flags = f"-s -w -X {SERVER_MODULE}/pkg/version.gitVersion={version}"
    with progress.step(f"Build {NAME} {version} ({COLD_BUILD})", total=total) as step:
        MODULE.compile(directory, flags, (package,), step)


def _metadata(name: str, namespace: str | None = "kube-system") -> dict[str, object]:
    metadata: dict[str, object] = {"name": name, "labels": LABELS}
    return metadata if namespace is None else {**metadata, "namespace": namespace}


def _container(image: str) -> dict[str, object]:
    """Return the container, which reaches kubelets by node address."""
    return {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "Never",
        "args": [
            "--cert-dir=/certificates",
            "--secure-port=10250",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            "--kubelet-request-timeout=5s",
            "--metric-resolution=10s",
        ],
        "ports": [{"name": "https", "containerPort": 10250}],
        "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"memory": "200Mi"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 2},
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "https", "scheme": "HTTPS"},
            "initialDelaySeconds": 30,
        },
        "securityContext": {
            "runAsUser": 1000,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
    }


def _rbac() -> list[dict[str, object]]:
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"}]

    def role(name: str, rules: list[dict[str, list[str]]], labels: dict[str, str]) -> dict[str, object]:
        metadata = {"name": name, "labels": LABELS | labels}
        return {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}

    def binding(name: str, kind: str, role: str) -> dict[str, object]:
        namespace = "kube-system" if kind == "Role" else None
        return {
            "apiVersion": f"{group}/v1",
            "kind": f"{'Cluster' if namespace is None else ''}RoleBinding",
            "metadata": _metadata(name, namespace),
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": subjects,
        }

    read_verbs = ["get", "list", "watch"]
    return [
        role(
            "system:metrics-server",
            [
                {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": read_verbs},
            ],
            {},
        ),
        role(
            "system:aggregated-metrics-reader",
            [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": read_verbs}],
            {f"{group}/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")},
        ),
        binding("system:metrics-server", "ClusterRole", "system:metrics-server"),
        binding("metrics-server:system:auth-delegator", "ClusterRole", "system:auth-delegator"),
        binding("metrics-server-auth-reader", "Role", "extension-apiserver-authentication-reader"),
    ]


def _manifests(image: str) -> str:
    """Return metrics-server's manifests with our image and CA."""
    pod: dict[str, object] = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "containers": [_container(image)],
        "volumes": [{"name": "certificates", "emptyDir": {}}],
    }
    objects: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(NAME)},
        *_rbac(),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(NAME),
            "spec": {"selector": LABELS, "ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(NAME),
            "spec": {
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": pod},
            },
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": _metadata("v1beta1.metrics.k8s.io", None),
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": NAME, "namespace": "kube-system"},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
    return yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False)
