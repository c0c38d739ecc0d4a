"""Fields of ``serverRef``, which a Database and a DatabaseUser have, and who tests them."""

from __future__ import annotations

from collections.abc import Mapping, Set

_E2E, _ON_SERVERS = "e2e/databases/test_users.py", "integration/databases/controllers/test_server_ref.py"
_IN_MEMORY = "unit/databases/controllers/test_users.py"
TESTED: Mapping[str, str] = {
    "serverRef.host": _ON_SERVERS,
    "serverRef.port": _ON_SERVERS,
    "serverRef.service.name": _E2E,
    "serverRef.service.namespace": "unit/databases/clusters/test_tenancy.py",
    "serverRef.administrator.name": _E2E,
    "serverRef.administrator.namespace": _IN_MEMORY,
    "serverRef.tls.mode": _ON_SERVERS,
    "serverRef.tls.ca.secretKeyRef.name": _ON_SERVERS,
    "serverRef.tls.ca.secretKeyRef.key": _ON_SERVERS,
}
"""The modules, below ``tests``, by the fields' paths."""
UNTESTED: Set[str] = {
    "serverRef.administrator.usernameKey",
    "serverRef.administrator.passwordKey",
    "serverRef.maintenanceDatabase",
    "serverRef.tls.ca.configMapKeyRef.name",
    "serverRef.tls.ca.configMapKeyRef.key",
    "serverRef.tls.clientCertificate",
}
"""Nobody has seen these on a server yet."""
