"""Archives of static binaries are valid OCI image layouts."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from devcluster import oci


def archive(tmp_path: Path) -> dict[str, bytes]:
    binary = tmp_path / "tool"
    binary.write_bytes(b"\x7fELF and so on")
    path = tmp_path / "images.tar"
    oci.write(path, {"a.dev/one:1": (binary, ["pause"]), "a.dev/two:2": (binary, ["pause"])}, "amd64")
    files: dict[str, bytes] = {}
    with tarfile.open(path) as file:
        for member in file:
            content = file.extractfile(member)
            assert content is not None
            assert member.name not in files, "nothing is stored twice"
            files[member.name] = content.read()
    return files


def blob(files: dict[str, bytes], descriptor: dict[str, str]) -> bytes:
    content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(content) == int(descriptor["size"])
    return content


def test_every_blob_has_the_digest_of_its_name(tmp_path: Path) -> None:
    for name, content in archive(tmp_path).items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def test_each_image_starts_its_binary(tmp_path: Path) -> None:
    files = archive(tmp_path)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    entries = json.loads(files["index.json"])["manifests"]
    assert [entry["annotations"]["io.containerd.image.name"] for entry in entries] == ["a.dev/one:1", "a.dev/two:2"]
    for entry in entries:
        manifest = json.loads(blob(files, entry))
        config = json.loads(blob(files, manifest["config"]))
        assert (config["os"], config["architecture"]) == ("linux", "amd64")
        assert config["config"]["Entrypoint"] == ["/bin/tool"]
        assert config["config"]["Cmd"] == ["pause"]
        layer = blob(files, manifest["layers"][0])
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        with tarfile.open(fileobj=io.BytesIO(layer)) as tree:
            assert tree.getmember("bin/tool").mode == 0o755
            assert tree.getmember("tmp").mode == 0o1777


def test_archives_are_written_once(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("toolbox", "coredns"):
        (binaries / name).write_bytes(name.encode())
    first = oci.ensure(binaries, "amd64")
    before = [path.stat().st_mtime_ns for path in first]
    assert oci.ensure(binaries, "amd64") == first
    assert [path.stat().st_mtime_ns for path in first] == before
