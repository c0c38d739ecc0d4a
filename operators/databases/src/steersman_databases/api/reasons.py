"""All conditions and reasons of the operator's kinds, with next steps.

The message of a condition describes the problem of this object, with names. The next step follows it. It is "" if
there is nothing to do: all is well, or it continues by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

Reasons = Mapping[str, str]

_AUTOMATIC_REPLACEMENT_ADVICE = "With spec.replaceFailedInstances OnRequest, replace it by kubectl steersman replace"
_RAISE_STORAGE_SIZE = "Raise spec.storage.size"
_ALLOW_REQUEST_ADVICE = "Remove the cause, for example by a larger quota"
_FINAL_BACKUP_ADVICE = (
    "Correct the cause. Or set the annotation databases.steersman.dev/skip-final-backup to true to delete without "
    "the final backup and keep the volumes"
)
_IMAGE_ADVICE = (
    "Push the image to a registry that the nodes can reach, or name the registry's Secret in spec.imagePullSecrets"
)
_WEBHOOK_ADVICE = "Check the webhook in the message, otherwise the API server. The operator retries within 30 s"
_EXPAND_ADVICE = (
    "Set allowVolumeExpansion of the StorageClass, if its driver supports that. Or delete the PVCs of one replica "
    "after another: new PVCs have the new size"
)
_STORAGE_QUOTA_ADVICE = "Raise the ResourceQuota of the namespace"
_RAISE_ANY_VOLUME_SIZE = f"{_RAISE_STORAGE_SIZE} (for volume wal, spec.walStorage.size)"

_WINDOW_ADVICE = (
    "To start earlier, set the annotation databases.steersman.dev/maintenance-until to a time such as "
    "2030-01-31T22:00:00Z"
)
_PAUSED: Reasons = {"ByAnnotation": "Remove the annotation databases.steersman.dev/paused to continue"}
_WEBHOOKS_DISABLED: Reasons = {"NotServed": "Start it with webhooks, or let only administrators write these objects"}
_DUMP_STORE_REASONS: Reasons = {
    "NameConflict": "Rename one of the two",
    "ReferenceNotPermitted": "Create the Secret in the namespace of the Database, and refer to it",
    "StoreNotFound": "Create the BackupStore, or add this namespace to its allowedNamespaces",
    "SecretNotFound": "Create the Secret",
    "SecretInvalid": "Correct the Secret",
    "UnsupportedStore": "Use a BackupStore of an S3 object store",
}

SERVER_REASONS: Reasons = {
    "ReferenceNotPermitted": "Check the name. The target must permit this namespace: a cluster by "
    "spec.allowedNamespaces, a Service or Secret by the annotation databases.steersman.dev/allowed-namespaces",
    "NotPermitted": "Request the permission from the administrator of the server, or remove the field",
    "ServerNotFound": "Create the cluster or Service, or create a new object with the right reference",
    "ServerNotReady": "Check the conditions of the server",
    "ServerUnreachable": "Check the server, its address, and network policies",
    "AdministratorSecretMissing": "Create the Secret or ConfigMap of serverRef with its keys. For retained data, "
    "restore the Secret",
    "AdministratorRejected": "Put the current password of the administrator into its Secret",
    "OwnedByAnother": "Delete one of the two objects, or use another name on the server",
    "AlreadyExists": "Set spec.adopt to true to adopt it, or choose another name",
    "InvalidName": "Choose another name. Create a new object if the field is immutable",
    "SqlFailed": "Correct the cause. The operator retries within 30 s",
}
"""Reasons of `Database` for drift on a server.

`DatabaseUser` has the next step in its message.
"""

DATABASE_REASONS: Mapping[str, Reasons] = {
    "Ready": {
        **SERVER_REASONS,
        "DatabaseReady": "",
        "NotSupported": "Remove the field, or use a server that supports it",
        "ObjectsMissing": "Create or declare the missing objects. The operator retries within 30 s",
        "OwnerMissing": "Create the role, for example by a DatabaseUser, or remove spec.owner",
        "ExtensionUnavailable": "Use an image with the extension, or remove it from the spec",
        "ImmutableProperty": "Declare the current value, or create a new Database and move the data",
        "UnsupportedVersion": "Set spec.version to a supported version",
        "Unschedulable": "Add a node, free resources, or check the StorageClass",
        "ImageUnavailable": "Push the image to a registry that the nodes can reach",
        "PodRejected": _ALLOW_REQUEST_ADVICE,
        "RequestFailed": _WEBHOOK_ADVICE,
        "ServerStarting": "",
        "ServerTerminating": "",
        "ServerCrashing": "Read the logs of the server",
        "DataLost": "Restore a backup into a new Database, or bring the PVCs back",
        "NameConflict": "Rename one of the two",
        "RetainedDataMismatch": "Set spec.engine to the engine of the retained data, or delete the PVC to delete "
        "the data",
        "Recovering": "",
        "RecoveryFailed": "Correct the cause. See the condition Recovered",
        "FinalBackupFailed": "Correct the cause: the dump is repeated within 5 minutes. Or set the annotation "
        "databases.steersman.dev/skip-final-backup to true to keep the database on its server",
        "Deleting": "",
        "Paused": "Remove the annotation databases.steersman.dev/paused to continue",
    },
    "BackedUp": {
        "UpToDate": "",
        "NoBackup": "",
        "Overdue": "Check the Backup objects of the Database",
        "LastBackupFailed": "Correct the cause. The next scheduled dump retries",
        "SuspiciousSize": "Check that all tables still exist",
        "InvalidSchedule": "Correct the schedule",
        "Waiting": "",
        **_DUMP_STORE_REASONS,
        "RequestFailed": _ALLOW_REQUEST_ADVICE,
    },
    "Recovered": {
        "RecoveryCompleted": "",
        "Recovering": "",
        "RecoveryFailed": "Correct the cause, then delete the Job to try again. Or create a new Database",
        "SourceNotFound": "Create the Backup, or name another one in a new Database",
        "SourceNotPermitted": "Copy the dump to a BackupStore that this namespace may use",
        "SourceMismatch": "Name a dump of the same engine in a new Database",
        **_DUMP_STORE_REASONS,
        "PodRejected": _ALLOW_REQUEST_ADVICE,
    },
    "WebhooksDisabled": _WEBHOOKS_DISABLED,
}

USER_REASONS: Mapping[str, Reasons] = {
    "Ready": {
        "ProvisionSucceeded": "",
        "ProvisionFailed": "Follow the message. The operator retries within 30 s",
    },
    "Paused": _PAUSED,
    "WebhooksDisabled": _WEBHOOKS_DISABLED,
}
_RESTORING: Reasons = {"Restoring": "", "RestoreFailed": "Correct the cause, or create another Restore"}
CLUSTER_REASONS: Mapping[str, Reasons] = {
    "Ready": {
        "AllInstancesReady": "",
        "Creating": "",
        "RollingOut": "",
        "InstanceNotReady": "Read the logs of the instance",
        "Degraded": "Check the other conditions",
        "NameConflict": "Delete or rename one of the two. The operator retries within 30 s",
        "Unschedulable": "Add a node, free resources, or check the StorageClass",
        "ImageUnavailable": _IMAGE_ADVICE,
        "ImageTooOld": "Set spec.image to an image of this release of the operator, or run the command",
        "OperatorTooOld": "Upgrade the operator, or set spec.image to an older image",
        "AdministratorSecretMissing": "Restore the Secret, or delete the PVCs to start without the data",
        "DataLost": "Restore a backup into a new cluster by spec.bootstrap.recovery, or bring the PVCs back",
        "OwnerSecretInvalid": "Complete the Secret of bootstrap.initdb",
        "UnsupportedVersion": "Set spec.version to a supported version",
        "RetainedDataMismatch": "Set spec.version to the version of the retained data, or delete the PVCs to "
        "delete the data",
        "InstanceCrashing": f"Read the logs of the instance. {_AUTOMATIC_REPLACEMENT_ADVICE}",
        "PodRejected": _ALLOW_REQUEST_ADVICE,
        "RequestFailed": _WEBHOOK_ADVICE,
        "NoPrimary": "Read the logs of the instances",
        "NoSynchronousStandby": "Check the replicas in status.members",
        "SwitchoverRejected": "Request a switchover by the annotation databases.steersman.dev/switchover, or change "
        "the spec",
        "Hibernating": "",
        "Hibernated": "Set spec.hibernated to false to start the cluster",
        "Fenced": "Remove the annotation databases.steersman.dev/fenced-instances",
        "Upgrading": "",
        "DiskFull": _RAISE_ANY_VOLUME_SIZE,
        "SecretInvalid": "Correct the Secret",
        "Recovering": "",
        "RecoveryFailed": "Check the condition Recovered",
        **_RESTORING,
        "FinalBackupFailed": _FINAL_BACKUP_ADVICE,
        "Deleting": "",
    },
    "Recovered": {
        "RecoveryCompleted": "",
        "Recovering": "",
        "RecoveryFailed": "Delete the Job to retry, or recreate the cluster with another target",
        "SourceNotFound": "Create the source, or recreate the cluster with another one",
        "SourceNotPermitted": "Recreate the cluster with a source that permits its namespace",
        "SourceMismatch": "Recreate the cluster with the engine and version of the source",
        "StoreNotFound": "Create the BackupStore, or add this namespace to its allowedNamespaces",
        "SecretNotFound": "Create the Secret",
        "SecretInvalid": "Correct the Secret",
        "UnsupportedStore": "Use a BackupStore of an S3 object store",
        "PodRejected": _ALLOW_REQUEST_ADVICE,
        "Unschedulable": "Add a node, free resources, or check the StorageClass",
        "ImageUnavailable": _IMAGE_ADVICE,
    },
    "Available": {
        "PrimaryAvailable": "",
        "NoPrimary": "Read the logs of the instances",
        "WritesRejected": "Remove what rejects them, such as a read-only setting, a lock, or idle connections",
        "FailingOver": "",
        "Hibernated": "Set spec.hibernated to false to start the cluster",
        "Fenced": "Remove the annotation databases.steersman.dev/fenced-instances",
        **_RESTORING,
        "Upgrading": "",
        "Deleting": "",
    },
    "ParametersApplied": {
        "Applied": "",
        "RestartPending": "",
        "LoweringParameter": "",
        "WaitingForWindow": _WINDOW_ADVICE,
        "ParameterRejected": "Correct the parameter",
        "ServerUnreachable": "Check the network and network policies between the operator and the instances",
    },
    "ServersStable": {
        "CrashLoop": "Read the logs of the instances. Undo the last change, or give the servers more memory",
        "ParameterReverted": "Correct the parameter",
        "RevertRecommended": "Correct the parameter, or set spec.healing.crashLoops.mode to Automatic",
    },
    "BootstrapDatabaseReady": {
        "DatabaseReady": "",
        "OwnedByAnother": "Delete the other object, or create a new cluster with other names in bootstrap.initdb",
        "InvalidName": "Create a new cluster with another name in bootstrap.initdb, or correct the Secret",
        "ImmutableProperty": "Create a new cluster of this name that declares the current value",
        "OwnerSecretInvalid": "Complete the Secret of bootstrap.initdb. The previous password is still valid",
        "ServerNotReady": "Wait until the Secrets of the cluster exist",
        "ServerUnreachable": "Check the network and network policies between the operator and the instances",
        "SqlFailed": "Correct the cause. The operator retries within 30 s",
    },
    "PostInitSQLApplied": {
        "Applied": "",
        "Running": "",
        "Waiting": "Create the missing objects",
        "Unschedulable": "Add a node, or free resources",
        "ImageUnavailable": _IMAGE_ADVICE,
        "PodRejected": _ALLOW_REQUEST_ADVICE,
        "Failed": "Correct the SQL. Its transaction was rolled back. It runs again when its ConfigMap or Secret "
        "changes",
    },
    "Synchronous": {
        "InSync": "",
        "NotForAllRoles": "A failover may lose the last commits of these roles and databases. To prevent it, run "
        "ALTER ROLE or ALTER DATABASE … RESET synchronous_commit",
        "NoSynchronousStandby": "Check the replicas in status.members",
    },
    "ReplicationSlotsReady": {
        "Created": "",
        "SlotInactive": "Start its client, or drop the slot. With spec.healing.inactiveSlots.mode Automatic the "
        "operator drops an undeclared slot before the volume is full",
        "SlotMissing": "Wait for the restart in the condition ParametersApplied, if it names one. Otherwise create "
        "the database, correct the plugin, or drop the slot that has the name and another plugin or database",
    },
    "ReplicationAdvancing": {
        "ReceiverStuck": "Read the logs of the instance. With spec.healing.stuckReplicas.mode Automatic the operator "
        "ends its WAL receiver, then restarts its server. If that does not help, replace the instance",
    },
    "WraparoundPrevented": {
        "WraparoundApproaching": "End the transaction in the message, or drop the slot. If there is none, give "
        "autovacuum more workers or a higher autovacuum_vacuum_cost_limit",
        "CleanupPrevented": "End the transaction in the message, or drop the slot. With "
        "spec.healing.wraparound.endTransactionsAfter the operator ends such sessions",
        "VacuumRecommended": "Vacuum the oldest tables with FREEZE, or set spec.healing.wraparound.mode to Automatic",
        "EmergencyVacuum": "",
        "TransactionEnded": "",
    },
    "VolumesResized": {
        "SizeMatches": "",
        "Resizing": "",
        "FileSystemResizePending": "",
        "QuotaExceeded": _STORAGE_QUOTA_ADVICE,
        "NotExpandable": _EXPAND_ADVICE,
        "StorageClassMismatch": "Delete the PVCs of one replica after another: new PVCs have the declared "
        "StorageClass. Or create a new cluster of this name with the StorageClass of the volumes",
        "VolumeLost": f"If it is the only instance, add another one while it serves. {_AUTOMATIC_REPLACEMENT_ADVICE}",
    },
    "StorageSufficient": {
        "Sufficient": "",
        "RunningLow": _RAISE_ANY_VOLUME_SIZE,
        "DiskFull": _RAISE_ANY_VOLUME_SIZE,
    },
    "AutogrowReady": {
        "Idle": "",
        "Growing": "",
        "CoolingDown": "",
        "UsageUnknown": "",
        "Recommended": f"{_RAISE_ANY_VOLUME_SIZE}, or set autogrow.mode to Automatic",
        "AtMaxSize": "Raise autogrow.maxSize, or delete data",
        "WALRetained": "Bring the replica of the replication slot back, or replace it. Correct the archive: see the "
        "condition ContinuousArchiving",
        "FillsTooFast": "Slow the writes down, or raise the size of the volume yourself",
        "NotExpandable": _EXPAND_ADVICE,
        "QuotaExceeded": _STORAGE_QUOTA_ADVICE,
        "ResizeIncomplete": "Read the Events of the PVC",
    },
    "VerticalScalingReady": {
        "Suitable": "",
        "CollectingData": "",
        "Recommended": "Change spec.resources, or set verticalScaling.mode to Automatic",
        "Waiting": "",
        "Scaling": "",
        "AtMaxAllowed": "Raise verticalScaling.maxAllowed, or reduce the load",
    },
    "CertificatesValid": {
        "Valid": "",
        "Expiring": "Renew the certificate in the Secret",
        "SecretInvalid": "Correct the Secret. The servers use the previous certificate meanwhile",
        "StaleCertificate": "Check the network between operator and pod (network policies, service mesh), or "
        "restart the pod before the certificate expires",
        "CADistrusted": "No action needed: instances that do not trust it within 3 minutes are restarted, the "
        "primary last",
    },
    "QueriesValid": {
        "Valid": "",
        "QueryInvalid": "Correct the queries. The others run meanwhile",
        "ConfigMapNotFound": "Create the ConfigMap with its key",
    },
    "PoolersReady": {
        "Serving": "",
        "RollingOut": "",
        "PoolerNotReady": "Read the logs of the pooler",
        "PoolerCrashing": "Read the logs of the pooler. Its image must contain PgBouncer",
        "PodRejected": _ALLOW_REQUEST_ADVICE,
        "Unschedulable": "Add a node, or free resources",
        "ImageUnavailable": _IMAGE_ADVICE,
    },
    "UpToDate": {
        "Current": "",
        "MinorUpgradeAvailable": "Set spec.image to it, or set spec.maintenance.minorUpgrades to Automatic",
        "WaitingForWindow": _WINDOW_ADVICE,
        "WaitingForRing": "If the cluster in the message is not Ready, correct it. Or raise the operator's option "
        "--minor-upgrades-at-once to continue without it",
        "MinorVersionSkew": "Use an immutable tag or a digest in spec.image or in the settings of the operator. With "
        "spec.imagePullPolicy Always, restart the instances or set spec.maintenance.minorUpgrades to Automatic",
        "Upgrading": "",
        "WaitingForBackup": "",
        "BackupFailed": "Correct the cause and delete the Backup: the operator takes another one, then starts the "
        "upgrade. Or declare the previous version",
        "PreCheckFailed": "Correct the cause: the check runs again. If the image lacks something, set "
        "spec.upgradeImage. Or declare the previous version",
        "RolledBack": "Correct the cause and delete the Job to retry. Or declare the previous version",
    },
    "ContinuousArchiving": {
        "Archiving": "",
        "Waiting": "",
        "ArchiveLagging": "Check the bandwidth to the object store. Files wait on the volume meanwhile",
        "SegmentsDropped": "Enlarge the volume, or set spec.backup.archive.onVolumeFull to StopWrites. A new full "
        "backup starts the next recovery window",
        "WALMissing": "Take a full backup: it starts the next recovery window",
        "BinaryLogMissing": "Take a full backup: it starts the next recovery window",
        "ArchivingFailed": "Read the logs of container agent of the primary",
    },
    "BackedUp": {
        "UpToDate": "",
        "NoBackup": "",
        "Overdue": "Check the Backup objects of the cluster and its condition ContinuousArchiving",
        "LastBackupFailed": "Correct the cause. The next scheduled backup retries",
        "SuspiciousSize": "Check that all databases still exist",
        "InvalidSchedule": "Correct the schedule",
    },
    "BackupsVerified": {
        "Verified": "",
        "NeverVerified": "",
        "VerificationFailed": "Take a full backup and verify it. Do not rely on the archive before it",
        "VerificationOverdue": "Check the condition Verified of the Backup objects",
        "InvalidSchedule": "Correct the schedule",
    },
    "Paused": _PAUSED,
    "WebhooksDisabled": _WEBHOOKS_DISABLED,
}

_POSTGRESQL_CONDITIONS = ("Synchronous", "ReplicationSlotsReady", "ReplicationAdvancing", "WraparoundPrevented")
MYSQL_CLUSTER_REASONS: Mapping[str, Reasons] = {
    **{name: reasons for name, reasons in CLUSTER_REASONS.items() if name not in _POSTGRESQL_CONDITIONS},
    "Ready": {
        **CLUSTER_REASONS["Ready"],
        "DiskFull": _RAISE_STORAGE_SIZE,
        "MemberError": "Correct the cause. The instance retries; see its logs for details",
    },
    # MySQL does not roll back a file that ended in the middle.
    "PostInitSQLApplied": {
        **CLUSTER_REASONS["PostInitSQLApplied"],
        "Failed": "Statements before the error remain in effect. Correct the SQL: use IF NOT EXISTS, or remove the "
        "completed statements. It runs again when its ConfigMap or Secret changes",
    },
    "StorageSufficient": {"Sufficient": "", "RunningLow": _RAISE_STORAGE_SIZE, "DiskFull": _RAISE_STORAGE_SIZE},
    "AutogrowReady": {
        **{reason: advice for reason, advice in CLUSTER_REASONS["AutogrowReady"].items() if reason != "WALRetained"},
        "Recommended": f"{_RAISE_STORAGE_SIZE}, or set autogrow.mode to Automatic",
    },
    # Its members reload certificates themselves, and the operator does not check which they serve.
    "CertificatesValid": {
        reason: advice
        for reason, advice in CLUSTER_REASONS["CertificatesValid"].items()
        if reason not in ("StaleCertificate", "CADistrusted")
    },
    # Servers upgrade their data themselves.
    "UpToDate": {
        reason: CLUSTER_REASONS["UpToDate"][reason]
        for reason in (
            *("Current", "MinorUpgradeAvailable", "MinorVersionSkew", "Upgrading"),
            *("WaitingForWindow", "WaitingForRing"),
        )
    },
    "Available": {
        **CLUSTER_REASONS["Available"],
        "QuorumLost": "Bring the unreachable instances back. Writes stay blocked until the group has a quorum",
    },
    "NoErrantTransactions": {
        "NoErrantTransactions": "",
        "NoGroup": "Check the condition OutageRecoverable",
        "ErrantTransactions": "Inspect these transactions. Then replace the instance: set the annotation "
        "databases.steersman.dev/replace-instance to its name",
    },
    "OutageRecoverable": {
        "Recovering": "",
        "ConsentRequired": "Bring the missing instances back, or accept the loss in spec.forceRecovery: copy a "
        "choice of status.outage",
        "ConsentMismatch": "Copy epoch, instance and loss from the current status.outage",
        "RecoveryApproved": "",
    },
}
"""Reasons of a `MySQLCluster`.

It has no synchronous standbys and no volume for WAL, but groups that may be lost.
"""

_CHECK_STORE = "Check the object store. It is probed again within a minute"
BACKUP_STORE_REASONS: Mapping[str, Reasons] = {
    "Ready": {
        "Reachable": "",
        "StoreUnreachable": "Check spec.s3.endpoint, the object store, and network policies",
        "StoreUnresponsive": _CHECK_STORE,
        "StoreFull": "Add capacity to the object store, or raise its quota",
        "CredentialsRejected": "Correct the Secret of spec.credentials.secretRef, or the policy of its user",
        "BucketNotFound": "Create the bucket, or create a new BackupStore with the right name",
        "CertificateNotTrusted": "Put the certificate authority into the Secret of spec.s3.caSecretRef",
        "WrongRegion": "Set spec.s3.region to the region of the bucket",
        "WrongAddressing": "Set spec.s3.addressing to Path",
        "ClockSkewed": "Synchronize the clocks of the object store and of the nodes",
        "SecretNotFound": "Create the Secret. Restore that of the encryption key from its export",
        "SecretInvalid": "Correct the Secret",
        "WrongEncryptionKey": "Restore the previous encryption key, or create a new BackupStore for the other one",
        "UnsupportedStore": "Use an S3 object store with conditional writes, and spec.credentials.secretRef",
    },
    "EncryptionKeyExported": {
        "Exported": "",
        "ProvidedByUser": "",
        "NotExported": "Copy the Secret of the encryption key to a safe place outside this cluster, then set the"
        " annotation databases.steersman.dev/key-exported to its fingerprint",
    },
    "ObjectLock": {
        "Locked": "",
        "NotDeclared": "",
        "LockTooShort": "Set a default retention of the bucket of at least spec.immutability.days",
        "NotVerified": "Permit s3:GetBucketObjectLockConfiguration to the user of the credentials",
    },
    "WebhooksDisabled": _WEBHOOKS_DISABLED,
}

_OTHER_TARGET_ADVICE = "Create another Restore with a target that the archive reaches"
_CONTINUE_ADVICE = "Correct the cause, then create another Restore"

RESTORE_REASONS: Mapping[str, Reasons] = {
    "Complete": {
        "Completed": "",
        "Waiting": "",
        "Planned": "To restore, set spec.confirm to this ID",
        "ConfirmMismatch": "Set spec.confirm to status.plan.id",
        "Running": "",
        "Withdrawn": "Create another Restore",
        "NotStarted": _CONTINUE_ADVICE,
        "RestoreNotFound": "Create another Restore with the name of a completed restore of the cluster",
        "PreviousVolumesMissing": "Create another Restore with a target before the restore",
        "ClusterDeleted": "Recover a new cluster by spec.bootstrap.recovery",
        "JobDeleted": "Create another Restore",
        "DeadlineExceeded": "Recover a new cluster by kubectl steersman clone",
        "DatabaseNotFound": "Create another Restore with another database or target. A dropped database is restored "
        "as a whole, without table",
        "TableNotFound": "Create another Restore with another table or target",
        "NameConflict": "Drop it, or create another Restore with another spec.into",
        "RestoreFailed": _CONTINUE_ADVICE,
        "NotSupported": "Recover a new cluster by kubectl steersman clone",
        "ServerUnreachable": _CONTINUE_ADVICE,
        "NotEnoughSpace": "Increase spec.storage.size (of the cluster for a whole restore). Create another Restore",
        "NoUsableBackup": _OTHER_TARGET_ADVICE,
        "TargetNotReached": _OTHER_TARGET_ADVICE,
        "BinaryLogMissing": _OTHER_TARGET_ADVICE,
        "WALMissing": _OTHER_TARGET_ADVICE,
        "ArchiveDamaged": _OTHER_TARGET_ADVICE,
        "WrongEngineVersion": "Recover a new cluster of that version by kubectl steersman clone",
        "RecoveryFailed": _CONTINUE_ADVICE,
    },
}
"""Reasons of ``Restore``. Those of a `BackupStore` appear too, if the object store is the cause."""

REASONS_BY_KIND: Mapping[str, Mapping[str, Reasons]] = {
    "BackupStore": BACKUP_STORE_REASONS,
    "Database": DATABASE_REASONS,
    "DatabaseUser": USER_REASONS,
    "MySQLCluster": MYSQL_CLUSTER_REASONS,
    "PostgreSQLCluster": CLUSTER_REASONS,
    "Restore": RESTORE_REASONS,
}
"""Conditions by kind, reasons by condition."""


def advice_for(kind: str, condition: str, reason: str) -> str:
    """Return the next step of a reason, or "".

    "" means that there is nothing to do, or that the API server defines the reason.
    """
    return REASONS_BY_KIND[kind].get(condition, {}).get(reason, "")


def with_next_step(message: str, advice: str) -> str:
    """Return a message with the next step, if there is one."""
    return f"{message.rstrip('.')}. {advice}" if advice else message
