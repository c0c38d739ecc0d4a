"""A typed client of the Kubernetes API: configuration, transport, and verbs on objects."""

from steersman.client.client import Client
from steersman.client.cluster import ClusterConfig, Impersonation
from steersman.client.config import load_config
from steersman.client.conflict import retry_on_conflict
from steersman.client.connect import connect
from steersman.client.credentials import ClientCertificate, Credentials, Identity, StaticToken, TokenFile
from steersman.client.discovery import Discovery
from steersman.client.discovery_documents import ApiResourceInfo
from steersman.client.features import ServerFeatures, ServerVersion, detect_features, server_version
from steersman.client.http import HttpTransport
from steersman.client.list_decoder import ObjectList, ObjectPage
from steersman.client.patch import JsonPatch, MergePatch, Patch, StrategicMergePatch
from steersman.client.rate_limit import RateLimit, RateLimitedTransport
from steersman.client.retry import RetryingTransport, RetryPolicy
from steersman.client.sync import SyncClient
from steersman.client.transport import HttpRequest, HttpResponse, Transport
from steersman.client.watch_decoder import WatchEvent
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
    "ServerFeatures",
    "ServerVersion",
    "StaticToken",
    "StrategicMergePatch",
    "SyncClient",
    "TokenFile",
    "Transport",
    "WatchEvent",
    "connect",
    "detect_features",
    "load_config",
    "retry_on_conflict",
    "server_version",
]
