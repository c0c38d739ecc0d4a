"""Settings of a manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.manager.leader_election import LeaderElection

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from steersman.webhook import WebhookServerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Settings of a manager.

    Attributes:
        name: field manager of all writes, and the source of Events; a DNS name such as ``steersman-databases``.
        instance: which replica this is, such as the pod's name.
        namespaces: the only namespaces to watch; empty for all.
        leader_election: how replicas agree on who works; None: this is the only one.
        health_probe_bind_address: ``host:port`` of ``/healthz`` and ``/readyz``; empty or ``0``: none.
        metrics_bind_address: ``host:port`` of ``/metrics``; empty or ``0``: none.
        metrics_secure: whether metrics are served by TLS, and only to whom the API server knows (TokenReview) and
            allows it (SubjectAccessReview of ``get`` on ``/metrics``).
        metrics_cert_path: the directory of ``tls.crt`` and ``tls.key`` for that; read again as they change.
        debug_bind_address: ``host:port`` of ``/debug`` (see ``debug``); empty or ``0``: none. Loopback only, unless
            metrics are secure: then it is served as they are.
        webhooks: where the webhooks that were declared are served; None: nowhere.
        tracing: whether reconciles and their requests become spans of OpenTelemetry; a tracer provider, or True for
            the process's own. Needs ``steersman[tracing]``.
        cache_sync_timeout: seconds that may pass at the start without a first list becoming complete.
        graceful_shutdown_timeout: seconds that running reconciles and runnables get at shutdown. What follows
            (Events, Lease, connections) takes a few seconds more at most.
        blocked_loop_limit: seconds without a turn of the event loop after which its stack is logged; 0: never.
    """

    name: str = "steersman"
    instance: str = "steersman"
    namespaces: tuple[str, ...] = ()
    leader_election: LeaderElection | None = None
    health_probe_bind_address: str = ""
    metrics_bind_address: str = ""
    metrics_secure: bool = False
    metrics_cert_path: str = ""
    debug_bind_address: str = ""
    webhooks: WebhookServerOptions | None = None
    tracing: TracerProvider | bool = False
    cache_sync_timeout: float = 120.0
    graceful_shutdown_timeout: float = 30.0
    blocked_loop_limit: float = 1.0
