"""Engine of a cluster and its optional capabilities, for the controller."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.cluster.rules.wal_gap import IsWalMissing
from steersman_databases.engines.cluster_engine import CLUSTER_DOMAIN, ClusterEngine
from steersman_databases.engines.members import HaBackend
from steersman_databases.features.backup.stage import ClaimPath
from steersman_databases.features.certificates.reload import GetServedFingerprint
from steersman_databases.features.healing.servers import HealingQueries
from steersman_databases.features.major_upgrade.stage import GetUpgradeInventory
from steersman_databases.features.parameters.stage import ListSettings, ResetAlterSystem, ValidateSettings
from steersman_databases.features.pooler.stage import RunAdminCommand
from steersman_databases.features.read_replicas.reports import GetReport
from steersman_databases.features.system_accounts.stage import EnsureSystemAccounts
from steersman_databases.features.tuning.figures import GetMetrics
from steersman_databases.sql.unresponsive import UnresponsiveServers


@dataclass(frozen=True, slots=True)
class EngineParts:
    """Engine and the queries of its servers. A query is None if the engine has no such capability.

    Attributes:
        served_fingerprint: fingerprint of the certificate that a server presents.
        pgbouncer_admin: commands for a pooler.
        list_settings: parameters of a server.
        ensure_system_accounts: create the cluster's own accounts on a primary.
        upgrade_inventory: contents of a primary's databases, for the check before an upgrade.
        reset_alter_system: reset parameters that were set on the server.
        validate_settings: try parameters on a server.
        is_wal_missing: ask a primary for the WAL that a replica needs.
        get_read_replica_report: request the state of a read replica.
        get_metrics: request the metrics of an instance.
        healing: what healing does on servers.
        claim_path: create the identity of an archive in the object store.
        cluster_domain: DNS domain of Kubernetes.
        operator_namespace: namespace of this process; empty if unknown, as outside of a pod.
        minor_upgrades_at_once: clusters in a minor upgrade, or not Ready after it, at the same time.
        automation: most that automatic functions may do in this installation.
        serves_webhooks: True if this operator serves its admission webhooks.
    """

    engine: ClusterEngine
    ha_backend: HaBackend
    served_fingerprint: GetServedFingerprint | None = None
    pgbouncer_admin: RunAdminCommand | None = None
    list_settings: ListSettings | None = None
    ensure_system_accounts: EnsureSystemAccounts | None = None
    upgrade_inventory: GetUpgradeInventory | None = None
    reset_alter_system: ResetAlterSystem | None = None
    is_wal_missing: IsWalMissing | None = None
    validate_settings: ValidateSettings | None = None
    claim_path: ClaimPath | None = None
    get_read_replica_report: GetReport | None = None
    get_metrics: GetMetrics | None = None
    healing: HealingQueries | None = None
    cluster_domain: str = CLUSTER_DOMAIN
    operator_namespace: str = ""
    minor_upgrades_at_once: int = 1
    automation: AutomationMode = "Automatic"
    serves_webhooks: bool = True

    def with_backoff(self, unresponsive: UnresponsiveServers) -> EngineParts:
        """Copy whose queries fail at once for servers that are unresponsive.

        Poolers are exempt: their clients wait until the poolers are resumed.
        """
        return replace(
            self,
            served_fingerprint=unresponsive.wrap_fingerprint(self.served_fingerprint),
            list_settings=unresponsive.wrap(self.list_settings),
            ensure_system_accounts=unresponsive.wrap(self.ensure_system_accounts),
            upgrade_inventory=unresponsive.wrap(self.upgrade_inventory),
            reset_alter_system=unresponsive.wrap(self.reset_alter_system),
            is_wal_missing=unresponsive.wrap(self.is_wal_missing),
            validate_settings=unresponsive.wrap(self.validate_settings),
            healing=None if self.healing is None else _with_backoff(self.healing, unresponsive),
        )


def _with_backoff(queries: HealingQueries, unresponsive: UnresponsiveServers) -> HealingQueries:
    return HealingQueries(
        drop_inactive_slot=unresponsive.guarded(queries.drop_inactive_slot),
        inspect_transaction_ids=unresponsive.guarded(queries.inspect_transaction_ids),
        vacuum_oldest_tables=unresponsive.guarded(queries.vacuum_oldest_tables),
        end_transaction=unresponsive.guarded(queries.end_transaction),
        received_wal=unresponsive.guarded(queries.received_wal),
        end_wal_receiver=unresponsive.guarded(queries.end_wal_receiver),
    )
