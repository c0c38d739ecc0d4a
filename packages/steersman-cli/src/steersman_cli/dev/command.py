"""``steersman dev``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from steersman_cli.exit_codes import report_errors
from steersman_cli.local_api_server import (
    check_kubeconfig_owner,
    simulated_workloads,
    start_api_server,
    write_kubeconfig,
)
from steersman_cli.local_operator import OperatorProcess, debug_address, source_changes
from steersman_cli.project import Project


def dev(
    context: typer.Context,
    envtest: Annotated[
        bool, typer.Option("--envtest", help="Start etcd and kube-apiserver instead of the in-memory API server.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the in-memory API server; 0 chooses a free port.")
    ] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig to write. Defaults to kubeconfig in the project.")
    ] = None,
    crd: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE|DIRECTORY", help="CRDs of other projects to install. Repeatable."),
    ] = None,
    workloads: Annotated[
        bool, typer.Option(help="Report Deployments, Jobs and other workloads as ready, since no pods run.")
    ] = True,
    reload: Annotated[bool, typer.Option(help="Restart when a file in src/ changes.")] = True,
) -> None:
    """Run the operator and an API server on this machine until Ctrl-C.

    It needs no cluster and no root. It installs the CRDs and webhooks of the project, and calls the webhooks on
    loopback. After a change in src/, it generates the manifests, installs them, and restarts the operator.

    No pods run. Workloads are reported as ready, unless --no-workloads is given.

    Other options are passed to the operator.

    Example: steersman dev

    Example: steersman dev --envtest --log-level debug
    """
    with report_errors(), _exit_on_sigterm():
        from steersman_cli.dev.session import DevSession

        project = Project.from_working_directory()
        path = kubeconfig or project.root / "kubeconfig"
        check_kubeconfig_owner(path)
        changes = source_changes(project) if reload else None
        typer.echo(f"Starting {'etcd and kube-apiserver' if envtest else 'the in-memory API server'}")
        with start_api_server(envtest=envtest, port=port) as environment, ExitStack() as stack:
            write_kubeconfig(path, environment.kubeconfig.read_text())
            if crd:
                environment.install_crds(*crd)
            if workloads:
                stack.enter_context(simulated_workloads(environment))
            session = DevSession(project, environment, path.resolve(), debug_address(), tuple(context.args))
            code = OperatorProcess(project, session.prepare).run_with(changes)
    typer.echo("Stopped.")
    raise typer.Exit(code)


@contextmanager
def _exit_on_sigterm() -> Generator[None]:
    """Unwind at SIGTERM while servers start and stop. The operator process has its own handlers while it runs."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
