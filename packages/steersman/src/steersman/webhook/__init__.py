"""Webhooks: what the API server asks about writes, and how versions of a kind become each other.

A handler is a plain function of typed objects; ``Manager.webhook`` and ``Manager.conversion`` declare it, and every
replica of the manager serves it, with certificates of its own making (``keeper``) or those of cert-manager.
"""

from steersman.webhook.certificates import Rotation
from steersman.webhook.conversion import Conversion, Spoke
from steersman.webhook.declaration import Webhook, WebhookOptions
from steersman.webhook.registry import Webhooks
from steersman.webhook.request import AdmissionRequest, UserInfo
from steersman.webhook.responses import AdmissionWarning, Denied, FieldError
from steersman.webhook.roundtrip import ConversionFailed, copy_fields
from steersman.webhook.server_options import WebhookServerOptions
from steersman.webhook.storage_version import MigrationResult, migrate_storage_version

__all__ = [
    "AdmissionRequest",
    "AdmissionWarning",
    "Conversion",
    "ConversionFailed",
    "Denied",
    "FieldError",
    "MigrationResult",
    "Rotation",
    "Spoke",
    "UserInfo",
    "Webhook",
    "WebhookOptions",
    "WebhookServerOptions",
    "Webhooks",
    "copy_fields",
    "migrate_storage_version",
]
