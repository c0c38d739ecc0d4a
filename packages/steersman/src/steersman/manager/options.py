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
        name: field manager of all writes and source of Events; a DNS name such as ``steersman-databases``.
        previous_field_managers: earlier names of the operator, or those of an operator that this one replaces. Before
            the first apply of an object, their fields become those of ``name``, so that undeclared ones are removed.
            Add ``name`` itself if earlier versions wrote by update or patch.
        instance: name of this replica, such as the name of the pod.
        namespaces: namespaces to watch. Defaults to all.
        leader_election: settings of leader election. Defaults to None, for a single replica.
        health_probe_bind_address: ``host:port`` of ``/healthz`` and ``/readyz``. Empty or ``0`` disables them.
        metrics_bind_address: ``host:port`` of ``/metrics``. Empty or ``0`` disables it.
        metrics_secure: serves metrics over HTTPS. Clients are authenticated by TokenReview and authorized by
            SubjectAccessReview for ``get`` on ``/metrics``.
        metrics_cert_path: directory of ``tls.crt`` and ``tls.key`` for HTTPS. Changes are reloaded.
        debug_bind_address: ``host:port`` of ``/debug`` (see ``serving.debug``). Empty or ``0`` disables it. It must
            be a loopback address, unless ``metrics_secure`` is set, which then protects this endpoint too.
        webhooks: settings of the webhook server. Without them, no webhook is served, and a manager with webhooks logs
            a warning.
        serve_webhooks: False serves no webhooks and logs no warning, as for an operator that no API server can reach.
        tracing: exports reconciles and their requests as OpenTelemetry spans, by a tracer provider, or True for the
            global one. Needs ``steersman[tracing]``.
        cache_sync_timeout: seconds that the caches have to complete their first lists.
        graceful_shutdown_timeout: seconds that running reconciles and runnables have to complete at shutdown.
            Flushing Events, releasing the Lease and closing connections take a few seconds more.
        blocked_loop_limit: seconds after which a blocked event loop is logged with its stack. 0 disables it.
    """

    name: str = "steersman"
    previous_field_managers: tuple[str, ...] = ()
    instance: str = "steersman"
    namespaces: tuple[str, ...] = ()
    leader_election: LeaderElection | None = None
    health_probe_bind_address: str = ""
    metrics_bind_address: str = ""
    metrics_secure: bool = False
    metrics_cert_path: str = ""
    debug_bind_address: str = ""
    webhooks: WebhookServerOptions | None = None
    serve_webhooks: bool = True
    tracing: TracerProvider | bool = False
    cache_sync_timeout: float = 120.0
    graceful_shutdown_timeout: float = 30.0
    blocked_loop_limit: float = 1.0
