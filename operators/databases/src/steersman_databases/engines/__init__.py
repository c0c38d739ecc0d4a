"""Database servers as the operator sees them: a narrow port, and one implementation for each engine.

```python
engine = engine_named("postgresql")
changes = await engine.ensure(
    Endpoint("orders-primary.shop.svc", engine.port), administrator, Desired("orders", "orders", password)
)
for change in changes:
    ...  # an Event: change.reason, change.message
```

`port` holds what is asked of an engine, `errors` what can go wrong, `postgresql` and `mysql` the SQL, `model` a
server in memory that passes the same tests as the real ones, `versions` the images, `uri` the connection strings.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import (
    AdministratorRejected,
    EngineError,
    InvalidName,
    ServerUnreachable,
    SqlFailed,
    UnknownEngine,
    UnsupportedVersion,
)
from .mysql import MySQL
from .plan import Change
from .port import Desired, Engine
from .postgresql import PostgreSQL
from .server import Credentials, Endpoint
from .uri import connection_uri, masked_uri
from .versions import SUPPORTED_VERSIONS, image, override_variable

ENGINES: Mapping[str, PostgreSQL | MySQL] = {engine.name: engine for engine in (PostgreSQL(), MySQL())}


def engine_named(name: str) -> Engine:
    """The engine of this name. Raises `UnknownEngine`, which says what names there are."""
    try:
        return ENGINES[name]
    except KeyError:
        raise UnknownEngine(name, ENGINES) from None


__all__ = [
    "ENGINES",
    "SUPPORTED_VERSIONS",
    "AdministratorRejected",
    "Change",
    "Credentials",
    "Desired",
    "Endpoint",
    "Engine",
    "EngineError",
    "InvalidName",
    "MySQL",
    "PostgreSQL",
    "ServerUnreachable",
    "SqlFailed",
    "UnknownEngine",
    "UnsupportedVersion",
    "connection_uri",
    "engine_named",
    "image",
    "masked_uri",
    "override_variable",
]
