"""The programs of the cluster, built from Go modules and cached by what they are built from.

The directory that `ensure` returns serves envtest as well (`KUBEBUILDER_ASSETS`): it has etcd, kube-apiserver and
kubectl, which need neither root nor Linux.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from devcluster import layout, lock
from devcluster.errors import CommandFailed, Unsupported
from devcluster.progress import Progress, Step

MODULE = Path(__file__).parents[2] / "binaries"

# One binary that is all of Kubernetes (its name chooses), and small ones of their own.
KUBERNETES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
OWN = ("coredns", "toolbox", "volumes")
PROGRAMS = (*KUBERNETES, *OWN)

COLD_BUILD = "about 5 minutes on 2 cores, once"


def _go() -> str:
    """The Go version. Raises Unsupported if there is no Go, or one that is too old."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if wanted is None:
        raise CommandFailed(f"{MODULE / 'go.mod'} names no Go version")
    try:
        version = _output("go", "env", "GOVERSION")
    except FileNotFoundError:
        raise Unsupported(f"Go {wanted[1]}.{wanted[2]} or newer is needed to build Kubernetes: go.dev/dl") from None
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < (int(wanted[1]), int(wanted[2])):
        raise Unsupported(f"Go {wanted[1]}.{wanted[2]} or newer is needed to build Kubernetes; this is {version}")
    return version


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def kubernetes_version() -> str:
    """The version of Kubernetes that is built, as in `v1.36.3`."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CommandFailed(f"{MODULE / 'go.mod'} does not require k8s.io/kubernetes")
    return found[1]


def key() -> str:
    """A digest of all that decides what the binaries are: our Go sources, the modules and the Go version."""
    digest = hashlib.sha256(_go().encode())
    sources = sorted([MODULE / "go.mod", MODULE / "go.sum", *MODULE.rglob("*.go")])
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.relative_to(MODULE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def ensure(progress: Progress | None = None) -> Path:
    """The directory with every program of `PROGRAMS`, built first if need be. Works on any system that has Go.

    Raises Unsupported without a Go that can build them, CommandFailed with the compiler's words.
    """
    progress = progress or Progress()
    place = layout.cache() / "binaries"
    directory = place / key()
    ready = directory / "bin"
    if ready.is_dir():
        return ready

    def waiting() -> None:
        progress.note("Another process builds the binaries; waiting for it.")

    with lock.exclusive(place / ".lock", waiting):
        if not ready.is_dir():
            unfinished = place / f"{directory.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _build(unfinished / "bin", progress)
            unfinished.rename(directory)
    return ready


def _build(directory: Path, progress: Progress) -> None:
    directory.mkdir(parents=True)
    version = kubernetes_version()
    with progress.step("Fetch the Go modules (1 minute at most)"):
        packages = _output("go", "list", "-deps", "./...").splitlines()
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    command = ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{directory}/", "./..."]
    with progress.step(f"Build Kubernetes {version} ({COLD_BUILD})", total=len(packages)) as step:
        _compile(command, step)
    for name in KUBERNETES:
        (directory / name).symlink_to("kubernetes")


def _compile(command: list[str], step: Step) -> None:
    """Run `go build -v`, which writes a line to standard error for each package, and for each error."""
    environment = {**os.environ, "CGO_ENABLED": "0"}
    words: list[str] = []
    with subprocess.Popen(command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True) as go:
        for line in go.stderr or ():
            words.append(line)
            step.advance()
    if go.returncode != 0:
        raise CommandFailed(f"go build failed:\n{''.join(words[-30:])}")
