"""From an empty directory to a running operator within three minutes.

The machine is a container with Python, make, kubectl and a package index. The API server is real and outside of it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster import binaries, images
from devcluster.progress import Progress
from framework_support.fresh_machine import BINARIES, FreshMachine, fresh_machine
from framework_support.package_index import package_index
from framework_support.pty_terminal import CTRL_C, run_in_terminal
from steersman_testing.envtest import Envtest

CONTAINERFILE = Path(__file__).with_name("fresh_machine") / "Containerfile"
TIMEOUT_SECONDS = 180.0
KIND = ("--group", "mygroup", "--version", "v1alpha1", "--kind", "DatabaseUser")
PROJECT = "databaseuser"
ENDPOINTS = "--metrics-bind-address 0 --health-probe-bind-address 0 --debug-bind-address 127.0.0.1:8082"
# The terminal of a container loses its last output, so a file records it as well.
RUN = ("script", "--quiet", "--return", "--flush", "--command", f"make install run ARGS='{ENDPOINTS}'", "said")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FreshMachine]:
    progress = Progress()
    image = images.build(CONTAINERFILE, "steersman.dev/python:3.13", CONTAINERFILE.parent, {}, progress)
    wheels = package_index(tmp_path / "wheels")
    with fresh_machine(
        image.archive, tmp_path / "machine", wheels=wheels, binaries=binaries.ensure(progress)
    ) as made:
        yield made
    shutil.rmtree(wheels)


@pytest.fixture
def kubeconfig(machine: FreshMachine, envtest: Envtest) -> Path:
    """Write the kubeconfig to the default path of kubectl."""
    place = machine.home / ".kube/config"
    place.parent.mkdir()
    shutil.copyfile(envtest.kubeconfig, place)
    return place


@pytest.mark.requirement("programming/toolchain", "user/scaffold", "user/init")
def test_from_an_empty_folder_to_a_running_operator(
    machine: FreshMachine, kubeconfig: Path, record_property: Callable[[str, object], None]
) -> None:
    begun = time.monotonic()

    def told(what: str) -> None:
        record_property(f"seconds until {what}", round(time.monotonic() - begun, 1))

    machine.run("", "mkdir", PROJECT)
    machine.run("", "python3", "-m", "venv", "venv")
    machine.run("", "pip", "install", "--quiet", "steersman[cli]")
    machine.run(PROJECT, "steersman", "init", "--domain", "handsomeguy.cn", "--repo", "handsomeguy.cn/databaseuser")
    machine.run(PROJECT, "steersman", "create", "api", *KIND)
    told("it is written")
    assert "2 passed" in machine.run(PROJECT, "make", "test")
    told("its tests pass")
    with run_in_terminal(machine.command(PROJECT, *RUN, terminal=True)) as running:
        running.wait_for_text("cache synced")
        machine.run(PROJECT, "kubectl", "apply", "-k", "config/samples")
        ready = "--for=condition=Ready", "databaseuser/databaseuser-sample", "--timeout=60s"
        machine.run(PROJECT, "kubectl", "wait", *ready)
        told("its operator works")
        assert time.monotonic() - begun < TIMEOUT_SECONDS
        # The operator reloads saved changes.
        explained = machine.run(PROJECT, "steersman", "explain", "databaseuser", "default/databaseuser-sample")
        assert "created" in explained or "added" in explained or "initial" in explained, explained
        controller = machine.home / PROJECT / "src/databaseuser/controllers/databaseuser.py"
        text = controller.read_text()
        save_atomically(controller, text.replace("The cluster matches the spec.", "The cluster is ready."))
        running.wait_for_text("changed: src/databaseuser/controllers/databaseuser.py; restarting")
        running.wait_for_text("cache synced")
        machine.run(
            PROJECT, "kubectl", "wait", "--for=jsonpath={.status.conditions[0].message}=all is well", *ready[1:]
        )
        running.send_keys(CTRL_C)
        # The name of the key in make.
        assert running.wait() == 130, running.output
    said = (machine.home / PROJECT / "said").read_text()
    assert said.count("stopping caches and endpoints") == 2, said
    assert "Traceback" not in said
    assert "1 passed" in machine.run(PROJECT, "make", "test-integration", KUBEBUILDER_ASSETS=BINARIES)
    machine.run(PROJECT, "make", "check")
    machine.run(PROJECT, "kubectl", "delete", "-k", "config/samples")
    machine.run(PROJECT, "make", "uninstall")


def save_atomically(file: Path, text: str) -> None:
    """Write a temporary file and rename it, like an editor."""
    owner = file.stat()
    new = file.with_name(".new")
    new.write_text(text)
    os.chown(new, owner.st_uid, owner.st_gid)
    new.rename(file)
