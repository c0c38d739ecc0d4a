"""A typed, asynchronous client of the Kubernetes API.

**Configuration.** ``load_config`` reads a kubeconfig or the service account of a pod into a ClusterConfig: the
address of the API server, its certificate authority, and Credentials.

**Transport.** ``connect`` opens a Transport, which carries HTTP requests. It retries requests that are safe to repeat
and can limit their rate. Tests use an API server in memory in its place. See ``steersman.client.transport``.

**Client.** A Client reads and writes objects: get, list, watch, create, update, patch, apply, delete and
subresources. A refused request raises a subclass of ``ApiError``. SyncClient has the same methods for scripts without
``async``.

**Discovery.** A Discovery maps names such as ``deploy`` to the resources that the API server serves.

**Write observer.** A WriteObserver receives the outcome of each write. The cache implements it, so that reads contain
our own writes before the watch reports them.
"""

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
