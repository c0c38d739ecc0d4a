"""What the API server asks about writes of our kinds: what the schema cannot say."""

from __future__ import annotations

from functools import partial

from steersman.api.authorization_v1 import SubjectAccessReview
from steersman.manager import Manager
from steersman.webhook import WebhookOptions
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.webhooks.changes import news
from steersman_databases.webhooks.clusters import check_cluster
from steersman_databases.webhooks.contents import ContentsOf, check_database, check_user
from steersman_databases.webhooks.rights import Rights

OPTIONS = WebhookOptions(match_conditions={"spec-changes": "oldObject == null || object.spec != oldObject.spec"})
"""Closed where the operator is away, but to new declarations only: status, finalizers, labels and annotations of what
is there, and deletions, are written as ever."""


def setup_webhooks(manager: Manager, contents: ContentsOf) -> None:
    """Declares what is asked about our kinds.

    Args:
        contents: finds what is inside servers of an engine, whose checks are those of the controllers.
    """
    # Every replica is asked, whoever leads.
    rights = Rights(manager.unfenced_client.live)
    for webhook in (
        manager.webhook(PostgreSQLCluster, OPTIONS).validates(news(partial(check_cluster, contents=contents))),
        manager.webhook(MySQLCluster, OPTIONS).validates(news(partial(check_cluster, contents=contents))),
        manager.webhook(Database, OPTIONS).validates(news(partial(check_database, contents=contents))),
        manager.webhook(DatabaseUser, OPTIONS).validates(news(partial(check_user, contents=contents))),
    ):
        webhook.validates(rights.check).needs(SubjectAccessReview, "create")


__all__ = ["OPTIONS", "setup_webhooks"]
