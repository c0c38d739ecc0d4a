"""Admission checks of the operator's kinds that the schema cannot express."""

from __future__ import annotations

from functools import partial

from steersman.api.authorization_v1 import SubjectAccessReview
from steersman.manager import Manager
from steersman.webhook import WebhookOptions
from steersman_databases.api import BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.webhooks.authorization import AuthorizationCheck
from steersman_databases.webhooks.backups import check_store
from steersman_databases.webhooks.clusters import check_cluster
from steersman_databases.webhooks.databases import ContentsOf, check_database, check_user
from steersman_databases.webhooks.ratcheting import ratcheting

OPTIONS = WebhookOptions(match_conditions={"spec-changes": "oldObject == null || object.spec != oldObject.spec"})
"""Fail closed for new specs if the operator is unavailable.

Writes of status, finalizers, labels and annotations, and deletions, remain possible.
"""


def setup_webhooks(manager: Manager, sql_engine_for: ContentsOf) -> None:
    """Register the checks.

    Args:
        sql_engine_for: returns the SQL engine, whose checks the controllers use, too.
    """
    # Each replica serves webhooks, not only the leader.
    authorization = AuthorizationCheck(manager.unfenced_client.live, manager.runtime.clock)
    for webhook in (
        manager.webhook(PostgreSQLCluster, OPTIONS).validates(
            ratcheting(partial(check_cluster, sql_engine_for=sql_engine_for))
        ),
        manager.webhook(MySQLCluster, OPTIONS).validates(
            ratcheting(partial(check_cluster, sql_engine_for=sql_engine_for))
        ),
        manager.webhook(Database, OPTIONS).validates(
            ratcheting(partial(check_database, sql_engine_for=sql_engine_for))
        ),
        manager.webhook(DatabaseUser, OPTIONS).validates(
            ratcheting(partial(check_user, sql_engine_for=sql_engine_for))
        ),
        manager.webhook(BackupStore, OPTIONS).validates(ratcheting(check_store)),
    ):
        webhook.validates(authorization.check).needs(SubjectAccessReview, "create")


__all__ = ["OPTIONS", "setup_webhooks"]
