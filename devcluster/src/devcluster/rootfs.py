"""Base images for Containerfiles, made from Debian packages without a registry.

They have the names and the content of the official images: the essential packages and apt, without manuals,
documentation and translations. The cache keeps each archive, since Debian sid changes daily.
"""

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from devcluster import architecture
from devcluster.commands import logged
from devcluster.progress import Progress

# Both exclude documentation; dpkg applies the same rules to packages that Containerfiles add.
_EXCLUDED_SHARE_DIRECTORIES = ("doc", "info", "locale", "lintian", "man")
_RECIPE_VERSION = "1"  # part of the identity of a base: a change here builds new ones
APT_OPTIONS = (
    # A mirror that is a snapshot, or outdated, is accepted.
    'Acquire::Check-Valid-Until "false"',
    'APT::Install-Recommends "false"',
)
"""Options of apt for mirrors."""


@dataclass(frozen=True)
class _BaseSpec:
    """Content of a base image."""

    suite: str
    packages: tuple[str, ...] = ()


_BASE_SPECS = {
    "docker.io/library/debian:bookworm-slim": _BaseSpec("bookworm"),
    "docker.io/library/debian:trixie-slim": _BaseSpec("trixie"),
    "docker.io/library/debian:forky-slim": _BaseSpec("forky"),
    "docker.io/library/debian:sid-slim": _BaseSpec("sid"),
    # With Debian's Python; the official image has its own below /usr/local.
    "docker.io/library/python:3.13-slim": _BaseSpec("trixie", ("ca-certificates", "python3-venv")),
}
BASES = tuple(_BASE_SPECS)
"""Base images that can be made locally, by full name."""


@dataclass(frozen=True)
class Base:
    """A root file system as an uncompressed archive.

    `identity` changes whenever its content does.
    """

    reference: str
    archive: Path
    digest: str


def cached(reference: str) -> Base | None:
    """Return the cached base image, or None.

    `reference` is a full image name, as in `docker.io/library/debian:sid-slim`.
    """
    try:
        description = json.loads(_description_path(reference).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    archive = _directory() / str(description["archive"])
    if description["recipe"] != _RECIPE_VERSION or not archive.exists():
        return None
    return Base(reference, archive, str(description["identity"]))


def ensure(reference: str, progress: Progress) -> Base:
    """Return the base image, built with mmdebstrap if not cached.

    Raises CommandFailed, with the log's place, where the packages cannot be had.
    """
    if found := cached(reference):
        return found
    name, spec = _name(reference), _BASE_SPECS[reference]
    _directory().mkdir(parents=True, exist_ok=True)
    archive = _directory() / f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}.tar"
    unfinished = archive.with_suffix(".unfinished")
    with progress.step(f"Make the base image {reference.rpartition('/')[2]} (half a minute)"):
        logged(
            [*_mmdebstrap_command(spec), str(unfinished), *sources(spec.suite)],
            _directory() / f"{name}.log",
            seconds=900,
        )
    with unfinished.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for old in _directory().glob(f"{name}-*.tar"):
        old.unlink()
    unfinished.rename(archive)
    text = json.dumps({"archive": archive.name, "identity": digest, "recipe": _RECIPE_VERSION}, indent=2)
    temporary = _description_path(reference).with_suffix(".unfinished")
    temporary.write_text(text)
    temporary.rename(_description_path(reference))
    return Base(reference, archive, digest)


def _directory() -> Path:
    return architecture.cache_directory("rootfs")


def _name(reference: str) -> str:
    """`debian-sid-slim` of `docker.io/library/debian:sid-slim`."""
    return reference.rpartition("/")[2].replace(":", "-")


def _description_path(reference: str) -> Path:
    return _directory() / f"{_name(reference)}.json"


def _mmdebstrap_command(spec: _BaseSpec) -> list[str]:
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _EXCLUDED_SHARE_DIRECTORIES]
    return [
        "mmdebstrap",
        *([f"--architectures={architecture.TARGET}"] if architecture.IS_EMULATED else []),
        "--variant=minbase",
        "--format=tar",
        *(f"--aptopt={option}" for option in APT_OPTIONS),
        *options,
        *([f"--include={','.join(spec.packages)}"] if spec.packages else []),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        # An interrupted build is discarded, so fsync is not needed.
        "--dpkgopt=force-unsafe-io",
        '--customize-hook=rm -rf "$1/etc/hostname" "$1/etc/resolv.conf" "$1/var/log/"* "$1/var/cache/debconf/"*-old',
        spec.suite,
    ]


def sources(suite: str) -> list[str]:
    """Return the host's apt sources; empty means mmdebstrap's default."""
    main = _mirrors("Debian")
    if not main:
        return []
    lines = [f"deb {main[0]} {suite} main"]
    if suite != "sid":
        lines += [f"deb {main[0]} {suite}-updates main"]
        lines += [f"deb {mirror} {suite}-security main" for mirror in _mirrors("Debian-Security")[:1]]
    return lines


def _mirrors(label: str) -> list[str]:
    """Return the addresses of the host's package archives with a label."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Label: {label}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return list(dict.fromkeys(done.stdout.split()))
