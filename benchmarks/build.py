"""Build the operators of the peers and cache them by their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.peers import Peer, Toolchain, interpreter
from devcluster import layout, lock
from devcluster.errors import CommandFailed, Unsupported
from devcluster.progress import Progress

_HERE = Path(__file__).parent


def ensure(peers: Iterable[Peer], progress: Progress) -> dict[Toolchain, Path]:
    """Return the program or Python interpreter of each toolchain.

    Missing toolchains are reported, and their peers are skipped.
    """
    built: dict[Toolchain, Path] = {}
    required: dict[Toolchain, None] = {peer.toolchain: None for peer in peers}
    for toolchain in required:
        try:
            built[toolchain] = _BUILDERS[toolchain](progress)
        except Unsupported as missing:
            progress.note(f"skipped: {missing}")
    return built


def _controller_runtime(progress: Progress) -> Path:
    module = _HERE / "controller_runtime"
    sources = [module / "go.mod", module / "go.sum", *module.rglob("*.go")]

    def build(directory: Path) -> None:
        command = ["go", "build", "-trimpath", "-o", str(directory / "operator"), "."]
        with progress.step("Build the operator on controller-runtime (2 minutes, once)"):
            _run(command, module, CGO_ENABLED="0")

    version = _version("go", "env", "GOVERSION")
    return cached("benchmark-controller-runtime", sources, version, build, progress) / "operator"


def _kube_rs(progress: Progress) -> Path:
    crate = _HERE / "kube_rs"
    sources = [crate / "Cargo.toml", *crate.rglob("*.rs")]

    def build(directory: Path) -> None:
        # Cargo writes its lock file next to the manifest; a copy keeps the source tree clean.
        copy = directory / "crate"
        shutil.copytree(crate, copy, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        with progress.step("Build the operator on kube-rs (5 minutes, once)"):
            _run(["cargo", "build", "--quiet", "--release"], copy, CARGO_TARGET_DIR=str(directory / "target"))
        (directory / "target" / "release" / "kube-rs-benchmark").rename(directory / "operator")
        shutil.rmtree(directory / "target")

    version = _version("cargo", "--version")
    return cached("benchmark-kube-rs", sources, version, build, progress) / "operator"


def _kopf(progress: Progress) -> Path:
    requirements = _HERE / "kopf_operator" / "requirements.txt"

    def build(directory: Path) -> None:
        with progress.step("Install Kopf into a virtual environment of its own (1 minute)"):
            environment = directory / "venv"
            _run([sys.executable, "-m", "venv", str(environment)], _HERE)
            pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
            _run([*pip, "--require-hashes", "-r", str(requirements)], _HERE)

    return cached("benchmark-kopf", [requirements], sys.version, build, progress) / "venv" / "bin" / "python"


def _steersman(progress: Progress) -> Path:
    # pip compiles installed packages, but not editable ones. Compile here to measure imports fairly.
    _run([str(interpreter()), "-m", "compileall", "-q", str(_HERE.parent / "src"), str(_HERE)], _HERE)
    return interpreter()


_BUILDERS: dict[Toolchain, Callable[[Progress], Path]] = {
    "go": _controller_runtime,
    "cargo": _kube_rs,
    "kopf": _kopf,
    "python": _steersman,
}


def cached(
    name: str, sources: Iterable[Path], version: str, build: Callable[[Path], None], progress: Progress
) -> Path:
    """Return the cached build directory of these sources and toolchain version."""
    cache_directory = layout.cache_directory() / name
    directory = cache_directory / _key(sources, version)
    with lock.exclusive(
        cache_directory / ".lock", lambda: progress.note(f"Another process builds {name}; waiting for it.")
    ):
        complete = directory / ".complete"
        if not complete.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            build(directory)
            complete.touch()
    return directory


def _key(sources: Iterable[Path], version: str) -> str:
    digest = hashlib.sha256(version.encode())
    for source in sorted(sources):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _version(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except FileNotFoundError:
        raise Unsupported(f"{command[0]} is not installed. Install it to measure its peers") from None


def _run(command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}:\n{done.stderr[-3000:]}")
