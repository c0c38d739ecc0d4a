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

from database_support.simulation.fake_mysqld import SimulatedMySQLServer
from database_support.simulation.mysql_group import SimulatedMysqld, SimulatedServers
from database_support.simulation.strands import Strand, StrandExecutor, StrandKilled, wait_for
from database_support.unit.fake_patroni import is_fenced
from steersman.api.core_v1 import Pod
from steersman.client import Client, HttpRequest, MergePatch
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_agent import agent, kubernetes, log, publishing
from steersman_agent.agent import Agent, PodCluster
from steersman_agent.group import leader
from steersman_agent.server import certificates, parameters, replica_health, service_settings, system_accounts
from steersman_agent.server.process import ServerPaths
from steersman_databases.engines.naming import CLUSTER_LABEL, INSTANCE_LABEL, ClusterNames
from steersman_pod import api_client, rw_endpoints
from steersman_pod.api_client import ApiRequest, ApiResponse
from steersman_testing import InMemoryApiServer

_LOOP_INTERVAL_SECONDS = 1.1  # seconds between two looks of an agent
_IDLE_AFTER_SECONDS = 30.0  # the same, where all is well and nothing has happened
_ACTIVE_SECONDS = 5.0  # seconds in which it has read all anew, after something has happened
_RESTART_DELAY_SECONDS = 2.0  # seconds until a container is started again
_MODULES_WITH_TIME = (
    agent,
    certificates,
    leader,
    parameters,
    publishing,
    replica_health,
    service_settings,
    system_accounts,
)


class AgentFaults:
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
            raise StrandKilled


class AgentPods:
    """What runs in the pods of instances: see ``cluster_kubelet.Members``."""

    def __init__(
        self, api: InMemoryApiServer, client: Client, servers: SimulatedServers, agents: AgentFaults
    ) -> None:
        self.api, self.client, self.servers, self.agents = api, client, servers, agents
        self.unreachable: set[str] = set()
        """Pods whose containers are not started again."""
        self._containers: dict[str, AgentContainer] = {}
        self._files = tempfile.TemporaryDirectory(prefix="agents-")

    def state(self) -> object:
        """Which containers have ended."""
        return sum(container.ended for container in self._containers.values())

    async def sync(self) -> None:
        """Starts what is to run."""
        for pod in self.api.read_all(Pod):
            uid = pod.metadata.uid
            if CLUSTER_LABEL in pod.metadata.labels and pod.status.pod_ip and uid not in self._containers:
                directory = Path(self._files.name) / pod.metadata.annotations["volume"]
                container = self._containers[uid] = AgentContainer(self, pod, directory)
                if not is_fenced(pod):
                    container.start()

    def restore(self, pvc_uid: str) -> None:
        """Not played: the scenarios have no restores in place."""
        raise NotImplementedError

    def is_stopped(self, pod: Pod) -> bool:
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

    def _log(self, about: str, words: str) -> None:
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
            for module in _MODULES_WITH_TIME:
                stack.enter_context(mock.patch.object(module, "time", told))
            stack.enter_context(mock.patch.object(replica_health, "usage_levels", levels))
            stack.enter_context(mock.patch.object(log.DeduplicatedLog, "log", self._log))
            yield


class AgentContainer:
    """Of one pod, from start to end."""

    def __init__(self, pods: AgentPods, pod: Pod, directory: Path) -> None:
        self._pods, self.pod = pods, pod
        self._servers: SimulatedServers = pods.servers
        self.mysqld = self._servers.all.setdefault(
            pod.metadata.annotations["volume"], SimulatedMysqld(pod.metadata.name)
        )
        self.mysqld.version = _version_in(pod) or self.mysqld.version
        names = ClusterNames(ObjectKey(pod.key.namespace, pod.metadata.labels[CLUSTER_LABEL]))
        self._place = _mount_files(directory, pod, names)
        self._cluster = PodCluster(
            pod=rw_endpoints.PodIdentity(
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
            self._process = asyncio.create_task(self._run_process(), name=f"agent of {self.pod.metadata.name}")
            try:
                await asyncio.wait([self._process])
            finally:
                self._process.cancel()
            if not self._process.cancelled() and (error := self._process.exception()) is not None:
                self._servers.violations.append(f"the agent of {self.pod.metadata.name} fails: {error!r}")
                return
            if self._stopping or not self._process.cancelled():
                return
            await self._report_ready("False")
            await asyncio.sleep(_RESTART_DELAY_SECONDS)
            while self.pod.metadata.name in self._pods.unreachable and not self._stopping:
                await asyncio.sleep(_RESTART_DELAY_SECONDS)

    async def _run_process(self) -> None:
        """One process. Its server ends with it."""
        thread = StrandExecutor(asyncio.current_task())
        server = SimulatedMySQLServer(self._place, self._servers, self.mysqld, self._pause)
        one = self._agent = Agent(self._cluster, server, lambda: SimulatedKubernetesApi(self), thread)
        if self._stopping:
            one.stop()
        try:
            await Strand(lambda: self._loop(one)).run()
        except StrandKilled:
            raise asyncio.CancelledError from None
        finally:
            self._agent = None
            thread.kill()
            self._servers.kill(self.mysqld)

    def _loop(self, one: Agent) -> None:
        """As ``Agent.run``, but for what it does not expect: that is not to come to pass."""
        seen = self._state()
        while not one.tick():
            wait_for(partial(self._sleep_until_changed, seen))
            seen = self._state()

    async def _sleep_until_changed(self, seen: object) -> None:
        """Until something is other than what was ``seen``: of a member for which all is well nothing comes before."""
        await self._report_ready(
            "True" if (self._place.probe_file.read_text().split()[1:2] == ["ready"]) else "False"
        )
        clock = self._servers.clock
        if seen != self._seen:
            self._seen, self._calm_at = seen, clock() + _ACTIVE_SECONDS
        until = clock() + _IDLE_AFTER_SECONDS if self._is_calm and clock() >= self._calm_at else 0.0
        await asyncio.sleep(_LOOP_INTERVAL_SECONDS)
        while clock() < until and not self._stopping and self._state() == seen:
            await asyncio.sleep(_LOOP_INTERVAL_SECONDS)

    @property
    def _is_calm(self) -> bool:
        return self.mysqld.state == "ONLINE"

    def _state(self) -> object:
        self._servers.advance()
        return self._pods.api.change_count(), self._servers.changes

    async def _report_ready(self, ready: str) -> None:
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

    async def handle(self, request: ApiRequest) -> ApiResponse:
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
        return ApiResponse(response.status, json.loads(response.body))


class SimulatedKubernetesApi(kubernetes.KubernetesApi):
    """The agent's own, whose connection is the simulation's."""

    def __init__(self, container: AgentContainer) -> None:
        self._server = SimulatedApiClient(container)


class SimulatedApiClient(api_client.ApiClient):
    """To the API server, of one container."""

    def __init__(self, container: AgentContainer) -> None:
        self._container = container

    def send(self, request: ApiRequest) -> ApiResponse:
        """See ``ApiServer.ask``."""
        return wait_for(lambda: self._container.handle(request))


def _mount_files(directory: Path, pod: Pod, names: ClusterNames) -> ServerPaths:
    """What is mounted into it; the volume has what it had."""
    for name in ("tls", "peer", "run"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name in ("tls", "peer"):
        for file in ("ca.crt", "tls.crt", "tls.key"):
            (directory / name / file).touch()
    slices = " ".join(key.name for key in names.endpoint_slices(names.service("rw").name))
    (directory / "slices").write_text(slices)
    return ServerPaths(
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
