"""File modes in the built image of the operator, which runs under any user with group 0."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from collections.abc import Iterator

from devcluster.images import OPERATOR, ensure
from devcluster.progress import Progress

PROGRAM = ("opt/steersman/", "opt/operator/", "usr/bin/", "usr/lib/python3")


def test_operator_image_is_readable_by_group_zero() -> None:
    members = {member.name.removeprefix("./"): member for member in _members()}
    program = {name: member for name, member in members.items() if name.startswith(PROGRAM) and not member.issym()}
    assert any(name.endswith("steersman_databases/main.py") for name in program)
    assert {name for name, member in program.items() if not _is_usable(member)} == set()


def _members() -> Iterator[tarfile.TarInfo]:
    """Yield the files of all layers."""
    with tarfile.open(ensure(OPERATOR, Progress()).archive) as archive:

        def blob(digest: str) -> bytes:
            content = archive.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert content is not None
            return content.read()

        index = archive.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as files:
                yield from files


def _is_usable(member: tarfile.TarInfo) -> bool:
    """Return True if a user who is in group 0 only may read it, and run what its owner may run."""
    bits = member.mode | ((member.mode & stat.S_IRWXG) >> 3 if member.gid == 0 else 0)
    needs_x = member.isdir() or member.mode & stat.S_IXUSR
    return bool(bits & stat.S_IROTH) and (not needs_x or bool(bits & stat.S_IXOTH))
