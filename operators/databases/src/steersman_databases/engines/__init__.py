"""Database servers as the operator sees them: a narrow port, and one implementation for each engine.

```python
contents = engine_named("postgresql")
sessions = contents.connect(server)
for change in await settle(contents, sessions, DesiredDatabase("orders", "clerk")):
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
from .port import Contents
from .postgresql import PostgreSQL
from .server import Credentials, Endpoint
from .uri import connection_uri, jdbc_uri, masked_uri
from .versions import SUPPORTED_VERSIONS, image, override_variable

ENGINES: Mapping[str, PostgreSQL | MySQL] = {engine.name: engine for engine in (PostgreSQL(), MySQL())}


def engine_named(name: str) -> Contents:
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
    "Contents",
    "Credentials",
    "Endpoint",
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
    "jdbc_uri",
    "masked_uri",
    "override_variable",
]
