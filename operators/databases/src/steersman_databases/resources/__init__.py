"""The Kubernetes objects that make up one database, each as a pure function of its ``Database``."""

from steersman_databases.resources.names import MANAGED_BY, Names, instance_of, is_ours, labels_of, selector_of
from steersman_databases.resources.secrets import (
    administrator_secret,
    application_secret,
    generate_password,
    owned_by,
)
from steersman_databases.resources.services import headless_service, primary_service
from steersman_databases.resources.statefulset import ServerImage, statefulset
from steersman_databases.resources.volume import ENGINE_LABEL, volume_claim

__all__ = [
    "ENGINE_LABEL",
    "MANAGED_BY",
    "Names",
    "ServerImage",
    "administrator_secret",
    "application_secret",
    "generate_password",
    "headless_service",
    "instance_of",
    "is_ours",
    "labels_of",
    "owned_by",
    "primary_service",
    "selector_of",
    "statefulset",
    "volume_claim",
]
