"""`down` removes all resources of a separate cluster from the host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.process import run

NAME = "leavings"
TITLE = f"steersman-devcluster-{NAME}"
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
DOWN_TIMEOUT_SECONDS = 120.0
FORWARDING = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")

USER = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: limited, resources: {requests: {storage: 300Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers:
  - {name: user, image: "steersman.dev/toolbox:dev", args: [pause], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"""


def run_devcluster(*arguments: str, seconds: float = 600) -> str:
    command = [sys.executable, "-m", "devcluster", *arguments]
    environment = {**os.environ, "DEVCLUSTER": NAME, "CLUSTER": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def namespaces(process: Path) -> set[str]:
    try:
        return {str((process / "ns" / kind).readlink()) for kind in KINDS}
    except OSError:
        return set()


def host_state() -> dict[str, object]:
    """Return interfaces, routes, rules and firewall settings of the host."""
    rules = run(["sh", "-c", "iptables-save; ip6tables-save"]).splitlines()
    # Announced routes have an expiry that decreases over time.
    lasting = re.compile(r" expires \d+sec")
    routes = {ip: run(["ip", f"-{ip}", "route", "show", "table", "all"]) for ip in (4, 6)}
    return {
        "interfaces": run(["sh", "-c", "ip -o link show | cut -d: -f2"]).split(),
        "routes": {ip: sorted(lasting.sub("", told).splitlines()) for ip, told in routes.items()},
        "policy": {ip: run(["ip", f"-{ip}", "rule"]) for ip in (4, 6)},
        "firewall": [line for line in rules if line.startswith("-")],
        "forwarding": {path: Path("/proc/sys/net", path).read_text() for path in FORWARDING},
    }


def cluster_leftovers() -> list[str]:
    """Return all directories, control groups, mounts, devices and processes of the cluster."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{TITLE}")]
    directories = [str(path) for place in ("/run", "/var/lib") for path in Path(place).glob(f"{TITLE}*")]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if TITLE in line]
    loops = [line for line in run(["losetup", "--list"]).splitlines() if TITLE in line]
    programs: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if TITLE in words:
            programs.append(f"{process.name} {words}")
    return groups + [each for each in directories if not each.endswith(".lock")] + mounts + loops + programs


@pytest.mark.disruptive
@pytest.mark.addresses
@pytest.mark.parametrize("crashed", [False, True], ids=["running", "crashed"])
def test_down_leaves_no_host_resources(crashed: bool) -> None:
    """`down` also does not wait for a node with packet loss."""
    run_devcluster("down")
    before = host_state()
    assert not cluster_leftovers()
    run_devcluster("up", "--nodes", "2")
    state = json.loads(Path(f"/var/lib/{TITLE}/state.json").read_text())
    firsts = [machine["first"][0] for machine in state["machines"].values()]
    own = set[str]().union(*(namespaces(Path(f"/proc/{pid}")) for pid in firsts)) - namespaces(Path("/proc/self"))
    assert len(own) == len(firsts) * 5
    kubectl = [f"{state['binaries']}/kubectl", f"--kubeconfig=/var/lib/{TITLE}/kubeconfig"]
    run([*kubectl, "apply", "--filename=-"], stdin=USER)
    run([*kubectl, "wait", "pod/user", "--for=condition=Ready", "--timeout=60s"], seconds=70)
    assert any("loop" in line for line in cluster_leftovers())
    assert host_state() != before

    run_devcluster("lose", "2", "--to", "100", "--sent", "30")
    if crashed:
        os.kill(firsts[0], signal.SIGKILL)
    run_devcluster("down", seconds=DOWN_TIMEOUT_SECONDS)

    assert cluster_leftovers() == []
    assert host_state() == before
    assert not [process for process in Path("/proc").glob("[0-9]*") if namespaces(process) & own]
    assert "There was no cluster" in run_devcluster("down")
