"""Programs of the cluster, built from Go modules and cached by digest.

The directory that `ensure` returns serves envtest as well (`KUBEBUILDER_ASSETS`): it has etcd, kube-apiserver and
kubectl, which need neither root nor Linux.
"""

from pathlib import Path

from devcluster.go_module import GoModule
from devcluster.progress import Progress

MODULE = GoModule(Path(__file__).parents[2] / "binaries", "Kubernetes", "binaries")

# One binary contains all Kubernetes components and dispatches on its name; the others are small programs.
KUBERNETES_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
HELPER_PROGRAMS = ("coredns", "toolbox", "volumes")
PROGRAMS = (*KUBERNETES_PROGRAMS, *HELPER_PROGRAMS)

COLD_BUILD = "about 5 minutes on 2 cores, once"


def kubernetes_version() -> str:
    """The version of Kubernetes that is built, as in `v1.36.3`."""
    return MODULE.version("k8s.io/kubernetes")


def key() -> str:
    """Return a digest of everything that determines the binaries."""
    return MODULE.key()


def ensure(progress: Progress | None = None) -> Path:
    """Build the programs if necessary and return their directory.

    Raises Unsupported without a Go that can build them, CommandFailed with the compiler's output.
    """
    return MODULE.ensure(_build, progress or Progress())


def _build(directory: Path, progress: Progress) -> None:
    version = kubernetes_version()
    with progress.step("Fetch the Go modules (1 minute at most)"):
        total = MODULE.count_packages("./...")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    with progress.step(f"Build Kubernetes {version} ({COLD_BUILD})", total=total) as step:
        MODULE.compile(directory, flags, ("./...",), step)
    for name in KUBERNETES_PROGRAMS:
        (directory / name).symlink_to("kubernetes")
