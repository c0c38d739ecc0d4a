"""``steersman explain``: why an object was reconciled, as the running operator tells."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, build_opener

import typer

from steersman.errors import ConfigurationError
from steersman_cli.ending import told_plainly
from steersman_cli.output import Format, tell

_SECONDS = 10.0


def explain(
    controller: Annotated[str, typer.Argument(help="Name of the controller: the kind in lower case, as a rule.")],
    object: Annotated[str, typer.Argument(metavar="[NAMESPACE/NAME]", help="That object alone.")] = "",
    url: Annotated[
        str,
        typer.Option(help="Where the operator serves /debug: its --debug-bind-address, or a port forwarded to it."),
    ] = "http://127.0.0.1:8082",
    limit: Annotated[int, typer.Option(min=1, max=256, help="The newest so many.")] = 20,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to tell.")] = "table",
) -> None:
    """Tell why objects were reconciled, how it went, and what comes next.

    Example: steersman explain databaseuser shop/blue

    Example: kubectl -n shop-system port-forward deployment/shop 8082 & steersman explain databaseuser -o json
    """
    with told_plainly():
        query = f"?limit={limit}" + (f"&object={quote(object, safe='/')}" if object else "")
        found = _asked(url, "/debug/controllers", query)
        here = next((c for c in found if c["name"] == controller), None)
        if here is None:
            names = ", ".join(c["name"] for c in found) or "none"
            raise ConfigurationError(f"there is no controller {controller} (there are: {names})")
        recent = _asked(url, f"/debug/controllers/{quote(controller)}/recent", query)
    content = {"running": here["running"], "queue": here["queue"], "recent": recent}
    tell(content, output, columns=("when", "object", "how", "why"), rows=[*_next(here, object), *_past(recent)])


def _asked(url: str, path: str, query: str) -> Any:
    """The JSON at ``path``. Raises ConfigurationError: nobody answers, or not that."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(f"--url {url!r} must start with http:// or https://")
    try:
        # No proxy leads to this machine.
        with build_opener(ProxyHandler({})).open(f"{url.rstrip('/')}{path}{query}", timeout=_SECONDS) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise ConfigurationError(f"{url} answers {error.code}: is --debug-bind-address served there?") from None
    except (URLError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{url} does not answer ({error}): run the operator with --debug-bind-address=127.0.0.1:8082, and "
            "for one in the cluster `kubectl -n NAMESPACE port-forward deployment/NAME 8082`"
        ) from None


def _next(controller: dict[str, Any], wanted: str) -> list[tuple[str, str, str, str]]:
    queue = controller["queue"]
    running = [r for r in controller["running"] if wanted in ("", _object(r))]
    return [
        *((f"for {r['age_seconds']:.1f} s", _object(r), "runs", _why(r)) for r in running),
        *((f"for {w['waited_seconds']:.1f} s", _object(w), "waits", _why(w)) for w in queue["waiting"]),
        *((f"in {d['due_in_seconds']:.1f} s", _object(d), _later(d), _why(d)) for d in queue["delayed"]),
    ]


def _past(recent: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(r["started"][:19].replace("T", " "), _object(r), _how(r), _why(r)) for r in recent]


def _object(entry: dict[str, Any]) -> str:
    return "/".join(part for part in (entry["namespace"], entry["name"]) if part)


def _later(entry: dict[str, Any]) -> str:
    failures = entry["failures_in_a_row"]
    return f"comes again after {failures} failures" if failures else "comes again"


def _how(entry: dict[str, Any]) -> str:
    told = f"{entry['result']} in {entry['duration_seconds']:.3f} s"
    return "\n".join([told, *entry["errors"]])


def _why(entry: dict[str, Any]) -> str:
    told = [_trigger(t) for t in entry["triggers"]]
    more = entry["omitted_triggers"]
    return "\n".join([*told, *([f"and {more} more"] if more else [])])


def _trigger(trigger: dict[str, Any]) -> str:
    place = " ".join(str(trigger[p]) for p in ("kind", "object") if trigger.get(p))
    fields = f": {', '.join(trigger['fields'])}" if trigger.get("fields") else ""
    return f"{trigger['reason']} {place}{fields}".strip()
