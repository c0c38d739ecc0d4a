"""A typed client of the Kubernetes API: configuration, transport, and verbs on objects."""

from steersman.client.client import Client
from steersman.client.config import ClusterConfig, Impersonation
from steersman.client.config_loader import load_config
from steersman.client.conflict import retry_on_conflict
from steersman.client.credentials import ClientCertificate, Credentials, Identity, StaticToken, TokenFile
from steersman.client.decode import ObjectList, ObjectPage, WatchEvent
from steersman.client.discovery import ApiResourceInfo, Discovery
from steersman.client.patch import JsonPatch, MergePatch, Patch, StrategicMergePatch
from steersman.client.sync import SyncClient
from steersman.client.transport.connect import connect
from steersman.client.transport.http import HttpTransport
from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport
from steersman.client.transport.rate_limit import RateLimit, RateLimitedTransport
from steersman.client.transport.retry import RetryingTransport, RetryPolicy
from steersman.client.write_options import FieldValidation, Propagation

__all__ = [
    "ApiResourceInfo",
    "Client",
    "ClientCertificate",
    "ClusterConfig",
    "Credentials",
    "Discovery",
    "FieldValidation",
    "HttpRequest",
    "HttpResponse",
    "HttpTransport",
    "Identity",
    "Impersonation",
    "JsonPatch",
    "MergePatch",
    "ObjectList",
    "ObjectPage",
    "Patch",
    "Propagation",
    "RateLimit",
    "RateLimitedTransport",
    "RetryPolicy",
    "RetryingTransport",
    "StaticToken",
    "StrategicMergePatch",
    "SyncClient",
    "TokenFile",
    "Transport",
    "WatchEvent",
    "connect",
    "load_config",
    "retry_on_conflict",
]
