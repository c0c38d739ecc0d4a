"""``steersman doctor``: diagnose a project on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman_cli.deploy import ContextOption, KubeconfigOption
from steersman_cli.exit_codes import EXIT_CHECK_FAILED, report_errors
from steersman_cli.output import OutputFormat, print_output
from steersman_cli.project import Project

if TYPE_CHECKING:
    from steersman.client import Client
    from steersman_cli.doctor_checks import CheckResult

_STATUS_LABELS = {"ok": "ok", "wrong": "WRONG", "unknown": "?", "absent": "-"}


def doctor(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Diagnose the project on a cluster.

    The command checks CRDs, Deployment, permissions, webhooks and their certificate, and changes nothing. Without a
    Deployment, it checks only what `steersman run` needs.

    Exit codes: 0 no problem, 1 a problem was found, 2 the project is invalid.

    Example: steersman doctor

    Example: steersman doctor --context staging -o json
    """
    with report_errors():
        from steersman_cli.apply import run_with_client
        from steersman_cli.doctor_checks import ProjectChecks
        from steersman_cli.manifests import load_project_manager

        project = Project.from_working_directory()
        serving = project.load_webhook_serving()
        manager = load_project_manager(project, serving)

        async def run_checks(client: Client) -> list[CheckResult]:
            return [f async for f in ProjectChecks(client, project, manager, serving).run()]

        findings = run_with_client(kubeconfig, context, run_checks)
    rows = [(_STATUS_LABELS[f.status], f.subject, f.message + (f"\n→ {f.fix}" if f.fix else "")) for f in findings]
    print_output(findings, output, columns=("", "subject", "result"), rows=rows, piped_width=80)
    if any(f.status == "wrong" for f in findings):
        raise typer.Exit(EXIT_CHECK_FAILED)
