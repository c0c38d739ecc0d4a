"""``steersman explain``: show why objects were reconciled, from the running operator."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from steersman.errors import ConfigurationError
from steersman_cli.debug_endpoint import (
    DEFAULT_DEBUG_URL,
    CertificateAuthorityOption,
    DebugEndpoint,
    DebugUrlOption,
    TlsServerNameOption,
    TokenFileOption,
    fetch_json,
    format_triggers,
)
from steersman_cli.exit_codes import report_errors
from steersman_cli.output import OutputFormat, print_output


def explain(
    controller: Annotated[str, typer.Argument(help="Name of the controller; usually the kind in lower case.")],
    object: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Show only this object.")] = "",
    url: DebugUrlOption = DEFAULT_DEBUG_URL,
    limit: Annotated[int, typer.Option(min=1, max=256, help="Number of recent reconciles.")] = 20,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = "table",
    token_file: TokenFileOption = None,
    certificate_authority: CertificateAuthorityOption = None,
    tls_server_name: TlsServerNameOption = "",
) -> None:
    """Show why objects were reconciled.

    The table has queued, running and recent reconciles with their triggers and results.

    Example: steersman explain databaseuser shop/blue

    Example: kubectl -n shop-system port-forward deployment/shop 8082 & steersman explain databaseuser -o json
    """
    with report_errors():
        query = f"?limit={limit}" + (f"&object={quote(object, safe='/')}" if object else "")
        endpoint = DebugEndpoint(url, token_file, certificate_authority, tls_server_name)
        controllers = fetch_json(endpoint, "/debug/controllers", query)
        selected = next((c for c in controllers if c["name"] == controller), None)
        if selected is None:
            names = ", ".join(c["name"] for c in controllers) or "none"
            raise ConfigurationError(f"controller {controller} not found (controllers: {names})")
        recent = fetch_json(endpoint, f"/debug/controllers/{quote(controller)}/recent", query)
    content = {"running": selected["running"], "queue": selected["queue"], "recent": recent}
    print_output(
        content,
        output,
        columns=("time", "object", "result", "triggers"),
        rows=[*_pending_rows(selected, object), *_recent_rows(recent)],
    )


def _pending_rows(controller: dict[str, Any], object_filter: str) -> list[tuple[str, str, str, str]]:
    queue = controller["queue"]
    running = [r for r in controller["running"] if object_filter in ("", _object_name(r))]
    return [
        *((f"for {r['age_seconds']:.1f} s", _object_name(r), "running", format_triggers(r)) for r in running),
        *(
            (f"for {w['waited_seconds']:.1f} s", _object_name(w), "queued", format_triggers(w))
            for w in queue["waiting"]
        ),
        *(
            (f"in {d['due_in_seconds']:.1f} s", _object_name(d), _delay_reason(d), format_triggers(d))
            for d in queue["delayed"]
        ),
    ]


def _recent_rows(recent: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (r["started"][:19].replace("T", " "), _object_name(r), _format_outcome(r), format_triggers(r)) for r in recent
    ]


def _object_name(entry: dict[str, Any]) -> str:
    return "/".join(part for part in (entry["namespace"], entry["name"]) if part)


def _delay_reason(entry: dict[str, Any]) -> str:
    failures = entry["consecutive_failures"]
    return f"retry after {failures} failures" if failures else "requeued"


def _format_outcome(entry: dict[str, Any]) -> str:
    summary = f"{entry['result']} in {entry['duration_seconds']:.3f} s"
    blocking = [f"{b['kind']} {b['object']}: {b['message']}" for b in entry.get("blocking_dependents", ())]
    unpruned = [
        f"{u['kind']} {u['object']}: not declared, prune stopped" for u in entry.get("unpruned_dependents", ())
    ]
    return "\n".join([summary, *entry["errors"], *blocking, *unpruned])
