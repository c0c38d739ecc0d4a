"""Processes of the pod, as /proc shows them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from leader_operator.sidecar import processes
from leader_operator.sidecar.processes import PodProcesses, sibling

V1 = "/kubepods/burstable/pod1"


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param("/", "/../cri-containerd-app.scope", "cri-containerd-app.scope", id="v2"),
        pytest.param("/", "/../cri-app.scope/nested/deeper", "cri-app.scope", id="v2 nested"),
        pytest.param("/", "/", None, id="v2 own"),
        pytest.param("/", "/child", None, id="v2 own child"),
        pytest.param("/", "/../../pod2/cri-app.scope", None, id="v2 other pod"),
        pytest.param("/", "/../../../system.slice/sshd.service", None, id="v2 host"),
        pytest.param(f"{V1}/own", f"{V1}/app", "app", id="v1"),
        pytest.param(f"{V1}/own", f"{V1}/app/nested", "app", id="v1 nested"),
        pytest.param(f"{V1}/own", f"{V1}/own", None, id="v1 own"),
        pytest.param(f"{V1}/own", f"{V1}/own/child", None, id="v1 own child"),
        pytest.param(f"{V1}/own", "/kubepods/burstable/pod2/app", None, id="v1 other pod"),
        pytest.param(f"{V1}/own", "/kubepods/burstable/pod12/app", None, id="v1 longer name"),
        pytest.param(f"{V1}/own", "/system.slice/sshd.service", None, id="v1 host"),
    ],
)
def test_sibling_is_a_container_of_the_same_pod(own: str, other: str, expected: str | None) -> None:
    assert sibling(own, other) == expected


def write_process(proc: Path, pid: str, cgroup: str, state: str = "S", name: str = "app") -> None:
    directory = proc / pid
    directory.mkdir()
    (directory / "cgroup").write_text(cgroup)
    (directory / "stat").write_text(f"{pid} ({name}) {state} 1 1 1")


def test_containers_omit_pause_own_and_dead_processes(tmp_path: Path) -> None:
    for name in ("self", "7"):
        write_process(tmp_path, name, "0::/\n")
    write_process(tmp_path, "1", "0::/../pause\n", name="pause")
    write_process(tmp_path, "20", "0::/../app\n", name="a) Z (b")
    write_process(tmp_path, "21", "0::/../app\n", "Z")
    write_process(tmp_path, "22", "0::/../app\n", "T")
    write_process(tmp_path, "30", "0::/../../other/app\n")
    (tmp_path / "meminfo").write_text("")
    assert PodProcesses(time.monotonic, tmp_path).containers() == {"app": frozenset({20, 22})}


def test_containers_read_hierarchies_of_cgroups_v1(tmp_path: Path) -> None:
    write_process(tmp_path, "self", f"9:name=systemd:/\n8:pids:{V1}/own\n3:cpu,cpuacct:/\n0::/\n")
    write_process(tmp_path, "20", f"9:name=systemd:/\n8:pids:{V1}/app\n3:cpu,cpuacct:/\n0::/\n")
    assert PodProcesses(time.monotonic, tmp_path).containers() == {"app": frozenset({20})}


def test_shared_process_namespace_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert "shareProcessNamespace: true" in PodProcesses(time.monotonic, tmp_path).problem()


def test_process_of_another_user_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", refuse)
    write_process(tmp_path, "self", "0::/\n")
    write_process(tmp_path, "20", "0::/../app\n")
    assert "set the same runAsUser" in PodProcesses(time.monotonic, tmp_path).problem()


def test_module_imports_the_standard_library_only() -> None:
    source = Path(processes.__file__).parents[2]
    command = [sys.executable, "-c", "import sys, leader_operator.sidecar.processes; print(*sys.modules)"]
    modules = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout.split()
    assert "leader_operator.sidecar.processes" in modules
    assert [name for name in modules if name.startswith(("steersman", "msgspec", "structlog"))] == []
