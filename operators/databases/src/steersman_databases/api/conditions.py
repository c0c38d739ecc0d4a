"""Every condition and every reason of our kinds, once, with what somebody who reads it does next.

The message of a condition says what is the matter with this object, names included; what to do stands behind it. It
is "" where there is nothing to do: all is well, or it goes on by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

Reasons = Mapping[str, str]

_AT_A_WORD = "with spec.replaceFailedInstances OnRequest it is replaced by kubectl steersman replace"
_ROOM = "raise spec.storage.size"
_ALLOWED = "do what the API server's words ask for, such as a larger quota"
_PULLED = "push the image where the nodes can pull it, or name the Secret for its registry in spec.imagePullSecrets"
_WEBHOOK = "see whether the webhook that its words name runs, or else the API server; it is tried again within 30 s"
_MORE_ROOM = f"{_ROOM} (of volume wal: spec.walStorage.size)"

ON_ANY_SERVER: Reasons = {
    "ReferenceNotPermitted": "check the name, and whether the target lets this namespace in: a cluster by "
    "spec.allowedNamespaces, a Service or Secret by the annotation databases.steersman.dev/allowed-namespaces",
    "NotPermitted": "ask whoever runs the server, or declare less",
    "ServerNotFound": "create the cluster or Service, or correct the reference in a new object",
    "ServerNotReady": "see the conditions of the server",
    "ServerUnreachable": "check that the server runs, its address, and network policies",
    "AdministratorSecretMissing": "create the Secret or ConfigMap that serverRef names, with the keys that it names; "
    "restore the Secret of retained data",
    "AdministratorRejected": "put the administrator's present password into its Secret",
    "Claimed": "delete one of the two objects, or give this one another name on the server",
    "AlreadyExists": "set spec.adopt to take what is there, or choose another name",
    "InvalidName": "choose another name, in a new object where the field is immutable",
    "SqlFailed": "do what the server's words ask for; it is tried again within 30 s",
}
"""Why something on a server is not as declared: a reason of ``Database``. ``DatabaseUser`` has the next step in its
message."""

DATABASE: Mapping[str, Reasons] = {
    "Ready": {
        **ON_ANY_SERVER,
        "DatabaseReady": "",
        "NotSupported": "leave the field out, or use a server that has it",
        "ObjectsMissing": "create what is missing, or declare it; it is looked for again within 30 s",
        "OwnerMissing": "create the role, as a DatabaseUser for example, or leave spec.owner out",
        "ExtensionUnavailable": "use an image that has the extension, or leave it out",
        "ImmutableOnServer": "declare what the database has, or create a new Database and move the data",
        "UnsupportedVersion": "set spec.version to one that is supported",
        "Unschedulable": "add a node, free resources, or check the storage class",
        "ImageUnavailable": "push the image where the nodes can pull it",
        "InstanceRefused": _ALLOWED,
        "RequestFailed": _WEBHOOK,
        "ServerStarting": "",
        "ServerTerminating": "",
        "ServerCrashing": "read the logs of the server",
        "NameTaken": "rename one of the two",
        "RetainedDataMismatch": "use the engine that the retained data are of, or delete the claim to give them up",
        "Deleting": "",
        "Paused": "remove the annotation databases.steersman.dev/paused to go on",
    },
}

USER: Mapping[str, Reasons] = {
    "Ready": {
        "ProvisionSucceeded": "",
        "ProvisionFailed": "do what the message says; it is tried again within 30 s",
    },
    "Paused": {
        "ByAnnotation": "remove the annotation databases.steersman.dev/paused to go on",
    },
}

CLUSTER: Mapping[str, Reasons] = {
    "Ready": {
        "ClusterReady": "",
        "Creating": "",
        "RollingOut": "",
        "InstanceNotReady": "see the logs of the instance",
        "Degraded": "see the other conditions",
        "NameTaken": "delete it, or give one of the two another name; it is looked at again within 30 s",
        "Unschedulable": "add a node, free resources, or check the storage class",
        "ImageUnavailable": _PULLED,
        "AdministratorSecretMissing": "restore the Secret, or delete the claims to start anew without the data",
        "OwnerSecretInvalid": "complete the Secret that bootstrap.initdb names",
        "UnsupportedVersion": "set spec.version to one that is supported",
        "RetainedDataMismatch": "use the version that the retained data are of, or delete the claims to give them up",
        "InstanceCrashing": f"read the logs of the instance; {_AT_A_WORD}",
        "InstanceRefused": _ALLOWED,
        "RequestFailed": _WEBHOOK,
        "NoPrimary": "see the logs of the instances",
        "NoSynchronousStandby": "see which replica is missing",
        "SwitchoverRefused": "ask by the annotation databases.steersman.dev/switchover, or declare something else",
        "Hibernating": "",
        "Hibernated": "set spec.hibernated to false to wake the cluster",
        "Fenced": "remove the annotation databases.steersman.dev/fenced",
        "Upgrading": "",
        "DiskFull": _MORE_ROOM,
        "SecretInvalid": "correct the Secret",
        "Deleting": "",
    },
    "Available": {
        "PrimaryAccepts": "",
        "NoPrimary": "see the logs of the instances",
        "FailingOver": "",
        "Hibernated": "set spec.hibernated to false to wake the cluster",
        "Fenced": "remove the annotation databases.steersman.dev/fenced",
        "Upgrading": "",
        "Deleting": "",
    },
    "ParametersApplied": {
        "Applied": "",
        "RestartPending": "",
        "Lowering": "",
        "ParameterRefused": "correct the parameter",
        "ServerUnreachable": "see whether the operator reaches the instances",
    },
    "InitialDatabase": {
        "DatabaseReady": "",
        "Claimed": "delete the other object, or create a new cluster with other names in bootstrap.initdb",
        "InvalidName": "create a new cluster with another name in bootstrap.initdb, or correct the Secret",
        "ImmutableOnServer": "create a new cluster of this name that declares what the database has",
        "OwnerSecretInvalid": "complete the Secret that bootstrap.initdb names; the former password is in force",
        "ServerNotReady": "wait until the Secrets of the cluster are made",
        "ServerUnreachable": "see whether the operator reaches the instances",
        "SqlFailed": "do what the server's words ask for; it is tried again within 30 s",
    },
    "InitialConfiguration": {
        "Applied": "",
        "Running": "",
        "Waiting": "create it",
        "Unschedulable": "add a node, or free resources",
        "ImageUnavailable": _PULLED,
        "JobRefused": _ALLOWED,
        "Failed": "correct the SQL; none of it is in force, and it is run again when its ConfigMap or Secret changes",
    },
    "Synchronous": {
        "InSync": "",
        "NotForAll": "what they committed last may be lost in a failover; where nobody meant that, "
        "ALTER ROLE or ALTER DATABASE … RESET synchronous_commit",
        "NoSynchronousStandby": "see which replica is missing",
    },
    "StorageAsDeclared": {
        "Sized": "",
        "Resizing": "",
        "FileSystemResizePending": "",
        "NotExpandable": "give the storage class allowVolumeExpansion, if its driver can; or delete the claims of "
        "one replica after another: what takes its place has the new size",
        "OtherClass": "delete the claims of one replica after another: what takes its place has the class that is "
        "declared; or create a new cluster of this name that declares the class of the volumes",
        "VolumeLost": f"where it is the only instance, add another while it serves; {_AT_A_WORD}",
    },
    "StorageSufficient": {
        "Sufficient": "",
        "RunningLow": _MORE_ROOM,
        "DiskFull": _MORE_ROOM,
    },
    "CertificatesValid": {
        "Valid": "",
        "Expiring": "renew the certificate in the Secret",
        "SecretInvalid": "correct the Secret; the former certificate is served meanwhile",
        "NotShown": "let the operator reach the pod (see network policies and meshes), or restart it before the "
        "certificate expires",
        "NotTrusted": "wait: who has not learnt of them within three minutes is restarted, the primary last",
    },
    "PoolersReady": {
        "Serving": "",
        "RollingOut": "",
        "PoolerNotReady": "see the logs of the pooler",
        "PoolerCrashing": "read the logs of the pooler; its image must have PgBouncer",
        "PoolersRefused": _ALLOWED,
        "Unschedulable": "add a node, or free resources",
        "ImageUnavailable": _PULLED,
    },
    "Upgraded": {
        "Current": "",
        "MinorAvailable": "set spec.minorUpgrades to Automatic, or take the image when it suits",
        "MinorsDiffer": "give each version of the image a tag of its own, and name that in spec.image or the "
        "operator's settings; with spec.imagePullPolicy Always, a restart or spec.minorUpgrades Automatic suffices",
        "Upgrading": "",
        "PreCheckFailed": "mend it, and it is looked at again (what the image lacks may be in another: "
        "spec.upgradeImage); or declare the former version",
        "RolledBack": "mend it and delete the Job to try again; or declare the former version",
    },
    "Paused": {
        "ByAnnotation": "remove the annotation databases.steersman.dev/paused to go on",
    },
}

MYSQL_CLUSTER: Mapping[str, Reasons] = {
    **{name: reasons for name, reasons in CLUSTER.items() if name != "Synchronous"},
    "Ready": {
        **CLUSTER["Ready"],
        "DiskFull": _ROOM,
        "InstanceFailing": "mend what its words tell; it goes on trying, and the log of the instance says more",
    },
    # MySQL undoes nothing of a file that ended in the middle.
    "InitialConfiguration": {
        **CLUSTER["InitialConfiguration"],
        "Failed": "what stands before the error is in force: correct the SQL, with IF NOT EXISTS or without what is "
        "done; it is run again when its ConfigMap or Secret changes",
    },
    "StorageSufficient": {"Sufficient": "", "RunningLow": _ROOM, "DiskFull": _ROOM},
    # Its members read the next certificates by themselves, and nobody asks them which they show.
    "CertificatesValid": {
        reason: advice
        for reason, advice in CLUSTER["CertificatesValid"].items()
        if reason not in ("NotShown", "NotTrusted")
    },
    # Servers bring their data from one version to the next by themselves.
    "Upgraded": {
        reason: CLUSTER["Upgraded"][reason] for reason in ("Current", "MinorAvailable", "MinorsDiffer", "Upgrading")
    },
    "Available": {
        **CLUSTER["Available"],
        "NoMajority": "bring the instances back that it names; while too few are there, nobody may take writes",
    },
    "HistoryShared": {
        "Shared": "",
        "NoGroup": "see the condition Recoverable",
        "ErrantTransactions": "look at what it holds, and have it made anew by the annotation "
        "databases.steersman.dev/replace with the name of the instance",
    },
    "Recoverable": {
        "Recovering": "",
        "ConsentNeeded": "bring the instances back that it names, or give up by spec.recovery what "
        "status.outage lists",
        "ConsentMismatch": "copy epoch, instance and loss from status.outage as it is now",
        "Consented": "",
    },
}
"""Those of a ``MySQLCluster``: it has no synchronous standbys, no volume for the log, and groups that may be lost."""

BY_KIND: Mapping[str, Mapping[str, Reasons]] = {
    "Database": DATABASE,
    "DatabaseUser": USER,
    "MySQLCluster": MYSQL_CLUSTER,
    "PostgreSQLCluster": CLUSTER,
}
"""Conditions by kind, reasons by condition."""


def next_step(kind: str, condition: str, reason: str) -> str:
    """What to do about ``reason``; empty where nothing is to be done, and for words of the API server's own."""
    return BY_KIND[kind].get(condition, {}).get(reason, "")
