"""Fields of backups, stores and recovery, and the modules below ``tests`` that test them.

They need an object store, or take effect at a deletion or a recovery only: no change of a running cluster shows them.
"""

from __future__ import annotations

from collections.abc import Mapping

from database_support.fields.cluster import FieldCase

_FEATURES = "unit/features"
_SIMULATED = "simulated/features"
_STORE_MODEL = f"{_FEATURES}/backup_store/test_model.py"
_PROBE = "integration/features/test_store_probe.py"
_SCHEMA = "integration/api/test_schema_on_api_server.py"
_BACKUP_STAGE = f"{_SIMULATED}/backup/test_stage.py"
_BACKUP_JOBS = f"{_FEATURES}/backup/test_jobs.py"
_BACKUP_CONTROLLER = f"{_SIMULATED}/backup/test_controller.py"
_VERIFICATION = f"{_FEATURES}/verification/test_model.py"
_VERIFICATION_JOBS = f"{_FEATURES}/verification/test_jobs.py"

STORE: Mapping[str, str] = {
    "s3.bucket": _PROBE,
    "s3.prefix": _PROBE,
    "s3.endpoint": _PROBE,
    "s3.region": _PROBE,
    "s3.addressing": _PROBE,
    "s3.caSecretRef.name": _STORE_MODEL,
    "s3.caSecretRef.key": _STORE_MODEL,
    "gcs.bucket": _STORE_MODEL,
    "gcs.prefix": _SCHEMA,
    "azure.container": _STORE_MODEL,
    "azure.account": _STORE_MODEL,
    "azure.prefix": _SCHEMA,
    "credentials.secretRef.name": _STORE_MODEL,
    "credentials.secretRef.accessKeyIdKey": _STORE_MODEL,
    "credentials.secretRef.secretAccessKeyKey": _STORE_MODEL,
    "credentials.secretRef.sessionTokenKey": _STORE_MODEL,
    "credentials.workloadIdentity.serviceAccountAnnotations": _STORE_MODEL,
    "encryption.mode": f"{_FEATURES}/backup_store/test_controller.py",
    "encryption.secretRef.name": _STORE_MODEL,
    "encryption.secretRef.key": _STORE_MODEL,
    "immutability.days": f"{_FEATURES}/backup_store/test_controller.py",
    "allowedNamespaces": _STORE_MODEL,
}
BACKUP: Mapping[str, str] = {
    "clusterRef.kind": _SCHEMA,
    "clusterRef.name": _BACKUP_CONTROLLER,
    "databaseRef.name": f"{_SIMULATED}/dump/test_dumps.py",
    "type": _BACKUP_CONTROLLER,
    "source": _BACKUP_JOBS,
    "deletionPolicy": _BACKUP_CONTROLLER,
    "retainUntil": _BACKUP_JOBS,
}
_RESTORE = f"{_FEATURES}/restore/test_model.py"
RESTORE: Mapping[str, str] = {
    "clusterRef.kind": _SCHEMA,
    "clusterRef.name": f"{_SIMULATED}/restore/test_restore.py",
    "target.gtid.before": _SCHEMA,
    "target.gtid.through": _SCHEMA,
    "target.lsn": _SCHEMA,
    "target.name": _SCHEMA,
    "target.time": f"{_SIMULATED}/restore/test_restore.py",
    "undo.name": f"{_SIMULATED}/restore/test_undo.py",
    "only": f"{_SIMULATED}/restore/test_restore.py",
    "confirm": f"{_SIMULATED}/restore/test_in_place.py",
    "mode": f"{_SIMULATED}/restore/test_overwrite.py",
    "keepPrevious": f"{_SIMULATED}/restore/test_in_place.py",
    "into": _RESTORE,
    "storage.size": _RESTORE,
    "storage.storageClass": _RESTORE,
    "resources.claims": _RESTORE,
    "resources.limits": _RESTORE,
    "resources.requests": _RESTORE,
}
CLUSTER: Mapping[str, str] = {
    "backup.storeRef.name": _BACKUP_STAGE,
    "backup.storeRef.namespace": _STORE_MODEL,
    "backup.archive.interval": _STORE_MODEL,
    "backup.archive.onVolumeFull": _STORE_MODEL,
    "backup.retention.window": _BACKUP_JOBS,
    "backup.retention.minimumFullBackups": _BACKUP_JOBS,
    "backup.schedules": f"{_FEATURES}/backup/test_schedules.py",
    "backup.source": _BACKUP_JOBS,
    "backup.finalBackup": _SCHEMA,
    "backup.retentionAfterDeletion": _SCHEMA,
    "backup.verification.schedule": _VERIFICATION,
    "backup.verification.timeZone": _VERIFICATION,
    "backup.verification.suspend": _VERIFICATION,
    "backup.verification.resources.claims": _VERIFICATION_JOBS,
    "backup.verification.resources.limits": _VERIFICATION_JOBS,
    "backup.verification.resources.requests": _VERIFICATION_JOBS,
    "backup.verification.storage.size": _VERIFICATION_JOBS,
    "backup.verification.storage.storageClass": _VERIFICATION_JOBS,
    "backup.jobs.resources.claims": _BACKUP_JOBS,
    "backup.jobs.resources.limits": _BACKUP_JOBS,
    "backup.jobs.resources.requests": _BACKUP_JOBS,
    "backup.jobs.nodeSelector": _BACKUP_JOBS,
    "backup.jobs.tolerations": _BACKUP_JOBS,
    "backup.jobs.priorityClassName": _BACKUP_JOBS,
    "backup.jobs.processes": _BACKUP_JOBS,
    "bootstrap.recovery.backup.name": _SCHEMA,
    "bootstrap.recovery.cluster.name": _SCHEMA,
    "bootstrap.recovery.cluster.namespace": _SCHEMA,
    "bootstrap.recovery.store.path": _SCHEMA,
    "bootstrap.recovery.store.storeRef.name": _SCHEMA,
    "bootstrap.recovery.store.storeRef.namespace": _SCHEMA,
    "bootstrap.recovery.target.gtid.before": _SCHEMA,
    "bootstrap.recovery.target.gtid.through": _SCHEMA,
    "bootstrap.recovery.target.lsn": _SCHEMA,
    "bootstrap.recovery.target.name": _SCHEMA,
    "bootstrap.recovery.target.time": _SCHEMA,
}
CASES: Mapping[str, FieldCase] = dict.fromkeys(CLUSTER, FieldCase(None, None))
"""Not set by the tests of fields on a cluster."""
