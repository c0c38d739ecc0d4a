"""Fields of ``serverRef``, which a Database and a DatabaseUser have, and who tests them."""

from __future__ import annotations

from collections.abc import Mapping

_E2E, _ON_SERVERS = "e2e/sql/test_users.py", "integration/operator/test_external_server.py"
_REFERRED = "e2e/sql/test_external_server.py"
TESTED: Mapping[str, str] = {
    "serverRef.host": _REFERRED,
    "serverRef.port": _REFERRED,
    "serverRef.service.name": _E2E,
    "serverRef.service.namespace": _REFERRED,
    "serverRef.administrator.name": _E2E,
    "serverRef.administrator.namespace": _REFERRED,
    "serverRef.administrator.usernameKey": _REFERRED,
    "serverRef.administrator.passwordKey": _REFERRED,
    "serverRef.maintenanceDatabase": _REFERRED,
    "serverRef.tls.mode": _ON_SERVERS,
    "serverRef.tls.ca.secretKeyRef.name": _ON_SERVERS,
    "serverRef.tls.ca.secretKeyRef.key": _ON_SERVERS,
    "serverRef.tls.ca.configMapKeyRef.name": _REFERRED,
    "serverRef.tls.ca.configMapKeyRef.key": _REFERRED,
    "serverRef.tls.clientCertificate": _REFERRED,
}
"""The modules, below ``tests``, by the fields' paths."""
