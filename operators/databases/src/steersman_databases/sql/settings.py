"""Settings of this installation for the controllers of databases and users."""

from __future__ import annotations

from dataclasses import dataclass

from steersman_databases.engines.connection.networks import Network


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Settings of this installation.

    Attributes:
        serves_webhooks: True if this operator serves its admission webhooks.
        server_networks: networks that the servers of `serverRef` must be in. Empty permits all.
    """

    serves_webhooks: bool = True
    server_networks: tuple[Network, ...] = ()
