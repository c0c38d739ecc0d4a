"""Identity of pods at a cloud provider. Pure.

The operator adds token and variables itself. So the pods do not depend on the webhooks of the providers, and a test
can see the whole pod. Sources: "IAM roles for service accounts" of EKS, "Workload identity" of AKS, "Workload
Identity Federation" of GKE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
from msgspec import UnsetType

from steersman.api.apply import core

AWS_ROLE = "eks.amazonaws.com/role-arn"
AZURE_CLIENT = "azure.workload.identity/client-id"
AZURE_TENANT = "azure.workload.identity/tenant-id"
GCP_ACCOUNT = "iam.gke.io/gcp-service-account"

IDENTITY_FIELD = "serviceAccountAnnotations"
"""Field of ``store.json``: annotations of the ServiceAccount. Absent without workload identity."""
TOKEN_MOUNT = "/var/run/secrets/steersman/identity"  # noqa: S105  a directory
TOKEN_FILE = f"{TOKEN_MOUNT}/token"
# The provider of GKE is its metadata server, which needs no token.
_AUDIENCES: Mapping[str, str] = {"s3": "sts.amazonaws.com", "azure": "api://AzureADTokenExchange"}
_VOLUME = "store-identity"
# pgBackRest reads the token once, and a backup of a large database takes hours. EKS uses the same time.
_TOKEN_SECONDS = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadIdentity:
    """Identity of a pod's ServiceAccount at the provider of an object store.

    Attributes:
        service: kind of the object store.
        annotations: annotations of the ServiceAccount. They are complete.
        region: region of S3.
    """

    service: Literal["s3", "gcs", "azure"]
    annotations: Mapping[str, str]
    region: str = ""

    @property
    def audience(self) -> str:
        """Audience of the token; empty if the provider needs no token."""
        return _AUDIENCES.get(self.service, "")

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that pgBackRest, restic and obstore read. None of them is a secret."""
        match self.service:
            case "s3":
                return {
                    "AWS_ROLE_ARN": self.annotations[AWS_ROLE],
                    "AWS_WEB_IDENTITY_TOKEN_FILE": TOKEN_FILE,
                    "AWS_REGION": self.region,
                }
            case "azure":
                return {
                    "AZURE_CLIENT_ID": self.annotations[AZURE_CLIENT],
                    "AZURE_TENANT_ID": self.annotations[AZURE_TENANT],
                    "AZURE_FEDERATED_TOKEN_FILE": TOKEN_FILE,
                    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
                }
            case "gcs":
                return {}


def identity_of_document(document: Mapping[str, object]) -> WorkloadIdentity | None:
    """Return the identity that a ``store.json`` needs.

    None if the document has credentials or is empty.
    """
    annotations, service = document.get(IDENTITY_FIELD), document.get("service")
    if not isinstance(annotations, dict) or service not in ("s3", "gcs", "azure"):
        return None
    found = {str(name): str(value) for name, value in cast("dict[Any, Any]", annotations).items()}
    needed: Mapping[str, tuple[str, ...]] = {"s3": (AWS_ROLE,), "azure": (AZURE_CLIENT, AZURE_TENANT)}
    if any(name not in found for name in needed.get(service, ())):
        return None
    return WorkloadIdentity(
        service=service, annotations=found, region=str(document.get("region", "")) if service == "s3" else ""
    )


def with_identity(pod: core.PodSpec, identity: WorkloadIdentity | None) -> core.PodSpec:
    """Return the pod with the token and variables of an identity."""
    if identity is None or not identity.environment:
        return pod
    assert not isinstance(pod.containers, UnsetType)
    source = core.ServiceAccountTokenProjection(
        audience=identity.audience, expiration_seconds=_TOKEN_SECONDS, path="token"
    )
    projected = core.ProjectedVolumeSource(
        default_mode=0o440, sources=[core.VolumeProjection(service_account_token=source)]
    )
    return msgspec.structs.replace(
        pod,
        containers=[_with_token(container, identity) for container in pod.containers],
        volumes=[*(pod.volumes or []), core.Volume(name=_VOLUME, projected=projected)],
    )


def _with_token(container: core.Container, identity: WorkloadIdentity) -> core.Container:
    variables = [core.EnvVar(name=name, value=value) for name, value in identity.environment.items()]
    mount = core.VolumeMount(name=_VOLUME, mount_path=TOKEN_MOUNT, read_only=True)
    return msgspec.structs.replace(
        container,
        env=[*(container.env or []), *variables],
        volume_mounts=[*(container.volume_mounts or []), mount],
    )
