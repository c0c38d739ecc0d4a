"""The images of the database operator, built without a registry and cached.

An image that is in the cache needs neither buildah nor root: `ensure_images` then takes a fraction of a second.
"""

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Annotated, Any

import typer

from devcluster import apt, architecture, buildah, containers, lock, rootfs, wheels
from devcluster.errors import CommandFailed, Unsupported
from devcluster.layout import NodeLayout
from devcluster.progress import Progress
from devcluster.state import State

CHECKOUT = Path(__file__).resolve().parents[3]
TRIXIE = "docker.io/library/debian:trixie-slim"
SID = "docker.io/library/debian:sid-slim"
PYTHON = "docker.io/library/python:3.13-slim"

_IMAGES = "operators/databases/images"  # directory in a checkout
_DIGEST = re.compile("[0-9a-f]{64}")
_MAX_ARCHIVES_PER_IMAGE = 2  # archives kept per name: of this checkout and of another
_RETRY_AFTER_SECONDS = 24 * 3600.0  # seconds before an unavailable sid is tried again


@dataclass(frozen=True)
class Image:
    """A built image. `digest` is its manifest's, as in `sha256:…`."""

    reference: str
    archive: Path
    digest: str


@dataclass(frozen=True)
class Recipe:
    """Build instructions of an image.

    `context` is the directory that the Containerfile copies from. If the context must be collected first, `gather`
    fills an empty directory and writes to a log. `sources` are the files that determine the result; files outside
    the context count by name only.
    """

    reference: str
    base: str
    containerfile: Path
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: Callable[[], Iterable[Path]] | None = None
    gather: Callable[[Path, Path], None] | None = None

    @property
    def name(self) -> str:
        """The reference as a file name: `postgresql-17`."""
        return self.reference.rpartition("/")[2].replace(":", "-")

    def key(self, base: rootfs.Base) -> str:
        """Return a digest of everything that determines the image."""
        inputs = [self.reference, base.digest, self.containerfile.read_text(), json.dumps(dict(self.arguments))]
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
        files = self.sources() if self.sources else (path for path in self.context.rglob("*") if path.is_file())
        for path in sorted(files):
            content, mode = path.read_bytes(), path.stat().st_mode & 0o111
            name = path.relative_to(self.context) if path.is_relative_to(self.context) else path.name
            digest.update(f"{name} {mode:o} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]


def recipes_of(checkout: Path, suffix: str = "") -> tuple[Recipe, Recipe, Recipe]:
    """Return the recipes of PostgreSQL 17, MySQL and the operator.

    `suffix` is appended to the names of the images, so that nodes can have those of two checkouts.
    """
    directory = checkout / _IMAGES
    return (
        _postgresql_recipe(directory, "17", "trixie", suffix=suffix),
        _server_recipe(f"steersman.dev/mysql{suffix}:9.7", SID, directory, "mysql"),
        operator_recipe(f"steersman.dev/databases-operator{suffix}:dev", checkout),
    )


def operator_recipe(reference: str, checkout: Path) -> Recipe:
    """Return the recipe of the operator of a checkout."""
    return Recipe(
        reference,
        TRIXIE,
        checkout / _IMAGES / "operator/Containerfile",
        checkout,
        sources=lambda: wheels.sources(checkout),
        gather=lambda directory, log: wheels.fill_context(checkout, directory, log),
    )


def _postgresql_recipe(
    directory: Path, major: str, release: str, former: Sequence[str] = (), suffix: str = ""
) -> Recipe:
    """Return the recipe of a major, or of an upgrade from `former`."""
    name, base = "postgresql-upgrade" if former else "postgresql", f"docker.io/library/debian:{release}-slim"
    arguments = {"RELEASE": release, "MAJOR": major, **({"FORMER": " ".join(former)} if former else {})}
    return _server_recipe(f"steersman.dev/{name}{suffix}:{major}", base, directory, "postgresql", arguments)


def _server_recipe(
    reference: str, base: str, images_directory: Path, engine: str, arguments: Mapping[str, str] | None = None
) -> Recipe:
    """Return the recipe of a server image, with the engine's pinned wheels."""
    requirements = images_directory / engine / f"requirements-{engine}.txt"

    def gather(directory: Path, log: Path) -> None:
        wheels.copy(_server_sources(images_directory, engine), images_directory, directory)
        # The previous release may have no wheels.
        if requirements.exists():
            wheels.download(requirements, directory / "image-wheels", log)

    return Recipe(
        reference,
        base,
        images_directory / engine / "Containerfile",
        images_directory,
        arguments or {},
        sources=lambda: _server_sources(images_directory, engine),
        gather=gather,
    )


def _server_sources(directory: Path, engine: str) -> list[Path]:
    """Return the sources of an engine's images without the Containerfiles."""
    files = (path for part in ("common", engine) for path in (directory / part).rglob("*"))
    return [path for path in files if path.is_file() and path.parent.name != "__pycache__"]


POSTGRESQL, MYSQL, OPERATOR = recipes_of(CHECKOUT)
POSTGRESQL_15 = _postgresql_recipe(CHECKOUT / _IMAGES, "15", "trixie")
POSTGRESQL_18 = _postgresql_recipe(CHECKOUT / _IMAGES, "18", "forky")
UPGRADE_TO_17 = _postgresql_recipe(CHECKOUT / _IMAGES, "17", "trixie", ["15"])
UPGRADE_TO_18 = _postgresql_recipe(CHECKOUT / _IMAGES, "18", "forky", ["15", "17"])


def cached(recipe: Recipe) -> Image | None:
    """Return the image if the cache has it, else None."""
    base = rootfs.cached(recipe.base)
    if base is None:
        return None
    archive = _archive(recipe, base)
    return _read(recipe.reference, archive) if archive.exists() else None


def ensure(recipe: Recipe, progress: Progress) -> Image:
    """The image, built first if need be.

    Raises Unsupported where nothing can be built, CommandFailed with the log's place.
    """
    if found := cached(recipe):
        return found
    _ensure_build_tools(progress)
    with lock.exclusive(_directory() / f"{recipe.name}.lock"):
        return cached(recipe) or _build(recipe, progress)


def _ensure_build_tools(progress: Progress) -> None:
    """Install the build tools and, if needed, the emulator."""
    apt.ensure(progress, buildah.PACKAGES)
    architecture.ensure_emulation(progress)


def ensure_images(progress: Progress) -> list[Image]:
    """Build the images of PostgreSQL, MySQL (if available) and the operator.

    Raises Unsupported where nothing can be built, CommandFailed with the log's place.
    """
    if not all(cached(recipe) for recipe in (POSTGRESQL, MYSQL, OPERATOR)):
        _ensure_build_tools(progress)
    with ThreadPoolExecutor(2) as pool:
        mysql = pool.submit(ensure_mysql, progress)
        others = [ensure(recipe, progress) for recipe in (POSTGRESQL, OPERATOR)]
        return [image for image in (others[0], mysql.result(), others[1]) if image is not None]


def ensure_mysql(progress: Progress) -> Image | None:
    """Build MySQL from Debian sid, or return None if unavailable."""
    failure_file = _directory() / f"{MYSQL.name}.failed"
    if (
        cached(MYSQL) is None
        and failure_file.exists()
        and time.time() - failure_file.stat().st_mtime < _RETRY_AFTER_SECONDS
    ):
        return _note_mysql_unavailable(progress, failure_file.read_text())
    try:
        return ensure(MYSQL, progress)
    except CommandFailed as error:
        failure_file.parent.mkdir(parents=True, exist_ok=True)
        failure_file.write_text(str(error))
        return _note_mysql_unavailable(progress, str(error))


def build(
    containerfile: Path, reference: str, context: Path, arguments: Mapping[str, str], progress: Progress
) -> Image:
    """Build a Containerfile whose base image can be made locally.

    Raises Unsupported for another base, CommandFailed with the log's place.
    """
    base = next((f"docker.io/library/{name}" for name in _bases(containerfile, arguments)), "")
    if base not in rootfs.BASES:
        supported = " or ".join(name.rpartition("/")[2] for name in rootfs.BASES)
        raise Unsupported(f"{containerfile} must be FROM {supported}: no registry is used")
    return ensure(Recipe(reference, base, containerfile, context, arguments), progress)


def load(image: Image) -> None:
    """Import an image into the nodes that lack it.

    Raises NotRunning if there is no cluster, Unsupported for images of other processors, CommandFailed with
    containerd's words.
    """
    if architecture.IS_EMULATED:
        raise Unsupported(f"nodes take no images for {architecture.TARGET}: unset DEVCLUSTER_ARCHITECTURE")
    nodes = _nodes()
    outdated = [node for node in nodes if containers.digest(node, image.reference) != image.digest]
    if outdated or not nodes:
        containers.load(image.archive, outdated)


def tag(reference: str, alias: str) -> None:
    """Add a name to an image on all nodes."""
    for node in _nodes():
        containers.tag(node, reference, alias)


def load_archive(archive: Path) -> None:
    """Import any OCI archive into every node of the running cluster. Raises as `load`."""
    containers.load(archive, _nodes())


def _nodes() -> list[NodeLayout]:
    """The nodes of the running cluster; none without one."""
    found = State.load()
    return found.nodes if found is not None and found.alive() else []


def _directory() -> Path:
    return architecture.cache_directory("images")


def _archive(recipe: Recipe, base: rootfs.Base) -> Path:
    return _directory() / f"{recipe.name}-{recipe.key(base)}.oci.tar"


def _read(reference: str, archive: Path) -> Image:
    """An image from its archive, whose first member is the index."""
    try:
        with tarfile.open(archive, "r:") as file:
            content = file.extractfile("index.json")
            index: dict[str, Any] = json.load(content) if content is not None else {}
        return Image(reference, archive, index["manifests"][0]["digest"])
    except (tarfile.TarError, KeyError) as error:
        raise CommandFailed(f"{archive} is damaged; delete it") from error


def _build(recipe: Recipe, progress: Progress) -> Image:
    log = _directory() / "logs" / f"{recipe.name}.log"
    log.unlink(missing_ok=True)
    with lock.exclusive(architecture.cache_directory("rootfs") / f"{recipe.base.rpartition(':')[2]}.lock"):
        base = rootfs.ensure(recipe.base, progress)
        buildah.add_base(base, log)
    archive = _archive(recipe, base)
    with (
        progress.step(f"Build {recipe.reference} (1 minute)"),
        tempfile.TemporaryDirectory(dir=_directory(), prefix=f"{recipe.name}-") as temporary,
    ):
        context = recipe.context
        if recipe.gather is not None:
            context = Path(temporary) / "context"
            context.mkdir()
            recipe.gather(context, log)
        buildah.build(recipe.containerfile, context, recipe.arguments, recipe.reference, log)
        blobs = Path(temporary) / "blobs"
        buildah.export(recipe.reference, blobs, log)
        temporary_archive = Path(temporary) / "archive"
        _pack(blobs, recipe.reference, temporary_archive)
        temporary_archive.rename(archive)
    prune_archives(recipe, archive)
    return _read(recipe.reference, archive)


def _pack(blobs: Path, reference: str, archive: Path) -> None:
    """Write an OCI archive whose index names the image.

    Source: github.com/opencontainers/image-spec, image-layout.md.
    """
    manifest = (blobs / "manifest.json").read_bytes()
    digest = hashlib.sha256(manifest).hexdigest()
    entry = {
        "mediaType": json.loads(manifest)["mediaType"],
        "digest": f"sha256:{digest}",
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference},
    }
    (blobs / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (blobs / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (blobs / "manifest.json").rename(blobs / digest)
    with tarfile.open(archive, "w") as file:
        for name in ("index.json", "oci-layout"):
            file.add(blobs / name, name)
        for blob in sorted(path for path in blobs.iterdir() if _DIGEST.fullmatch(path.name)):
            file.add(blob, f"blobs/sha256/{blob.name}")


def prune_archives(recipe: Recipe, newest: Path) -> None:
    """Delete old archives of an image, except the newest two."""
    archives = sorted(_directory().glob(f"{recipe.name}-*.oci.tar"), key=lambda path: path.stat().st_mtime)
    for old in [path for path in archives if path != newest][: 1 - _MAX_ARCHIVES_PER_IMAGE or None]:
        old.unlink(missing_ok=True)


def _note_mysql_unavailable(progress: Progress, reason: str) -> None:
    progress.note(f"MySQL from Debian sid cannot be had: clusters of it do not start. {reason.splitlines()[0]}")


def _bases(containerfile: Path, arguments: Mapping[str, str]) -> list[str]:
    """Return the base images of a Containerfile, with arguments substituted."""
    lines = [line.split() for line in containerfile.read_text().splitlines()]
    defaults = dict(words[1].split("=", 1) for words in lines if words[:1] == ["ARG"] and "=" in words[1])
    filled = [
        Template(words[1]).safe_substitute(defaults | dict(arguments)) for words in lines if words[:1] == ["FROM"]
    ]
    return [name.removeprefix("docker.io/library/") for name in filled]


app = typer.Typer(no_args_is_help=True)


@app.command("ensure")
def ensure_command() -> None:
    """Build all images of the database operator and load them."""
    progress = Progress()
    for image in ensure_images(progress):
        typer.echo(f"{image.reference:<40} {image.archive}")
        if _nodes():
            load(image)


@app.command("build")
def build_command(
    directory: Annotated[Path, typer.Argument(help="holds the Containerfile")],
    tag: Annotated[str, typer.Option(help="the image's full name, as in example.com/name:tag")],
    context: Annotated[
        Path | None, typer.Option(help="what the Containerfile copies from; default: DIRECTORY")
    ] = None,
    build_arg: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, may be repeated")] = None,
) -> None:
    """Build DIRECTORY/Containerfile and print its archive's path."""
    arguments = dict(pair.split("=", 1) for pair in build_arg or [] if "=" in pair)
    image = build(directory / "Containerfile", tag, context or directory, arguments, Progress())
    typer.echo(str(image.archive))


@app.command("list")
def list_command() -> None:
    """Show the operator's images and which of them are built."""
    for recipe in (POSTGRESQL, POSTGRESQL_15, POSTGRESQL_18, UPGRADE_TO_17, UPGRADE_TO_18, MYSQL, OPERATOR):
        image = cached(recipe)
        typer.echo(f"{recipe.reference:<40} {image.archive if image else 'not built'}")


@app.command("load")
def load_command(archives: Annotated[list[Path], typer.Argument(help="OCI archives")]) -> None:
    """Import archives into every node of the running cluster."""
    for archive in archives:
        load_archive(archive)


@app.command("clean")
def clean_command() -> None:
    """Delete the base images; the next build takes newer packages."""
    for directory in (buildah.storage(), _directory(), *map(architecture.cache_directory, ("rootfs", "wheels"))):
        shutil.rmtree(directory, ignore_errors=True)
