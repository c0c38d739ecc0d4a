"""Processes of the pod, as /proc shows them."""

from __future__ import annotations

import asyncio
import errno
import signal
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


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("/../../crio-app.scope/container", "crio-app.scope"),
        ("/../../crio-app.scope/container/nested", "crio-app.scope"),
        ("/../init", None),
        ("/", None),
        ("/../../../pod2/crio-app.scope/container", None),
    ],
)
def test_sibling_is_found_above_a_child_of_its_container(other: str, expected: str | None) -> None:
    assert sibling("/", other, "/../../crio-pause.scope/container") == expected


@pytest.mark.parametrize("init", ["/", "/..", "/../../init.scope", "/../../../init.scope"])
def test_init_of_the_host_is_not_a_pause_process(init: str) -> None:
    assert sibling("/", "/../../system.slice/sshd.service", init) is None


def write_process(proc: Path, pid: str, cgroup: str, state: str = "S", name: str = "app") -> None:
    directory = proc / pid
    directory.mkdir()
    (directory / "cgroup").write_text(cgroup)
    (directory / "stat").write_text(f"{pid} ({name}) {state}{' 1' * 49}")


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


def test_containers_of_crun_are_found(tmp_path: Path) -> None:
    for name in ("self", "7"):
        write_process(tmp_path, name, "0::/\n")
    write_process(tmp_path, "1", "0::/../../crio-pause.scope/container\n", name="pause")
    write_process(tmp_path, "20", "0::/../../crio-app.scope/container\n")
    processes = PodProcesses(time.monotonic, tmp_path)
    assert processes.containers() == {"crio-app.scope": frozenset({20})}


def test_process_in_unknown_control_group_is_a_problem(tmp_path: Path) -> None:
    for name in ("self", "7"):
        write_process(tmp_path, name, "0::/\n")
    write_process(tmp_path, "1", "0::/../pause\n", name="pause")
    write_process(tmp_path, "19", "0::/../app\n", "Z")
    processes = PodProcesses(time.monotonic, tmp_path)
    assert processes.problem() == ""
    write_process(tmp_path, "20", "0::/../../app/nested\n")
    assert processes.problem().startswith("process 20 is in the control group /../../app/nested, not in a container")


def test_containers_read_hierarchies_of_cgroups_v1(tmp_path: Path) -> None:
    write_process(tmp_path, "self", f"9:name=systemd:/\n8:pids:{V1}/own\n3:cpu,cpuacct:/\n0::/\n")
    write_process(tmp_path, "20", f"9:name=systemd:/\n8:pids:{V1}/app\n3:cpu,cpuacct:/\n0::/\n")
    assert PodProcesses(time.monotonic, tmp_path).containers() == {"app": frozenset({20})}


def start_python(code: str) -> subprocess.Popen[bytes]:
    """Run ``code`` and wait for its first line."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def is_zombie(process: subprocess.Popen[bytes]) -> bool:
    return ") Z " in Path(f"/proc/{process.pid}/stat").read_text()


def application(process: subprocess.Popen[bytes]) -> PodProcesses:
    return PodProcesses(time.monotonic, container_of=lambda entry: "app" if entry.name == str(process.pid) else None)


async def test_process_with_cut_name_is_ended() -> None:
    name = "prctl(15, 'a日本語サー'.encode(), 0, 0, 0)"
    process = start_python(f"import ctypes, time; ctypes.CDLL(None).{name}; print(1, flush=True); time.sleep(60)")
    with process:
        app = application(process)
        assert app.containers() == {"app": frozenset({process.pid})}
        await app.stop(["app"], time.monotonic())
    assert process.returncode == -signal.SIGKILL


async def test_process_without_main_thread_is_ended() -> None:
    thread = "threading.Thread(target=lambda: [(time.sleep(0.1), print(1, flush=True)) for _ in range(600)]).start()"
    process = start_python(f"import ctypes, threading, time; {thread}; ctypes.CDLL(None).pthread_exit(None)")
    with process:
        app = application(process)
        while not is_zombie(process):
            await asyncio.sleep(0.01)
        assert app.containers() == {"app": frozenset({process.pid})}
        await app.stop(["app"], time.monotonic())
        assert app.containers() == {}
    assert process.returncode == -signal.SIGKILL


def test_shared_process_namespace_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert "shareProcessNamespace: true" in PodProcesses(time.monotonic, tmp_path).problem()


def test_missing_system_call_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", refuse)
    assert "pidfd_open fails: Function not implemented" in PodProcesses(time.monotonic, tmp_path).problem()


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
