#!/usr/bin/python3 -I
"""steersman-role ACTION ROLE CLUSTER: Patroni's callback. The primary writes itself into the EndpointSlices of -rw.

Then it has the accounts that the cluster needs: on a new volume, and on one that comes from elsewhere.
steersman-role note LEVELS is steersman-volumes' word about this pod, and steersman-role former CLUSTER ends with 0
where this pod led last, or nobody knows who did.

It needs nobody's consent but the API server's, so clients find the new primary with the operator away and with the
former one cut off. The order of reads is what makes it safe: first the slice, then who leads, and the write is
only taken if the slice is still as read. Whoever leads later also writes later, and a former leader's late write is
refused.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SLICES = Path("/etc/steersman/patroni/slices")
ROLES = "/etc/steersman/patroni/roles.sql"
LEADERSHIP = "databases.steersman.dev/leadership"
STORAGE = "databases.steersman.dev/storage"
_ANSWER = 3.0  # seconds that the API server has for a request
_PAUSES = (0.1, 0.2, 0.5, 1.0)  # seconds before a request is tried again; the last for ever


@dataclass(frozen=True)
class Pod:
    """This pod, as an endpoint says it."""

    name: str
    namespace: str
    uid: str
    node: str
    addresses: tuple[str, ...]

    def endpoints(self, family: str) -> list[dict[str, Any]]:
        """What a slice of this address type holds: this pod, or nobody if it has no such address."""
        addresses = [one for one in self.addresses if (":" in one) == (family == "IPv6")]
        target = {"kind": "Pod", "name": self.name, "namespace": self.namespace, "uid": self.uid}
        conditions = {"ready": True, "serving": True, "terminating": False}
        return [
            {"addresses": [one], "conditions": conditions, "nodeName": self.node, "targetRef": target}
            for one in addresses[:1]
        ]


@dataclass(frozen=True)
class Request:
    """A request to the API server; `body` makes it a merge patch."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: Mapping[str, Any]


def take(pod: Pod, slice_path: str, leader_path: str) -> Generator[Request, Answer, None]:
    """The requests that make a slice this pod's, each answered by `send`; ends at once if another pod leads.

    Answers are of status 200, 404 or 409; others are the sender's to try again.
    """
    while True:
        found = yield Request(slice_path)
        leader = yield Request(leader_path)
        if found.status == 404 or leader.status == 404:
            return  # Nothing to be written to: the operator fills the slices that it makes.
        held: Mapping[str, str] = leader.body["metadata"].get("annotations") or {}
        if held.get("leader") != pod.name:
            return
        # A write that changes nothing leaves the slice's version as it was, and a former leader's would still fit it.
        # So each leadership writes something of its own.
        leadership = f"{held.get('transitions', '0')} {held.get('acquireTime', '')}"
        answer = yield Request(
            slice_path,
            {
                "metadata": {
                    "resourceVersion": found.body["metadata"]["resourceVersion"],
                    "annotations": {LEADERSHIP: leadership},
                },
                "endpoints": pod.endpoints(found.body["addressType"]),
            },
        )
        if answer.status != 409:
            return


def note(pod: Pod, levels: str) -> Generator[Request, Answer, None]:
    """The request that writes at this pod how full its volumes are; a later pod of its name is left alone."""
    metadata = {"uid": pod.uid, "annotations": {STORAGE: levels}}
    yield Request(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"metadata": metadata})


def led_last(pod: Pod, sync_path: str) -> Generator[Request, Answer, bool]:
    """Whether this pod did, or may have: only members of a quorum agreed on it before.

    Without synchronous replication nobody is named, and with priorities whoever gets the lock names itself first.
    """
    found = yield Request(sync_path)
    held: Mapping[str, str] = {} if found.status == 404 else found.body["metadata"].get("annotations") or {}
    return held.get("leader") in (None, "", pod.name)


class ApiServer:
    """The API server, as this pod's ServiceAccount."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Python 3.13 wants extensions of certificates that many clusters' authorities do not give.
        self._trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._connection: HTTPSConnection | None = None

    def answer(self, request: Request) -> Answer:
        """Asks until there is an answer that `take` understands."""
        for attempt in range(sys.maxsize):
            try:
                answer = self._ask(request)
            except (OSError, HTTPException, ValueError) as error:
                self._connection = None
                problem = repr(error)
            else:
                if answer.status in (200, 404, 409):
                    return answer
                problem = f"{answer.status} {answer.body.get('message', '')}"
            sys.stderr.write(f"steersman-role: {request.path}: {problem}\n")
            time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
        raise AssertionError

    def _ask(self, request: Request) -> Answer:
        if self._connection is None:
            self._connection = HTTPSConnection(self._host, self._port, timeout=_ANSWER, context=self._trust)
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Accept": "application/json"}
        if request.body is None:
            self._connection.request("GET", request.path, headers=headers)
        else:
            headers["Content-Type"] = "application/merge-patch+json"
            path = f"{request.path}?fieldManager=steersman-role"
            self._connection.request("PATCH", path, json.dumps(request.body), headers)
        response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read() or b"{}"))


def carry_out(requests: Generator[Request, Answer, T], server: ApiServer) -> T:
    """Sends each request and hands its answer back; what comes of them in the end."""
    try:
        request = next(requests)
        while True:
            request = requests.send(server.answer(request))
    except StopIteration as end:
        return end.value


def main(arguments: Sequence[str]) -> None:
    """Arguments are Patroni's: what happened, the role now, the cluster. Or ``note`` or ``former``, and of what."""
    pod, server = this_pod(), ApiServer()
    store = f"/api/v1/namespaces/{pod.namespace}/configmaps"
    match list(arguments):
        case ["note", levels]:
            carry_out(note(pod, levels), server)
        case ["former", cluster]:
            sys.exit(not carry_out(led_last(pod, f"{store}/{cluster}-sync"), server))
        case [_, "primary", cluster]:
            lead(pod, f"{store}/{cluster}-leader", server)
        case _:
            pass


def lead(pod: Pod, leader: str, server: ApiServer) -> None:
    """What the primary does first; ``leader`` is the path of Patroni's lock."""
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{pod.namespace}/endpointslices"
    for name in SLICES.read_text().split():
        carry_out(take(pod, f"{slices}/{name}", leader), server)
    options = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname=postgres", f"--file={ROLES}")
    subprocess.run(["psql", *options], check=True)


def this_pod() -> Pod:
    """The pod that the environment tells of."""
    environment = os.environ
    return Pod(
        name=environment["POD_NAME"],
        namespace=environment["POD_NAMESPACE"],
        uid=environment["POD_UID"],
        node=environment["NODE_NAME"],
        addresses=tuple(environment["POD_IPS"].split(",")),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
