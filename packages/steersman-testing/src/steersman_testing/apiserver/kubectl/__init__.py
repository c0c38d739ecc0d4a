"""Features that only kubectl and other Go clients use.

``tables`` converts objects to ``meta.k8s.io/v1`` Tables, whose cells kubectl prints. ``openapi`` publishes OpenAPI v3
documents for ``kubectl explain`` and field validation. ``protobuf`` decodes bodies of typed Go clients.
``token_requests`` serves ``kubectl create token``. ``impersonation`` implements ``--as`` and ``--as-group``.

The extra ``steersman-testing[kubectl]`` stands for these features. They need no further distribution, so the extra
has no packages. The core imports this package by ``extensions.load_kubectl`` on the first request that needs it, and
calls the functions below. They are the only point of registration.
"""

from __future__ import annotations

from steersman_testing.apiserver.kubectl.openapi import openapi_document
from steersman_testing.apiserver.kubectl.protobuf import decode_protobuf
from steersman_testing.apiserver.kubectl.tables import table_converter
from steersman_testing.apiserver.kubectl.token_requests import create_token

__all__ = ["create_token", "decode_protobuf", "openapi_document", "table_converter"]
