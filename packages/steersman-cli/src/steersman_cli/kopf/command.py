"""``steersman migrate kopf``: convert a Kopf operator, and remove its marks from objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steersman.errors import ConfigurationError
from steersman_cli.deploy import ContextOption, KubeconfigOption
from steersman_cli.exit_codes import report_errors
from steersman_cli.output import OutputFormat, print_output

if TYPE_CHECKING:
    from steersman.client import Client
    from steersman_cli.kopf.cluster import Leftover, Marks
    from steersman_cli.kopf.handlers import HelperCode, KopfHandler, ResourceName

_CRD_KIND = "CustomResourceDefinition"
_MANUAL_ONLY = "-"
_COPY_STEP = "copy it: only handlers are converted"


def kopf(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or directory of the Kopf operator.")],
    to: Annotated[Path | None, typer.Option("--to", help="Write the new operator into this directory.")] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="List finalizers and annotations of Kopf on objects of the cluster.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="With --cluster: remove them.")] = False,
    finalizer: Annotated[
        list[str] | None, typer.Option(help="Finalizer of the operator, if it sets its own. Repeatable.")
    ] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="Prefix of its annotations, if it sets its own. Repeatable.")
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            help="With --cluster: a resource such as buckets.example.com that the source computes. Repeatable."
        ),
    ] = None,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Convert a Kopf operator, and list manual steps.

    The command reads the source and runs none of it. With --to it writes types of the CRDs that it finds below PATH,
    a reconciler for each resource with the handlers as comments, and the permissions that they need.

    With --cluster it lists what Kopf has left on objects: a finalizer blocks their deletion without Kopf. Stop the
    Kopf operator before --remove, since it would add them again.

    Example: steersman migrate kopf ./operator --to ./steersman-operator

    Example: steersman migrate kopf ./operator --cluster --remove
    """
    with report_errors():
        if remove and not cluster:
            raise ConfigurationError("--remove needs --cluster")
        from steersman_cli.kopf.handlers import read_handlers, read_helpers

        handlers = read_handlers(path)
        if cluster:
            names = _resource_names(handlers, resource or [])
            _clean(names, _marks(finalizer, prefix), kubeconfig, context, remove, output)
            return
        if to is not None:
            _write(handlers, path, to)
        _print_conversions(handlers, read_helpers(path), output)


def _print_conversions(handlers: Sequence[KopfHandler], helpers: Sequence[HelperCode], output: OutputFormat) -> None:
    from steersman_cli.kopf.conversion import convert

    conversions = [convert(handler) for handler in handlers]
    content: list[dict[str, Any]] = [
        {
            "file": f"{c.handler.file}:{c.handler.line}",
            "function": c.handler.function,
            "activity": c.handler.activity,
            "resource": str(c.handler.resource or ""),
            "becomes": c.becomes,
            "steps": list(c.steps),
        }
        for c in conversions
    ]
    content += [
        {
            "file": f"{helper.file}:{helper.line}",
            "function": helper.name,
            "activity": "",
            "resource": "",
            "becomes": "",
            "steps": [_COPY_STEP],
        }
        for helper in helpers
    ]
    rows = [
        (
            f"{c.handler.file}:{c.handler.line}",
            c.handler.activity,
            str(c.handler.resource or "-"),
            c.becomes or _MANUAL_ONLY,
            "; ".join(c.steps) or "-",
        )
        for c in conversions
    ]
    rows += [(f"{h.file}:{h.line}", "-", "-", _MANUAL_ONLY, f"{h.name}: {_COPY_STEP}") for h in helpers]
    print_output(content, output, columns=("handler", "of kopf", "resource", "becomes", "by hand"), rows=rows)


def _write(handlers: Sequence[KopfHandler], path: Path, directory: Path) -> None:
    from steersman_cli.kopf.skeleton import render_operator
    from steersman_manifests.manifest_files import load_manifests

    source = path if path.is_dir() else path.parent
    definitions = [d for file in _yaml_files(source) for d in load_manifests(file, (_CRD_KIND,))]
    name = re.sub(r"[^a-z0-9-]+", "-", source.resolve().name.lower()).strip("-") or "operator"
    files = render_operator(handlers, definitions, name)
    if existing := [str(directory / file) for file in files if (directory / file).exists()]:
        raise ConfigurationError(f"{existing[0]} exists: give another directory to --to")
    try:
        for file, text in files.items():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write to {directory}: {error.strerror}") from error
    typer.echo(f"Wrote {len(files)} files to {directory}. {_next_steps(name)}", err=True)


def _next_steps(name: str) -> str:
    package = name.replace("-", "_")
    return f"""Next: edit main.py, then run python main.py.
For images, manifests and tests, create a project in an empty directory and copy the files:

  steersman init --domain example.com --project-name {name}
  cp -r CONVERTED/kinds src/{package}/kinds
  sed 's/^from kinds/from {package}.kinds/' CONVERTED/main.py > src/{package}/controllers/converted.py

Then call converted.setup(manager) in src/{package}/main.py, and compare the CRDs by steersman crd diff."""


def _yaml_files(directory: Path) -> list[Path]:
    found = [file for pattern in ("*.yaml", "*.yml") for file in directory.rglob(pattern)]
    return sorted(f for f in found if _CRD_KIND in f.read_text(encoding="utf-8", errors="replace"))


def _marks(finalizers: list[str] | None, prefixes: list[str] | None) -> Marks:
    from steersman_cli.kopf.cluster import DEFAULT_FINALIZERS, DEFAULT_PREFIXES, Marks

    return Marks((*DEFAULT_FINALIZERS, *(finalizers or ())), (*DEFAULT_PREFIXES, *(prefixes or ())))


def _resource_names(handlers: Sequence[KopfHandler], given: Sequence[str]) -> list[ResourceName]:
    from steersman_cli.kopf.handlers import OF_THE_OPERATOR, parse_resource

    unknown = [h for h in handlers if h.resource is None and h.activity not in OF_THE_OPERATOR]
    if unknown and not given:
        one = unknown[0]
        raise ConfigurationError(
            f"{one.file}:{one.line} computes its resource: give all such resources by --resource PLURAL.GROUP"
        )
    names = [handler.resource for handler in handlers if handler.resource is not None]
    return list(dict.fromkeys([*names, *map(parse_resource, given)]))


def _clean(
    names: list[ResourceName], marks: Marks, kubeconfig: str, context: str, remove: bool, output: OutputFormat
) -> None:
    from steersman_cli.apply import run_with_client

    found = run_with_client(kubeconfig, context, lambda client: _find(client, names, marks, remove=remove))
    content: list[dict[str, Any]] = [
        {
            "kind": one.resource.kind,
            "namespace": one.key.namespace,
            "name": one.key.name,
            "finalizers": list(one.finalizers),
            "annotations": list(one.annotations),
            "removed": remove,
        }
        for one in found
    ]
    rows = [
        (one.resource.kind, one.key.namespace or "-", one.key.name, ", ".join((*one.finalizers, *one.annotations)))
        for one in found
    ]
    title = "removed" if remove else "would be removed"
    print_output(content, output, columns=("kind", "namespace", "name", title), rows=rows)


async def _find(client: Client, names: list[ResourceName], marks: Marks, *, remove: bool) -> list[Leftover]:
    from steersman_cli.kopf import cluster

    resources = await cluster.resolve_resources(client, names)
    # Without --remove the API server checks the update and stores nothing.
    return [
        leftover
        async for leftover in cluster.find_leftovers(client, resources, marks)
        if await cluster.remove(client, leftover, marks, dry_run=not remove)
    ]
