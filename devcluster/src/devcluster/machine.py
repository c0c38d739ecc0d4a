"""A machine of the cluster: processes with their own namespaces.

The first process of a machine owns its namespaces, see namespaces(7). When it ends, the kernel ends all other
processes of the machine. Mounts, network devices and firewall rules go with the last one, so nothing leaks to the
host.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devcluster import layout, process
from devcluster.errors import NotReady
from devcluster.process import Process

# /run is the machine's own, except the directory of its sockets, which the host reaches too. The kubelet insists on
# some kernel settings that all of the host shares; it is shown the values it wants, and the host keeps its own.
BOOT_SCRIPT = """
set -eu
mount --make-rshared /
mount -t proc proc /proc
echo "$NAME" > /proc/sys/kernel/hostname
mkdir -p "$DIRECTORY/sockets" "$DIRECTORY/sysctl"
for setting in $SETTINGS; do
    echo "${setting#*=}" > "$DIRECTORY/sysctl/${setting%%=*}"
    mount --bind "$DIRECTORY/sysctl/${setting%%=*}" "/proc/sys/$(echo "${setting%%=*}" | tr . /)"
done
mount --bind "$RUN" "$DIRECTORY/sockets"
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p "$RUN" /run/netns /run/lock
mount --bind "$DIRECTORY/sockets" "$RUN"
for own in log:/var/log cni:/var/lib/cni; do
    mkdir -p "$DIRECTORY/${own%%:*}" "${own#*:}"
    mount --bind "$DIRECTORY/${own%%:*}" "${own#*:}"
done
ip link set lo up
[ "$IP" = 6 ] || for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6 || true; done
exec "$INIT" pause
"""

# kubernetes/pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables
KUBELET_SYSCTLS = {
    "vm.overcommit_memory": 1,
    "vm.panic_on_oom": 0,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "kernel.keys.root_maxkeys": 1_000_000,
    "kernel.keys.root_maxbytes": 25_000_000,
}

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


@dataclass
class Machine:
    """A machine and the components that were started in it.

    `first` is its first process; `components` maps a component's name to its process.
    """

    name: str
    init: Process
    components: dict[str, Process] = field(default_factory=dict[str, Process])

    @classmethod
    def boot(cls, name: str, directory: Path, init: Path) -> "Machine":
        """Start a machine; the `pause` command of `init` reaps orphans.

        Raises NotReady, naming the log, if it does not come up within 10 s.
        """
        run_directory = layout.RUN / name
        for path in (directory, run_directory):
            path.mkdir(parents=True, exist_ok=True)
        init_copy = directory / "init"  # its own copy: the cache it comes from may be cleaned while it runs
        shutil.copyfile(init, init_copy)
        init_copy.chmod(0o755)
        log = layout.LOGS / f"{name}.log"
        settings = " ".join(f"{key}={value}" for key, value in KUBELET_SYSCTLS.items())
        variables = [
            f"NAME={name}",
            f"DIRECTORY={directory}",
            f"RUN={run_directory}",
            f"INIT={init_copy}",
            f"IP={layout.IP_FAMILY}",
            f"SETTINGS={settings}",
        ]
        unshare = process.start(
            ["unshare", "--fork", "--kill-child", *NAMESPACES, "env", *variables, "sh", "-c", BOOT_SCRIPT], log
        )
        deadline = time.monotonic() + 10
        while True:
            child = unshare.child()
            if child is not None and child.executable() == init_copy:
                return cls(name, child)
            if not unshare.alive() or time.monotonic() > deadline:
                raise NotReady(f"machine {name} does not start; see {log}")
            time.sleep(0.01)

    def alive(self) -> bool:
        """Return True if the machine runs."""
        return self.init.alive()

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside the machine."""
        return ["nsenter", "--target", str(self.init.pid), *NAMESPACES, "--", *command]

    def in_network(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in the machine's network only."""
        return ["nsenter", "--target", str(self.init.pid), "--net", "--", *command]

    def start(self, component: str, command: Sequence[str]) -> None:
        """Start a component, unless it runs already; its output goes to `log(component)`.

        Raises NotReady, naming the log, if it ends at once.
        """
        if self.is_running(component):
            return
        log = self.log(component)
        nsenter = process.start(self.enter(command), log)
        deadline = time.monotonic() + 5
        while (child := nsenter.child()) is None:
            if not nsenter.alive() or time.monotonic() > deadline:
                raise NotReady(f"{component} ended at once; see {log}")
            time.sleep(0.005)
        self.components[component] = child

    def is_running(self, component: str) -> bool:
        """Return True if the component runs."""
        component_process = self.components.get(component)
        return component_process is not None and component_process.alive()

    def log(self, component: str) -> Path:
        """The component's log file."""
        prefix = "" if self.name == layout.CONTROL_PLANE else f"{self.name}-"
        return layout.LOGS / f"{prefix}{component}.log"

    def kill(self) -> None:
        """End the machine and everything in it."""
        self.init.kill()
        self.init.wait(10)
        for component in self.components.values():
            component.wait(10)
