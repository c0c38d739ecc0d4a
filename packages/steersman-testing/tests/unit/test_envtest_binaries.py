"""Which etcd and kube-apiserver are taken, and what one is told where there are none."""

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
    """A home directory without binaries."""
    for variable in ("KUBEBUILDER_ASSETS", "USE_EXISTING_CLUSTER", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def binaries(directory: Path, version: str = "1.36.3", without: str = "") -> Path:
    """Programs which tell their version."""
    directory.mkdir(parents=True)
    for name in {"etcd", "kube-apiserver"} - {without}:
        program = directory / name
        program.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        program.chmod(0o755)
    return directory


def stored(home: Path, version: str, system: str = HERE) -> Path:
    return binaries(home / ".local/share/kubebuilder-envtest/k8s" / f"{version}-{system}")


def built(home: Path, key: str, version: str = "1.36.3", without: str = "") -> Path:
    return binaries(home / ".cache/steersman/binaries" / key / "bin", version, without)


def test_what_is_named_comes_first_then_the_variable_then_the_store_then_the_devcluster(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = built(home, "a")
    assert find_binaries() == cluster
    store = stored(home, "1.30.0")
    assert find_binaries() == store
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "variable")))
    assert find_binaries() == home / "variable"
    assert find_binaries(binaries(home / "named")) == home / "named"


def test_of_the_store_the_newest_version_for_this_machine_is_taken(home: Path) -> None:
    expected = stored(home, "1.31.10")
    for other in ("1.31.9", "1.4.0", "1.31.10-rc.1"):
        stored(home, other)
    stored(home, "1.99.0", "plan9-mips")
    binaries(expected.with_name(f"1.98.0-{HERE}"), without="etcd")
    expected.with_name(f"k8s-{HERE}").mkdir()
    assert find_binaries() == expected


def test_the_store_is_where_the_variables_say(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    expected = binaries(home / "data/kubebuilder-envtest/k8s" / f"1.36.0-{HERE}")
    assert find_binaries() == expected
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    name = f"1.36.0-darwin-{MACHINE}"
    expected = binaries(home / "Library/Application Support/io.kubebuilder.envtest/k8s" / name)
    assert find_binaries() == expected


def test_of_the_devclusters_builds_the_latest_is_taken(home: Path) -> None:
    for number, key in enumerate(("older", "newer", "incomplete")):
        os.utime(built(home, key, without="kube-apiserver" if key == "incomplete" else ""), (number, number))
    assert find_binaries().parent.name == "newer"


@pytest.mark.parametrize("version", ["1.31", "1.31.2", "v1.31", "1.31.x"])
def test_the_asked_version_is_taken(home: Path, version: str) -> None:
    expected = stored(home, "1.31.2")
    stored(home, "1.36.0")
    stored(home, "1.3.1")
    built(home, "a", "1.33.4")
    assert find_binaries(version=version) == expected
    assert find_binaries(version="1.33").parent.name == "a"


def test_a_version_that_is_not_there_is_told_with_those_that_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(home, "1.31.2")
    built(home, "a", "1.36.3")
    with pytest.raises(
        ConfigurationError, match=r"no Kubernetes 1\.35 in .*, only 1\.31\.2, 1\.36\.3: run `setup-envtest use 1\.35`"
    ):
        find_binaries(version="1.35")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "variable", "1.34.1")))
    with pytest.raises(
        ConfigurationError, match=r"KUBEBUILDER_ASSETS: .*/variable has Kubernetes 1\.34\.1, not 1\.35"
    ):
        find_binaries(version="1.35")


def test_nothing_at_all_is_told_with_what_to_do(home: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Envtest.start()
    said = str(caught.value)
    assert str(home / ".local/share/kubebuilder-envtest/k8s") in said
    assert str(home / ".cache/steersman/binaries") in said
    assert "Run `setup-envtest use` or `python -m devcluster build` in a checkout of Steersman" in said
    assert "set KUBEBUILDER_ASSETS to a directory that has both" in said


def test_a_named_directory_that_is_incomplete_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigurationError, match="nowhere is not a directory; it should have etcd and kube-apiserver"
    ):
        find_binaries(home / "nowhere")
    with pytest.raises(ConfigurationError, match="has no etcd: point KUBEBUILDER_ASSETS at a complete set"):
        find_binaries(home)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries(home / "half", without="kube-apiserver")))
    with pytest.raises(ConfigurationError, match=r"KUBEBUILDER_ASSETS: .*/half has no kube-apiserver"):
        Envtest.start()


def test_a_program_that_does_not_tell_its_version_is_told(home: Path) -> None:
    (built(home, "a") / "kube-apiserver").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ConfigurationError, match=r"kube-apiserver does not tell its version: .*exit status 3"):
        find_binaries(version="1.36")


def test_without_the_extra_it_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(home, "a")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"cryptography is missing: install steersman\[testing\]"):
        Envtest.start()
