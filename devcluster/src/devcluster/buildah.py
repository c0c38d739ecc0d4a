"""Buildah with private storage, separate from official base images."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from devcluster import architecture
from devcluster.commands import logged
from devcluster.rootfs import Base

PACKAGES = ("buildah", "mmdebstrap", "debian-archive-keyring")


_MAX_DANGLING_IMAGES = 4


def storage() -> Path:
    """Return the storage directory; it can be deleted while nothing builds."""
    return architecture.cache_directory("buildah")


@cache
def _buildah(root: Path) -> tuple[str, ...]:
    # Mounts do not survive a reboot, so buildah must forget them, too.
    state = Path("/run") / f"steersman-buildah-{hashlib.sha256(bytes(root)).hexdigest()[:8]}"

    def with_driver(driver: str) -> tuple[str, ...]:
        return ("buildah", "--root", str(root / driver), "--runroot", str(state), "--storage-driver", driver)

    # overlay does not work on top of itself, as in a container; vfs works everywhere and copies everything.
    overlay = with_driver("overlay")
    overlay_supported = subprocess.run([*overlay, "info"], capture_output=True, check=False).returncode == 0
    return overlay if overlay_supported else with_driver("vfs")


def storage_configuration() -> str:
    """Return a storage.conf with which another buildah finds our base images."""
    _, _, root, _, state, _, driver = _buildah(storage())
    return f'[storage]\ndriver = "{driver}"\ngraphroot = "{root}"\nrunroot = "{state}"\n'


def _image_exists(reference: str) -> bool:
    command = [*_buildah(storage()), "inspect", "--type", "image", reference]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def add_base(base: Base, log: Path) -> None:
    """Import a base image into the storage under its name. Raises CommandFailed with the log's place."""
    local_reference = f"localhost/steersman-base:{base.digest[:32]}"
    buildah = _buildah(storage())
    if not _image_exists(local_reference):
        container = f"steersman-base-{base.digest[:32]}"
        subprocess.run([*buildah, "rm", container], capture_output=True, check=False)
        logged([*buildah, "from", "--name", container, "scratch"], log, seconds=60)
        logged([*buildah, "add", container, str(base.archive), "/"], log, seconds=300)
        logged([*buildah, "config", *_platform_options("--arch={}"), "--cmd", "bash", container], log, seconds=60)
        logged([*buildah, "commit", "--rm", container, local_reference], log, seconds=300)
    logged([*buildah, "tag", local_reference, base.reference], log, seconds=60)


def _platform_options(option: str) -> list[str]:
    """Return the platform option for images of a foreign architecture."""
    return [option.format(architecture.TARGET)] if architecture.IS_EMULATED else []


def build(containerfile: Path, context: Path, arguments: Mapping[str, str], name: str, log: Path) -> None:
    """Build an image; layers that are unchanged are reused.

    `name` is what the storage calls it. Raises CommandFailed with the log's place.
    """
    build_args = [f"--build-arg={key}={value}" for key, value in sorted(arguments.items())]
    options = ["--isolation=chroot", "--network=host", "--format=oci", "--layers", "--pull=never"]
    command = [
        *_buildah(storage()),
        "build",
        *options,
        *_platform_options("--platform=linux/{}"),
        *build_args,
        "--tag",
        name,
    ]
    logged([*command, "--file", str(containerfile), str(context)], log, seconds=3600)
    _prune_dangling_images()


def _prune_dangling_images() -> None:
    """Delete dangling images, except the newest: they are the layer cache."""
    buildah = _buildah(storage())
    command = [*buildah, "images", "--filter", "dangling=true", "--json"]
    output = subprocess.run(command, capture_output=True, check=False).stdout
    dangling = sorted(json.loads(output or b"[]") or [], key=lambda image: -int(image["created"]))
    for image in dangling[_MAX_DANGLING_IMAGES:]:
        # An image that another build is using stays until the next time.
        subprocess.run([*buildah, "rmi", str(image["id"])], capture_output=True, check=False)


def export(name: str, directory: Path, log: Path) -> None:
    """Write an image's blobs and `manifest.json` into a directory.

    Uncompressed: an image is read more often than it is kept, and compressing it takes longer than building it.
    """
    shutil.rmtree(directory, ignore_errors=True)
    target = f"dir:{directory}"
    logged([*_buildah(storage()), "push", "--format=oci", "--disable-compression", name, target], log, seconds=600)
