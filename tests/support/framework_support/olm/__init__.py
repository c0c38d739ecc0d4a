"""Operator Lifecycle Manager as local processes, with a one-bundle catalog."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from devcluster.go_module import GoModule
from devcluster.progress import Progress
from devcluster.target import Target
from steersman_testing.envtest.ports import reserve_port

_MODULE = GoModule(Path(__file__).parent / "go", "the Operator Lifecycle Manager", "lifecycle")
_OLM = "github.com/operator-framework/operator-lifecycle-manager"
_OPM = "github.com/operator-framework/operator-registry/cmd/opm"
# Signatures are verified in Go instead of a C library.
_TAGS = "-tags=json1,containers_image_openpgp"
_CHANNEL = """\
---
schema: olm.channel
package: {package}
name: {channel}
entries: [{{name: {version}}}]
"""


def programs() -> Path:
    """Return the directory of the OLM programs. The first build takes 5 minutes."""
    return _MODULE.ensure(_build, Progress())


def definitions() -> Path:
    """Directory of the CRDs of OLM."""
    # Go's module cache may have been cleared since the build.
    downloaded = json.loads(_MODULE.output("go", "mod", "download", "-json", _OLM))
    return Path(downloaded["Dir"]) / "deploy/chart/crds"


def catalog(bundle: Path, directory: Path, *, package: str, channel: str, version: str) -> None:
    """Write a catalog with ``version`` as the package's only bundle."""
    directory.mkdir()
    head = _opm("init", package, "--default-channel", channel, "--output", "yaml")
    # Without an image the catalog contains the manifests.
    content = _opm("render", bundle.name, "--output", "yaml", within=bundle.parent)
    channels = _CHANNEL.format(package=package, channel=channel, version=version)
    (directory / "catalog.yaml").write_text(f"{head}{content}{channels}")
    _opm("validate", str(directory))


@contextmanager
def running(cluster: Target, catalog: Path, logs: Path, namespace: str) -> Generator[str]:
    """Run OLM for ``cluster`` and yield the address of the catalog server.

    Args:
        cluster: cluster that OLM manages.
        catalog: directory of the catalog.
        logs: directory for the logs of the processes.
        namespace: namespace of global catalogs.
    """
    with reserve_port() as reserved:
        port: int = reserved.getsockname()[1]
    commands = (
        ("opm", "serve", str(catalog), "--port", str(port), "--pprof-addr", ""),
        ("catalog", "--namespace", namespace),
        ("olm",),
    )
    with ExitStack() as stack:
        for program, *arguments in commands:
            log = stack.enter_context((logs / f"{program}.log").open("wb"))
            stack.enter_context(_process([str(programs() / program), *arguments], cluster, log))
        yield f"127.0.0.1:{port}"


@contextmanager
def _process(command: list[str], cluster: Target, log: IO[bytes]) -> Generator[None]:
    environment = dict(os.environ)
    if cluster.kubeconfig is not None:
        environment["KUBECONFIG"] = str(cluster.kubeconfig)
    with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            yield
            assert process.poll() is None, f"{command[0]} ended: see {log.name}"
        finally:
            process.terminate()


def _opm(*arguments: str, within: Path | None = None) -> str:
    command = [programs() / "opm", *arguments]
    done = subprocess.run(command, cwd=within, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _build(directory: Path, progress: Progress) -> None:
    packages = (f"{_OLM}/cmd/olm", f"{_OLM}/cmd/catalog", _OPM)
    with progress.step("Build OLM (5 minutes, once)", total=_MODULE.count_packages(_TAGS, *packages)) as step:
        _MODULE.compile(directory, "-s -w", (_TAGS, *packages), step)
