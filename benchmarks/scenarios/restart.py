"""Restart: the operator restarts while all objects are already reconciled.

The API server's audit log records only the user of the restarted operator. Leader election is enabled if the
framework supports it. Writes of its Lease are counted separately.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.environment import NAMESPACE, BenchmarkApiServer, BenchmarkConfig, api_server
from benchmarks.load import create_works
from benchmarks.measurement import Figure
from benchmarks.peers import OperatorSettings, Peer
from benchmarks.scenarios.cold_start import TIMEOUT_SECONDS, wait_until_all_done

_USER = "restarted"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata", "users": [_USER], "omitStages": ["RequestReceived"]}, {"level": "None"}],
}
_SETTLE_SECONDS = 3.0
_READS = ("get", "list", "watch")


@asynccontextmanager
async def audited_server(config: BenchmarkConfig) -> AsyncGenerator[BenchmarkApiServer]:
    """Run an API server that audits the requests of the restarted operator."""
    with tempfile.TemporaryDirectory(prefix="benchmark-audit-") as directory:
        policy, log = Path(directory) / "policy.json", Path(directory) / "audit.log"
        policy.write_bytes(msgspec.json.encode(_POLICY))
        arguments = {"audit-policy-file": str(policy), "audit-log-path": str(log)}
        async with api_server(config, arguments) as server:
            yield server


async def measure(server: BenchmarkApiServer, peer: Peer) -> list[Figure]:
    """Measure one restart for the configured number of seconds."""
    version = await create_works(server, server.config.objects)
    leader_election = peer.leader_election
    first = OperatorSettings(server.kubeconfig, NAMESPACE, leader_election=leader_election)
    async with server.operator(peer, first) as operator:
        await operator.wait_for(wait_until_all_done(server.client, version, server.config.objects), TIMEOUT_SECONDS)
        await asyncio.sleep(_SETTLE_SECONDS)
    kubeconfig = server.environment.user(_USER, ["system:masters"], allow_masters=True).kubeconfig
    second = OperatorSettings(kubeconfig, NAMESPACE, leader_election=leader_election)
    async with server.operator(peer, second) as operator:
        await operator.wait_for(asyncio.sleep(server.config.seconds), TIMEOUT_SECONDS)
        cpu = operator.cpu
    counts = count_requests(server.audit_log.read_bytes().splitlines())
    return [
        *(Figure(f"requests: {verb}", count, "") for verb, count in sorted(counts.items())),
        Figure("reads", sum(counts[verb] for verb in _READS), ""),
        Figure("writes", sum(n for verb, n in counts.items() if verb not in (*_READS, LEASE)), ""),
        Figure("CPU", cpu, "s"),
    ]


LEASE = "Lease"
"""The verb under which ``count_requests`` counts every request for a Lease."""


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _AuditEvent(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    verb: str = ""
    object_ref: _Resource = _Resource()


def count_requests(lines: Iterable[bytes]) -> Counter[str]:
    """Count the requests per verb in an audit log, once per request."""
    events = {event.audit_id: event for event in (msgspec.json.decode(line, type=_AuditEvent) for line in lines)}
    leases = "leases"
    return Counter(LEASE if event.object_ref.resource == leases else event.verb for event in events.values())
