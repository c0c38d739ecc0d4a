"""Queries of healing, and its entries of `status.automation`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from steersman.api.core_v1 import Pod
from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.automation import AutomationStatus
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint
from steersman_databases.engines.transaction_ids import TransactionIds, XminHolder
from steersman_databases.features.certificates.model import CertificateSet

_ACTION_SHOWN_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingQueries:
    """Queries and actions on a server with a superuser's login."""

    drop_inactive_slot: Callable[[DatabaseServer, str, int], Awaitable[bool]]
    inspect_transaction_ids: Callable[[DatabaseServer], Awaitable[TransactionIds]]
    vacuum_oldest_tables: Callable[[DatabaseServer, str, int], Awaitable[Sequence[str]]]
    end_transaction: Callable[[DatabaseServer, XminHolder, float], Awaitable[bool]]
    received_wal: Callable[[DatabaseServer], Awaitable[int | None]]
    end_wal_receiver: Callable[[DatabaseServer], Awaitable[bool]]


def superuser_at(engine: ClusterEngine, certificates: CertificateSet, pod: Pod, now: datetime) -> DatabaseServer:
    """Return the server of a pod with a superuser's login."""
    login = Login(SUPERUSER_ROLE, certificate=certificates.superuser(now).as_client_certificate)
    return certificates.connection_to(engine.name, ServerEndpoint(pod.status.pod_ip or "", engine.port), login)


def with_last_action(
    cluster: Cluster, entry: AutomationStatus, now: datetime, action: str = ""
) -> AutomationStatus | None:
    """Return the entry with the present or the previous action.

    None if it is idle and the last action is a week ago. No decision depends on it.
    """
    if action:
        return msgspec.structs.replace(entry, last_action=action, last_action_time=now)
    previous = next((one for one in cluster.status.automation if one.name == entry.name), None)
    at = None if previous is None else previous.last_action_time
    if previous is not None and at is not None and now - at < _ACTION_SHOWN_FOR:
        return msgspec.structs.replace(entry, last_action=previous.last_action, last_action_time=at)
    return None if entry.decision == "Idle" else entry
