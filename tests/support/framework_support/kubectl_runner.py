"""kubectl with output normalized for comparison."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from pathlib import Path
from typing import NamedTuple

from steersman_testing.envtest.binaries import find_binaries

_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "TIME"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r'(resourceVersion: )"\d+"'), r"\1VERSION"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1VERSION"),
    (re.compile(r"(?<=[\s(])(\d+m)?\d+s\b"), "AGE"),
    (re.compile(r"/\S*/(LIVE|MERGED)-\d+/(\S+)\s+\S+ \S+ \S+"), r"\1/\2"),
    (re.compile(r"/\S*/(LIVE|MERGED)-\d+/"), r"\1/"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


class KubectlOutput(NamedTuple):
    """Exit code and output of kubectl."""

    code: int
    text: str

    @property
    def stable(self) -> KubectlOutput:
        """Output without ages, times, UIDs, addresses, versions and column widths."""
        text = self.text
        for pattern, stands_for in _VOLATILE:
            text = pattern.sub(stands_for, text)
        return KubectlOutput(self.code, text)


class Kubectl:
    """Runs kubectl in one namespace.

    Args:
        kubeconfig: kubeconfig file.
        home: home directory with caches and manifests.
        namespace: default namespace.
    """

    def __init__(self, kubeconfig: Path, home: Path, namespace: str) -> None:
        self._program = str(find_binaries() / "kubectl")
        self._kubeconfig, self._cache_directory, self._namespace = kubeconfig, home, namespace

    async def __call__(self, *arguments: str, stdin: str = "", editor: str = "") -> KubectlOutput:
        """Run kubectl and return its output."""
        process = await self.start(*arguments, editor=editor)
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode() or None), 30)
        assert process.returncode is not None
        return KubectlOutput(process.returncode, output.decode())

    async def start(self, *arguments: str, editor: str = "") -> Process:
        """Start kubectl with its output in a pipe."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._cache_directory),
            "KUBECONFIG": str(self._kubeconfig),
            "KUBE_EDITOR": editor,
            "TMPDIR": str(self._cache_directory),
        }
        return await asyncio.create_subprocess_exec(
            self._program,
            "--namespace",
            self._namespace,
            *arguments,
            stdin=PIPE if arguments[-1:] == ("-",) else DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=environment,
            cwd=self._cache_directory,
        )
