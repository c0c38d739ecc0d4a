"""OCI image archives of single static binaries (github.com/opencontainers/image-spec, image-layout.md)."""

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

COREDNS = "steersman.dev/coredns:dev"
PAUSE = "steersman.dev/pause:dev"
TOOLBOX = "steersman.dev/toolbox:dev"

_MEDIA_TYPE_PREFIX = "application/vnd.oci.image"


@dataclass
class _ArchiveWriter:
    """Writer of an archive; stores files under their digests."""

    file: tarfile.TarFile
    written: set[str] = field(default_factory=set[str])

    def add(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        entry.mode = 0o644
        self.file.addfile(entry, io.BytesIO(content))

    def blob(self, media_type: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.written:
            self.written.add(digest)
            self.add(f"blobs/sha256/{digest}", content)
        return {"mediaType": f"{_MEDIA_TYPE_PREFIX}.{media_type}", "digest": f"sha256:{digest}", "size": len(content)}


def _layer(binary: Path) -> bytes:
    """Return a layer with `/bin/NAME` and the directories that runtimes need."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            directory = tarfile.TarInfo(name)
            directory.type = tarfile.DIRTYPE
            directory.mode = mode
            layer.addfile(directory)
        program = tarfile.TarInfo(f"bin/{binary.name}")
        program.size = binary.stat().st_size
        program.mode = 0o755
        with binary.open("rb") as content:
            layer.addfile(program, content)
    return buffer.getvalue()


def write(archive: Path, images: dict[str, tuple[Path, list[str]]], architecture: str) -> None:
    """Write an archive of `images`: name to static binary and default arguments.

    `architecture` is Go's name, such as `amd64`.
    """
    index: list[dict[str, object]] = []
    with tarfile.open(archive, "w") as file:
        writer = _ArchiveWriter(file)
        for name, (binary, arguments) in images.items():
            layer = _layer(binary)
            descriptor = writer.blob("layer.v1.tar", layer)
            config = {
                "architecture": architecture,
                "os": "linux",
                "config": {
                    "Env": ["PATH=/bin"],
                    "Entrypoint": [f"/bin/{binary.name}"],
                    "Cmd": arguments,
                },
                "rootfs": {"type": "layers", "diff_ids": [descriptor["digest"]]},
            }
            manifest = {
                "schemaVersion": 2,
                "mediaType": f"{_MEDIA_TYPE_PREFIX}.manifest.v1+json",
                "config": writer.blob("config.v1+json", json.dumps(config).encode()),
                "layers": [descriptor],
            }
            entry = writer.blob("manifest.v1+json", json.dumps(manifest).encode())
            index.append({**entry, "annotations": {"io.containerd.image.name": name}})
        writer.add("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        writer.add("index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())


def ensure(binaries: Path, architecture: str) -> list[Path]:
    """Return the archives of the cluster's own images.

    The first contains the pause image, the second CoreDNS.
    """
    toolbox = (binaries / "toolbox", ["pause"])
    contents: dict[str, dict[str, tuple[Path, list[str]]]] = {
        "toolbox.oci.tar": {PAUSE: toolbox, TOOLBOX: toolbox},
        "coredns.oci.tar": {COREDNS: (binaries / "coredns", [])},
    }
    directory = binaries.parent / "images"
    directory.mkdir(exist_ok=True)
    archives: list[Path] = []
    for name, images in contents.items():
        archive = directory / name
        if not archive.exists():
            unfinished = archive.with_suffix(".unfinished")
            write(unfinished, images, architecture)
            unfinished.rename(archive)
        archives.append(archive)
    return archives
