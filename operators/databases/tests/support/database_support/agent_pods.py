"""Pods of MySQL instances in a simulation: the real agent in each, a process of its own over a model of mysqld.

Agents' requests to the API server and their statements are numbered, and who makes one may be killed before it, with
its server. Its container is started again then.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from urllib.parse import parse_qsl

from database_support.modelled_server import ModelServer
from database_support.mysql_model import Mysqld, Servers
from database_support.patroni_model import is_fenced
from database_support.strands import Killed, Strand, StrandExecutor, wait_for
from steersman.api.core_v1 import Pod
from steersman.client import Client, HttpRequest, MergePatch
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_agent import agent, certificates, condition, kubernetes, leader, log, parameters, publishing
from steersman_agent.agent import Agent, Cluster
from steersman_agent.server import Place
from steersman_databases.engines.cluster_names import INSTANCE_LABEL, MEMBER_OF_LABEL, ClusterNames
from steersman_pod import api_server, leading
from steersman_pod.api_server import Answer, Request
from steersman_testing import InMemoryApiServer

_EVERY = 1.1  # seconds between two looks of an agent
_CALM = 30.0  # the same, where all is well and nothing has happened
_AWAKE = 5.0  # seconds in which it has read all anew, after something has happened
_BACK_OFF = 2.0  # seconds until a container is started again
_WITH_TIME = (agent, certificates, condition, leader, parameters, publishing)


class Agents:
    """What happens to agents in a run.

    Args:
        crash: who makes the call of this number is killed before it; 0 for nobody.

    Attributes:
        calls: those of all of them so far.
        acted: how many they had made when the scenario had ended.
        said: what they logged.
    """

    def __init__(self, crash: int = 0) -> None:
        self.crash = crash
        self.begin()

    def begin(self) -> None:
        """Another run begins, in which the same happens."""
        self._chance = random.Random(0)
        self.calls: list[str] = []
        self.acted = 0
        self.said: list[str] = []

    async def call(self, what: str, seconds: float = 0.0) -> None:
        """On its way for a time. Raises Killed."""
        await asyncio.sleep(seconds + self._chance.uniform(0.005, 0.05))
        self.calls.append(what)
        if self.crash == len(self.calls):
            raise Killed


class AgentPods:
    """What runs in the pods of instances: see ``cluster_kubelet.Members``."""

    def __init__(self, api: InMemoryApiServer, client: Client, servers: Servers, agents: Agents) -> None:
        self.api, self.client, self.servers, self.agents = api, client, servers, agents
        self.away: set[str] = set()
        """Pods whose containers are not started again."""
        self._containers: dict[str, Container] = {}
        self._files = tempfile.TemporaryDirectory(prefix="agents-")

    def news(self) -> object:
        """Which containers have ended."""
        return sum(container.ended for container in self._containers.values())

    async def look(self) -> None:
        """Starts what is to run."""
        for pod in self.api.read_all(Pod):
            uid = pod.metadata.uid
            if MEMBER_OF_LABEL in pod.metadata.labels and pod.status.pod_ip and uid not in self._containers:
                directory = Path(self._files.name) / pod.metadata.annotations["volume"]
                container = self._containers[uid] = Container(self, pod, directory)
                if not is_fenced(pod):
                    container.start()

    def ended(self, pod: Pod) -> bool:
        """Whether nothing runs in it any more. It is told to end."""
        container = self._containers.get(pod.metadata.uid)
        if container is None or container.ended:
            return True
        container.stop()
        return False

    def kill(self, name: str) -> None:
        """The container of the pod of this name, at once; it is started again."""
        for container in self._containers.values():
            if container.pod.metadata.name == name and not container.ended:
                container.kill()

    def _say(self, about: str, words: str) -> None:
        self.agents.said.append(f"{self.servers.clock():.1f} {about}: {words}")

    async def close(self) -> None:
        """Ends all at once."""
        await asyncio.gather(*(container.close() for container in self._containers.values()))
        self._files.cleanup()

    @contextmanager
    def in_virtual_time(self) -> Generator[None]:
        """Agents know no other; the disk of this machine is not theirs."""
        clock = asyncio.get_running_loop().time

        def clock_gettime(_: int) -> float:
            return clock()

        def levels(*_: object) -> dict[str, int]:
            return {}

        told = SimpleNamespace(monotonic=clock, clock_gettime=clock_gettime, CLOCK_BOOTTIME=0)
        with ExitStack() as stack:
            for module in _WITH_TIME:
                stack.enter_context(mock.patch.object(module, "time", told))
            stack.enter_context(mock.patch.object(condition, "levels", levels))
            stack.enter_context(mock.patch.object(log.Log, "say", self._say))
            yield


class Container:
    """Of one pod, from start to end."""

    def __init__(self, pods: AgentPods, pod: Pod, directory: Path) -> None:
        self._pods, self.pod = pods, pod
        self._servers: Servers = pods.servers
        self.mysqld = self._servers.all.setdefault(pod.metadata.annotations["volume"], Mysqld(pod.metadata.name))
        self.mysqld.version = _version_in(pod) or self.mysqld.version
        names = ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[MEMBER_OF_LABEL]))
        self._place = _furnished(directory, pod, names)
        self._cluster = Cluster(
            pod=leading.Pod(
                pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, "node-0", (pod.status.pod_ip or "",)
            ),
            name=names.key.name,
        )
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.Task[None] | None = None
        self._agent: Agent | None = None
        self._stopping = False
        self._ready = ""
        self._seen: object = None
        self._calm_at = 0.0

    @property
    def ended(self) -> bool:
        return self._task is None or self._task.done()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"container of {self.pod.metadata.name}")

    def stop(self) -> None:
        """As SIGTERM does."""
        self._stopping = True
        if self._agent is not None:
            self._agent.stop()

    def kill(self) -> None:
        """As SIGKILL does; the container comes back."""
        if self._process is not None:
            self._process.cancel()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Process after process, until one ends as it was told to."""
        while True:
            self._process = asyncio.create_task(self._one(), name=f"agent of {self.pod.metadata.name}")
            try:
                await asyncio.wait([self._process])
            finally:
                self._process.cancel()
            if not self._process.cancelled() and (error := self._process.exception()) is not None:
                self._servers.wrong.append(f"the agent of {self.pod.metadata.name} fails: {error!r}")
                return
            if self._stopping or not self._process.cancelled():
                return
            await self._say_ready("False")
            await asyncio.sleep(_BACK_OFF)
            while self.pod.metadata.name in self._pods.away and not self._stopping:
                await asyncio.sleep(_BACK_OFF)

    async def _one(self) -> None:
        """One process. Its server ends with it."""
        thread = StrandExecutor(asyncio.current_task())
        server = ModelServer(self._place, self._servers, self.mysqld, self._pause)
        one = self._agent = Agent(self._cluster, server, lambda: Api(self), thread)
        if self._stopping:
            one.stop()
        try:
            await Strand(lambda: self._loop(one)).run()
        except Killed:
            raise asyncio.CancelledError from None
        finally:
            self._agent = None
            thread.kill()
            self._servers.kill(self.mysqld)

    def _loop(self, one: Agent) -> None:
        """As ``Agent.run``, but for what it does not expect: that is not to come to pass."""
        seen = self._news()
        while not one.tick():
            wait_for(partial(self._rest, seen))
            seen = self._news()

    async def _rest(self, seen: object) -> None:
        """Until something is other than what was ``seen``: of a member for which all is well nothing comes before."""
        await self._say_ready("True" if (self._place.probes.read_text().split()[1:2] == ["ready"]) else "False")
        clock = self._servers.clock
        if seen != self._seen:
            self._seen, self._calm_at = seen, clock() + _AWAKE
        until = clock() + _CALM if self._is_calm and clock() >= self._calm_at else 0.0
        await asyncio.sleep(_EVERY)
        while clock() < until and not self._stopping and self._news() == seen:
            await asyncio.sleep(_EVERY)

    @property
    def _is_calm(self) -> bool:
        return self.mysqld.state == "ONLINE"

    def _news(self) -> object:
        self._servers.settle()
        return self._pods.api.change_count(), self._servers.changes

    async def _say_ready(self, ready: str) -> None:
        if ready == self._ready:
            return
        body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}
        try:
            await self._pods.client.patch(Pod, self.pod.key, MergePatch(body), subresource="status")
        except NotFound:
            return
        self._ready = ready

    # What the process does to others.

    def _pause(self, what: str, seconds: float) -> None:
        wait_for(lambda: self._pods.agents.call(f"{self.pod.metadata.name} {what}", seconds))

    async def ask(self, request: Request) -> Answer:
        """The API server's answer."""
        path, _, query = request.path.partition("?")
        method = "GET" if request.body is None else "PATCH"
        await self._pods.agents.call(f"{self.pod.metadata.name} {method} {path}")
        asked = HttpRequest(
            method=method,
            path=path,
            query=dict(parse_qsl(query)),
            body=None if request.body is None else json.dumps(request.body).encode(),
            content_type="application/merge-patch+json",
        )
        response = await self._pods.client.transport.request(asked)
        return Answer(response.status, json.loads(response.body))


class Api(kubernetes.ApiServer):
    """The agent's own, whose connection is the simulation's."""

    def __init__(self, container: Container) -> None:
        self._server = Connection(container)


class Connection(api_server.ApiServer):
    """To the API server, of one container."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def ask(self, request: Request) -> Answer:
        """See ``ApiServer.ask``."""
        return wait_for(lambda: self._container.ask(request))


def _furnished(directory: Path, pod: Pod, names: ClusterNames) -> Place:
    """What is mounted into it; the volume has what it had."""
    for name in ("tls", "peer", "run"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name in ("tls", "peer"):
        for file in ("ca.crt", "tls.crt", "tls.key"):
            (directory / name / file).touch()
    slices = " ".join(key.name for key in names.slices(names.service("rw").name))
    (directory / "slices").write_text(slices)
    return Place(
        volume=directory,
        run=directory / "run",
        tls=directory / "tls",
        peer=directory / "peer",
        slices=directory / "slices",
        host=pod.status.pod_ip or "",
        instance=int(pod.metadata.labels[INSTANCE_LABEL]),
    )


def _version_in(pod: Pod) -> str:
    """What the image of a pod runs: its tag, where that is a whole version."""
    tag = (pod.spec.containers[0].image or "").rpartition(":")[2]
    return tag if tag.count(".") == 2 else ""
