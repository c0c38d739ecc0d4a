"""``steersman doctor``: what is wrong with a project on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman_cli.cluster import ContextName, Kubeconfig
from steersman_cli.ending import FOUND, told_plainly
from steersman_cli.output import Format, tell
from steersman_cli.project import Project

if TYPE_CHECKING:
    from steersman.client import Client
    from steersman_cli.diagnosis import Finding

_SIGNS = {"ok": "ok", "wrong": "WRONG", "unknown": "?"}


def doctor(
    kubeconfig: Kubeconfig = "",
    context: ContextName = "",
    output: Annotated[Format, typer.Option("--output", "-o", help="How to tell.")] = "table",
) -> None:
    """Look at the cluster, the definitions, the deployment, its rights, its webhooks and their certificate.

    Nothing is changed. Exit codes: 0 all is well, 1 something is wrong, 2 there is nothing to look at.

    Example: steersman doctor

    Example: steersman doctor --context staging -o json
    """
    with told_plainly():
        from steersman_cli.applying import on_cluster
        from steersman_cli.diagnosis import Diagnosis
        from steersman_cli.manifests import declared_by

        project = Project.here()
        serving = project.webhooks()
        manager = declared_by(project, serving)

        async def look(client: Client) -> list[Finding]:
            return [f async for f in Diagnosis(client, project, manager, serving).findings()]

        findings = on_cluster(kubeconfig, context, look)
    rows = [(_SIGNS[f.status], f.subject, f.message + (f"\n→ {f.fix}" if f.fix else "")) for f in findings]
    tell(findings, output, columns=("", "what", "found"), rows=rows)
    if any(f.status == "wrong" for f in findings):
        raise typer.Exit(FOUND)
