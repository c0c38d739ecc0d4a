"""Webhooks: what the API server asks about writes, and how versions of a kind become each other.

A handler is a plain function of typed objects; ``Manager.webhook`` and ``Manager.conversion`` declare it, and every
replica of the manager serves it, with certificates of its own making (``keeper``) or those of cert-manager.
"""

from steersman.webhook.certificates import Rotation
from steersman.webhook.conversion import Conversion, Spoke
from steersman.webhook.declaration import Webhook, WebhookOptions
from steersman.webhook.fields import ConversionFailed, same_fields
from steersman.webhook.findings import Cause, Denied, Warn
from steersman.webhook.registry import Webhooks
from steersman.webhook.request import AdmissionRequest, UserInfo
from steersman.webhook.serving import WebhookServing
from steersman.webhook.storage_version import Migration, migrate_storage_version

__all__ = [
    "AdmissionRequest",
    "Cause",
    "Conversion",
    "ConversionFailed",
    "Denied",
    "Migration",
    "Rotation",
    "Spoke",
    "UserInfo",
    "Warn",
    "Webhook",
    "WebhookOptions",
    "WebhookServing",
    "Webhooks",
    "migrate_storage_version",
    "same_fields",
]
