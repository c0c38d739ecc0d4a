"""Workload identity of a ``BackupStore``: validation of its annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from steersman_databases.api import BackupStore
from steersman_databases.engines.workload_identity import AWS_ROLE, AZURE_CLIENT, AZURE_TENANT, GCP_ACCOUNT
from steersman_databases.features.backup_store.access import StoreProblem

_FIELD = "spec.credentials.workloadIdentity.serviceAccountAnnotations"
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# pgBackRest uses the token service of the standard partition.
_FORMATS: Mapping[str, tuple[str, str]] = {
    AWS_ROLE: (r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]{1,512}", "arn:aws:iam::ACCOUNT:role/NAME"),
    AZURE_CLIENT: (_UUID, "the client ID of a managed identity, a UUID"),
    AZURE_TENANT: (_UUID, "the tenant ID, a UUID"),
    GCP_ACCOUNT: (
        r"[a-z0-9-]{6,30}@[a-z0-9.:-]{1,128}\.iam\.gserviceaccount\.com",
        "NAME@PROJECT.iam.gserviceaccount.com",
    ),
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {"s3": (AWS_ROLE,), "gcs": (), "azure": (AZURE_CLIENT, AZURE_TENANT)}
_ALLOWED: Mapping[str, tuple[str, ...]] = {**_REQUIRED, "gcs": (GCP_ACCOUNT,)}


def identity_annotations(store: BackupStore) -> Mapping[str, str]:
    """Return the annotations of ServiceAccounts that a store with workload identity declares.

    Raises:
        StoreProblem: an annotation is missing, malformed or not one of the provider (``InvalidIdentity``), or the
            object store is not one of the provider (``UnsupportedStore``).
    """
    declared = store.spec.credentials.workload_identity
    assert declared is not None
    annotations, provider = declared.service_account_annotations, store.provider
    if missing := next((name for name in _REQUIRED[provider] if name not in annotations), None):
        raise StoreProblem("InvalidIdentity", f"{_FIELD} lacks {missing}. Set it to {_FORMATS[missing][1]}")
    for name, value in annotations.items():
        # Other annotations could have a meaning for other controllers, and the operator owns the ServiceAccount.
        if name not in _ALLOWED[provider]:
            allowed = " and ".join(_ALLOWED[provider])
            raise StoreProblem("InvalidIdentity", f"{_FIELD} may only have {allowed}. Remove {name}")
        pattern, wanted = _FORMATS[name]
        if not re.fullmatch(pattern, value):
            raise StoreProblem("InvalidIdentity", f"{_FIELD}: {name} is malformed. Set it to {wanted}")
    _require_aws(store)
    return dict(annotations)


def _require_aws(store: BackupStore) -> None:
    endpoint = "" if store.spec.s3 is None else store.spec.s3.endpoint or ""
    if endpoint and not (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com"):
        raise StoreProblem(
            "UnsupportedStore",
            "spec.credentials.workloadIdentity needs an endpoint of AWS. Remove spec.s3.endpoint, or set"
            " spec.credentials.secretRef",
        )
