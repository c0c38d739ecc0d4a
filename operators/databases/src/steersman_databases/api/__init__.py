"""The kinds of ``databases.steersman.dev/v1alpha1``."""

from steersman_databases.api.database import Database, DatabaseSpec, DatabaseStatus

__all__ = ["Database", "DatabaseSpec", "DatabaseStatus"]
