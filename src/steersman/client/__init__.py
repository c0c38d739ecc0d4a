"""A typed client of the Kubernetes API: configuration, transport, and verbs on objects."""

from steersman.client.client import Client, ObjectList, WatchEvent
from steersman.client.config import ClusterConfig, load_config
from steersman.client.http import HttpTransport, connect
from steersman.client.patch import JsonPatch, MergePatch, Patch
from steersman.client.transport import HttpRequest, HttpResponse, Transport

__all__ = [
    "Client",
    "ClusterConfig",
    "HttpRequest",
    "HttpResponse",
    "HttpTransport",
    "JsonPatch",
    "MergePatch",
    "ObjectList",
    "Patch",
    "Transport",
    "WatchEvent",
    "connect",
    "load_config",
]
