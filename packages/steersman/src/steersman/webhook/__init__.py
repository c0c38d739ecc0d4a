"""Admission and conversion webhooks.

An admission webhook defaults and validates objects before the API server stores them. ``Manager.webhook`` declares
one; its handlers are functions of typed objects. ``FieldError``, ``AdmissionWarning`` and ``Denied`` are their
results.

A ``Conversion`` converts objects between the versions of a kind. It has a hub version, and a ``Spoke`` for each other
version. ``Manager.conversion`` declares one.

Every replica of the manager serves the webhooks. ``CertRotator`` issues and rotates their certificate, unless
``WebhookServerOptions.cert_path`` has one from cert-manager.
"""

from steersman.webhook.certificates import Rotation
from steersman.webhook.conversion import Conversion, Spoke
from steersman.webhook.conversion_webhook import ConversionWebhook
from steersman.webhook.declaration import Webhook, WebhookOptions
from steersman.webhook.field_copying import ConversionFailed, copy_fields
from steersman.webhook.registry import Webhooks
from steersman.webhook.request import AdmissionRequest, UserInfo
from steersman.webhook.responses import AdmissionWarning, Denied, FieldError
from steersman.webhook.server_options import WebhookServerOptions

__all__ = [
    "AdmissionRequest",
    "AdmissionWarning",
    "Conversion",
    "ConversionFailed",
    "ConversionWebhook",
    "Denied",
    "FieldError",
    "Rotation",
    "Spoke",
    "UserInfo",
    "Webhook",
    "WebhookOptions",
    "WebhookServerOptions",
    "Webhooks",
    "copy_fields",
]
