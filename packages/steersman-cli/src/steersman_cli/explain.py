"""``steersman explain``: show why objects were reconciled, from the running operator."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from steersman.errors import ConfigurationError, SteersmanError
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
    controller: Annotated[
        str, typer.Argument(help="Name of the controller, or its kind by the names of kubectl: cart, Cart, carts.")
    ],
    object: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/NAME",
            help="Show only this object. The namespace defaults to that of the kubeconfig's context.",
        ),
    ] = "",
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

    Example: steersman explain DatabaseUsers blue

    Example: kubectl -n shop-system port-forward deployment/shop 8082 & steersman explain databaseuser -o json
    """
    with report_errors():
        endpoint = DebugEndpoint(url, token_file, certificate_authority, tls_server_name)
        selected = _find_controller(fetch_json(endpoint, "/debug/controllers", "?limit=1"), controller)
        name = selected["name"]
        if object and "/" not in object and selected.get("namespaced", True):
            object = f"{_default_namespace()}/{object}"
        query = f"?limit={limit}" + (f"&object={quote(object, safe='/')}" if object else "")
        selected = _find_controller(fetch_json(endpoint, "/debug/controllers", query), name)
        recent = fetch_json(endpoint, f"/debug/controllers/{quote(name)}/recent", query)
    rows = [*_pending_rows(selected, object), *_recent_rows(recent)]
    if not rows and output == "table":
        form = "NAMESPACE/NAME" if selected.get("namespaced", True) else "NAME"
        subject = f"{name} {object}".strip()
        typer.echo(f"no reconcile of {subject} is recorded; objects are {form}", err=True)
        return
    content = {"running": selected["running"], "queue": selected["queue"], "recent": recent}
    print_output(
        content,
        output,
        columns=("time", "object", "result", "triggers"),
        rows=rows,
    )


def _find_controller(controllers: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the controller of a name or kind. Raises ConfigurationError."""
    if exact := next((c for c in controllers if c["name"] == name), None):
        return exact
    # Operators of earlier versions do not report plural and short names.
    found = [c for c in controllers if name.lower() in {c["kind"].lower(), c["name"].lower(), *c.get("names", ())}]
    if len(found) == 1:
        return found[0]
    names = ", ".join(c["name"] for c in found or controllers) or "none"
    raise ConfigurationError(
        f"{name} has several controllers: give one of {names}"
        if found
        else f"controller {name} not found (controllers: {names})"
    )


def _default_namespace() -> str:
    from steersman.client import load_config

    try:
        return load_config().namespace
    except (SteersmanError, OSError):
        return "default"


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
