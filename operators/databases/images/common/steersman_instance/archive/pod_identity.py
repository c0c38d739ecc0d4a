"""Workload identity of the pod, for stores without credentials.

The operator sets the variables and mounts the token. Without them the clients would use the identity of the node,
which belongs to no tenant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import ArchiveError
from .store_file import Store

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    "azure": ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"),
}
IDENTITY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "s3": (*_REQUIRED["s3"], "AWS_REGION"),
    "azure": (*_REQUIRED["azure"], "AZURE_AUTHORITY_HOST"),
}
"""Variables of pods with a workload identity, by the kind of store."""
_METADATA_HOST = "metadata.google.internal"
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/email"
_METADATA_SECONDS = 3.0
# The identity of a ServiceAccount without the annotation. Nodes have accounts below gserviceaccount.com.
_WORKLOAD_POOL = ".svc.id.goog"
_MAX_BYTES = 1024


def require_pod_identity(store: Store, environment: Mapping[str, str] = os.environ) -> None:
    """Reject a store whose identity this pod does not have.

    Raises:
        ArchiveError: the pod was created before the store declared the identity.
    """
    if not store.workload_identity:
        return
    if any(not environment.get(name) for name in _REQUIRED.get(store.service, ())):
        raise ArchiveError(
            "InvalidStore", "This pod has no token for the workload identity of the BackupStore. Recreate the pod."
        )


def require_gcp_account(store: Store, environment: Mapping[str, str] = os.environ) -> None:
    """Reject the identity of the node on Google Cloud.

    The metadata server of GKE returns the identity of the pod. Without Workload Identity it returns that of the node.

    Raises:
        ArchiveError: the identity is not the declared one, or the metadata server does not respond.
    """
    if not store.workload_identity or store.service != "gcs":
        return
    account = _metadata_account(environment.get("GCE_METADATA_HOST") or _METADATA_HOST)
    declared = store.gcp_account
    if account and (account == declared or (not declared and account.endswith(_WORKLOAD_POOL))):
        return
    raise ArchiveError(
        "CredentialsRejected",
        "The metadata server does not return the workload identity of this pod. Enable Workload Identity Federation"
        " for GKE on the node, and check serviceAccountAnnotations of the BackupStore.",
    )


def _metadata_account(host: str) -> str:
    # The command that archives a file starts often, and rarely needs the library.
    import http.client

    connection = http.client.HTTPConnection(host, timeout=_METADATA_SECONDS)
    try:
        connection.request("GET", _METADATA_PATH, headers={"Metadata-Flavor": "Google"})
        response = connection.getresponse()
        content = response.read(_MAX_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        raise ArchiveError(
            "StoreUnreachable", "The metadata server of Google Cloud does not respond. Check network policies."
        ) from None
    finally:
        connection.close()
    return content if response.status == 200 else ""
