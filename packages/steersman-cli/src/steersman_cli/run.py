"""``steersman run``: run the operator on this machine, against a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman_cli.exit_codes import report_errors
from steersman_cli.local_operator import OperatorProcess, debug_address, source_changes
from steersman_cli.project import Project


def run(
    context: typer.Context,
    reload: Annotated[bool, typer.Option(help="Restart when a file in src/ changes.")] = True,
) -> None:
    """Run the operator on this machine until Ctrl-C.

    It uses the cluster of your kubeconfig. Other options are passed to the operator. `steersman explain` and
    `steersman top` read its debug endpoint at 127.0.0.1:8082.

    Without a cluster, use `steersman dev`.

    Example: steersman run --namespace shop --log-level debug

    Example: steersman run --no-reload --kubeconfig ./kubeconfig --metrics-bind-address 0
    """
    with report_errors():
        project = Project.from_working_directory()
        # The API server cannot reach webhooks on this machine. Arguments of the user follow and win.
        webhooks = ["--no-webhooks"] if "webhooks" in project.settings else []
        arguments = [*webhooks, "--debug-bind-address", debug_address(), *context.args]
        operator = OperatorProcess(project, lambda: arguments)
        code = operator.run_with(source_changes(project) if reload else None)
    raise typer.Exit(code)
