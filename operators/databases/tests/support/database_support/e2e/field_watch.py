"""When a field of an object got which value, and when Services led where."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from devcluster import layout
from devcluster.target import Target, wait_until

FOLLOWS = 2.0
"""Seconds in which Services follow roles, as is promised."""
ROLE = "{.metadata.labels.databases\\.steersman\\.dev/role}"
# By a path, kubectl gives up on a slice that has no endpoints at the moment.
_READY = '{{range .endpoints}}{{if .conditions.ready}}{{.targetRef.name}} {{end}}{{end}}{{"\\n"}}'


class WatchTarget(Protocol):
    """A namespace on a cluster."""

    @property
    def target(self) -> Target: ...

    @property
    def namespace(self) -> str: ...


class FieldWatch:
    """When kubectl said which line, as it goes on saying them: asking again and again takes too long to tell."""

    def __init__(self, at: WatchTarget, what: str, *arguments: str) -> None:
        config = [] if at.target.kubeconfig is None else [f"--kubeconfig={at.target.kubeconfig}"]
        command = [at.target.kubectl_path, *config, f"--namespace={at.namespace}", *arguments]
        self.lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            wait_until(f"{what} is watched", lambda: bool(self.lines), seconds=20)
        except BaseException:
            self.end()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.time(), line.strip()))

    def wait_for(self, what: str, right: Callable[[str], bool]) -> float:
        """Waits until it has a value that is right, and gives when it had the first such one."""
        return wait_until(what, lambda: next((at for at, seen in self.lines if right(seen)), None), seconds=60)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def watching_field(at: WatchTarget, kind: str, name: str, field: str) -> Generator[FieldWatch]:
    """When a field of an object got which value."""
    output = f"--output=jsonpath={field}{{'\\n'}}"
    with watching_command(at, f"{kind} {name}", "get", kind, name, "--watch", output) as watch:
        yield watch


@contextmanager
def watching_command(at: WatchTarget, what: str, *arguments: str) -> Generator[FieldWatch]:
    """What a command of kubectl says that does not end by itself."""
    watch = FieldWatch(at, what, *arguments)
    try:
        yield watch
    finally:
        watch.end()


def lock_was_released(lock: FieldWatch, former: str) -> bool:
    """Whether Patroni's lock was given back by the pod that had it: one that expires is another's at once."""
    return next((holder for _, holder in lock.lines if holder != former), former) == ""


def endpoints(at: WatchTarget, service: str) -> AbstractContextManager[FieldWatch]:
    """The pods that a Service leads to, one after the other in a line."""
    chosen = f"--selector=kubernetes.io/service-name={service}"
    found = at.target.get("endpointslices", f"--namespace={at.namespace}", chosen) or {"items": []}
    of_ip = (s for s in found["items"] if s["addressType"] == f"IPv{layout.IP_FAMILY}")
    # Kubernetes keeps another for it, which has none.
    name = next(s["metadata"]["name"] for s in of_ip if s.get("endpoints"))
    return watching_command(
        at, f"slice {name}", "get", "endpointslice", name, "--watch", f"--output=go-template={_READY}"
    )
