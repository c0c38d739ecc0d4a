"""Selection of etcd and kube-apiserver, and advice if they are missing."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from steersman.errors import ConfigurationError
from steersman_testing.envtest import Envtest, find_binaries

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
HERE = f"{sys.platform}-{MACHINE}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home directory without binaries."""
    for variable in ("KUBEBUILDER_ASSETS", "USE_EXISTING_CLUSTER", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def binaries(directory: Path, version: str = "1.36.3", without: str = "") -> Path:
    """Create programs that print their version."""
    directory.mkdir(parents=True)
    for name in {"etcd", "kube-apiserver"} - {without}:
        program = directory / name
        program.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        program.chmod(0o755)
    return directory


def add_to_store(home: Path, version: str, system: str = HERE) -> Path:
    return binaries(home / ".local/share/kubebuilder-envtest/k8s" / f"{version}-{system}")


def add_build(home: Path, key: str, version: str = "1.36.3", without: str = "") -> Path:
    return binaries(home / ".cache/steersman/binaries" / key / "bin", version, without)


def test_find_binaries_order_argument_variable_store_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = add_build(home, "a")
    assert find_binaries() == cluster
    store = add_to_store(home, "1.30.0")
    assert find_binaries() == store
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "variable")))
    assert find_binaries() == home / "variable"
    assert find_binaries(binaries(home / "named")) == home / "named"


def test_find_binaries_takes_newest_for_platform(home: Path) -> None:
    expected = add_to_store(home, "1.31.10")
    for other in ("1.31.9", "1.4.0", "1.31.10-rc.1"):
        add_to_store(home, other)
    add_to_store(home, "1.99.0", "plan9-mips")
    binaries(expected.with_name(f"1.98.0-{HERE}"), without="etcd")
    expected.with_name(f"k8s-{HERE}").mkdir()
    assert find_binaries() == expected


def test_find_binaries_store_follows_variables(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    expected = binaries(home / "data/kubebuilder-envtest/k8s" / f"1.36.0-{HERE}")
    assert find_binaries() == expected
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    name = f"1.36.0-darwin-{MACHINE}"
    expected = binaries(home / "Library/Application Support/io.kubebuilder.envtest/k8s" / name)
    assert find_binaries() == expected


def test_find_binaries_takes_latest_devcluster_build(home: Path) -> None:
    for number, key in enumerate(("older", "newer", "incomplete")):
        os.utime(add_build(home, key, without="kube-apiserver" if key == "incomplete" else ""), (number, number))
    assert find_binaries().parent.name == "newer"


@pytest.mark.parametrize("version", ["1.31", "1.31.2", "v1.31", "1.31.x"])
def test_find_binaries_takes_requested_version(home: Path, version: str) -> None:
    expected = add_to_store(home, "1.31.2")
    add_to_store(home, "1.36.0")
    add_to_store(home, "1.3.1")
    add_build(home, "a", "1.33.4")
    assert find_binaries(version=version) == expected
    assert find_binaries(version="1.33").parent.name == "a"


def test_find_binaries_missing_version_lists_available(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_store(home, "1.31.2")
    add_build(home, "a", "1.36.3")
    with pytest.raises(
        ConfigurationError, match=r"no Kubernetes 1\.35 in .*, only 1\.31\.2, 1\.36\.3: run `setup-envtest use 1\.35`"
    ):
        find_binaries(version="1.35")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "variable", "1.34.1")))
    with pytest.raises(
        ConfigurationError, match=r"KUBEBUILDER_ASSETS: .*/variable has Kubernetes 1\.34\.1, not 1\.35"
    ):
        find_binaries(version="1.35")


def test_start_without_binaries_raises_with_remedy(home: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Envtest.start()
    said = str(caught.value)
    assert str(home / ".local/share/kubebuilder-envtest/k8s") in said
    assert str(home / ".cache/steersman/binaries") in said
    assert "Run `setup-envtest use` or `python -m devcluster build` in a checkout of Steersman" in said
    assert "set KUBEBUILDER_ASSETS to a directory that has both" in said


def test_start_with_incomplete_directory_raises(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigurationError, match="nowhere is not a directory; it should have etcd and kube-apiserver"
    ):
        find_binaries(home / "nowhere")
    with pytest.raises(ConfigurationError, match="has no etcd: point KUBEBUILDER_ASSETS at a complete set"):
        find_binaries(home)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "half", without="kube-apiserver")))
    with pytest.raises(ConfigurationError, match=r"KUBEBUILDER_ASSETS: .*/half has no kube-apiserver"):
        Envtest.start()


def test_find_binaries_unreadable_version_raises(home: Path) -> None:
    (add_build(home, "a") / "kube-apiserver").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ConfigurationError, match=r"kube-apiserver does not print its version: .*exit status 3"):
        find_binaries(version="1.36")


def test_start_without_extra_raises_with_remedy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_build(home, "a")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(
        ConfigurationError, match=r"cryptography is missing: install the dependencies of steersman-testing"
    ):
        Envtest.start()
