"""``steersman models``: generate types from CRDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.request import urlopen

import typer
import yaml

from steersman.errors import ConfigurationError, SteersmanError
from steersman.meta import ApiResource
from steersman_manifests.manifest_files import load_manifests, parse_manifests

_CRD_KIND = "CustomResourceDefinition"
_CRD_RESOURCE = ApiResource("apiextensions.k8s.io", "v1", _CRD_KIND, "customresourcedefinitions", namespaced=False)
_DOWNLOAD_TIMEOUT_SECONDS = 60.0
_MAX_DOWNLOAD_BYTES = 64 * 2**20


def models(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Files, directories, - (standard input), https URLs, or cluster."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the package to write.")],
    group: Annotated[list[str] | None, typer.Option(help="Include only this API group. Repeatable.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Include only this kind. Repeatable.")] = None,
    descriptions: Annotated[bool, typer.Option(help="Write descriptions as docstrings.")] = True,
    line_length: Annotated[int, typer.Option(min=40, help="Line length of your formatter.")] = 88,
) -> None:
    """Write typed Python modules of the kinds in CRDs.

    Features of a schema without a Python type are listed on standard error. Exit codes: 0 success, 1 a source cannot
    be read or a file cannot be written.

    Example: steersman models cert-manager.crds.yaml --output shop/foreign

    Example: steersman models cluster --group monitoring.coreos.com --kind ServiceMonitor --output shop/foreign
    """
    from steersman_cli.codegen import generate_package

    try:
        crds = [d for source in sources for d in _load_crds(source) if _is_selected(d, group, kind)]
        if not crds:
            raise ConfigurationError(f"{', '.join(sources)}: no {_CRD_KIND} matches")
        generated = generate_package(crds, descriptions=descriptions, width=line_length)
        for path, text in generated.files.items():
            _write(output / path, text)
    except SteersmanError as error:
        typer.echo(f"steersman: {error}", err=True)
        raise typer.Exit(1) from None
    for note in generated.unsupported_features:
        typer.echo(f"unsupported: {note}", err=True)


def _is_selected(definition: dict[str, Any], groups: Iterable[str] | None, kinds: Iterable[str] | None) -> bool:
    spec = definition["spec"]
    return (not groups or spec["group"] in groups) and (not kinds or spec["names"]["kind"] in kinds)


def _load_crds(source: str) -> Iterator[dict[str, Any]]:
    """Yield the CRDs of a source.

    Raises:
        SteersmanError: the source cannot be read.
    """
    if source == "cluster":
        yield from _crds_in_cluster()
    elif source.startswith("https://"):
        yield from parse_manifests(_download(source), source, (_CRD_KIND,))
    elif "://" in source:
        raise ConfigurationError(f"{source} is not supported: give an https URL, or download it first")
    else:
        yield from load_manifests(Path(source), (_CRD_KIND,))


def _crds_in_cluster() -> Iterator[dict[str, Any]]:
    from steersman.client.sync import SyncClient
    from steersman.meta import unstructured

    with SyncClient() as client:
        for item in client.list(unstructured(_CRD_RESOURCE)).items:
            yield item.to_dict()


def _download(url: str) -> str:
    try:
        # urllib honors HTTPS_PROXY and NO_PROXY.
        with urlopen(url, timeout=_DOWNLOAD_TIMEOUT_SECONDS) as response:  # noqa: S310
            content: bytes = response.read(_MAX_DOWNLOAD_BYTES + 1)
        if len(content) > _MAX_DOWNLOAD_BYTES:
            raise ConfigurationError(
                f"{url} is larger than {_MAX_DOWNLOAD_BYTES // 2**20} MiB: download the part that you need"
            )
        return content.decode()
    except (OSError, HTTPException, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"cannot read {url}: {error}") from error


def _write(file: Path, text: str) -> None:
    try:
        # An existing package keeps its docstring.
        if file.name == "__init__.py" and file.exists():
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from error
    typer.echo(str(file))
