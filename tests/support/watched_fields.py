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
_READY = "{.endpoints[?(@.conditions.ready==true)].targetRef.name}"


class Somewhere(Protocol):
    """A namespace on a cluster."""

    @property
    def target(self) -> Target: ...

    @property
    def namespace(self) -> str: ...


class Watch:
    """When a field of an object got which value: asking again and again takes too long to tell."""

    def __init__(self, at: Somewhere, kind: str, name: str, field: str) -> None:
        config = [] if at.target.kubeconfig is None else [f"--kubeconfig={at.target.kubeconfig}"]
        command = [at.target.kubectl_path, *config, f"--namespace={at.namespace}"]
        command += ["get", kind, name, "--watch", f"--output=jsonpath={field}{{'\\n'}}"]
        self.seen: list[tuple[float, str]] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        wait_until(f"{kind} {name} is watched", lambda: bool(self.seen), seconds=20)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.seen.append((time.time(), line.strip()))

    def moment(self, what: str, right: Callable[[str], bool]) -> float:
        """Waits until it has a value that is right, and gives when it had the first such one."""
        return wait_until(what, lambda: next((at for at, seen in self.seen if right(seen)), None), seconds=60)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def watching(at: Somewhere, kind: str, name: str, field: str) -> Generator[Watch]:
    watch = Watch(at, kind, name, field)
    try:
        yield watch
    finally:
        watch.end()


def endpoints(at: Somewhere, service: str) -> AbstractContextManager[Watch]:
    """The pods that a Service leads to, one after the other in a line."""
    chosen = f"--selector=kubernetes.io/service-name={service}"
    found = at.target.get("endpointslices", f"--namespace={at.namespace}", chosen) or {"items": []}
    of_ip = (s for s in found["items"] if s["addressType"] == f"IPv{layout.IP}")
    # Kubernetes keeps another for it, which has none.
    name = next(s["metadata"]["name"] for s in of_ip if s.get("endpoints"))
    return watching(at, "endpointslice", name, _READY)
