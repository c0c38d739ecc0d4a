"""Database servers behind one interface, with an implementation per engine.

```python
engine = sql_engine_named("postgresql")
sessions = engine.connect(server)
for change in await reconcile_sql(engine, sessions, DesiredDatabase("orders", "clerk")):
    ...  # an Event: change.reason, change.message
```

`registry` lists the engines, `sql.sql_engine` holds the interface, `errors` the failures, `postgresql` and `mysql`
the SQL, `versions` the images, and `uri` the connection strings. This package imports no driver, so that
``kubectl steersman`` starts fast.
"""

from __future__ import annotations

from steersman_databases.engines.connection.uri import connection_uri, jdbc_uri, masked_uri

from .errors import (
    AdministratorRejected,
    EngineError,
    InvalidName,
    ServerUnreachable,
    SqlFailed,
    UnknownEngine,
    UnsupportedVersion,
)
from .server import ServerEndpoint, SqlCredentials
from .sql.sql_engine import SqlEngine
from .sql.sql_plan import SqlChange
from .versions import SUPPORTED_VERSIONS, image, override_variable

__all__ = [
    "SUPPORTED_VERSIONS",
    "AdministratorRejected",
    "EngineError",
    "InvalidName",
    "ServerEndpoint",
    "ServerUnreachable",
    "SqlChange",
    "SqlCredentials",
    "SqlEngine",
    "SqlFailed",
    "UnknownEngine",
    "UnsupportedVersion",
    "connection_uri",
    "image",
    "jdbc_uri",
    "masked_uri",
    "override_variable",
]
