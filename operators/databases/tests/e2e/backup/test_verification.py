"""Verification of backups by restoring them in a temporary pod."""

from __future__ import annotations

import pytest

from database_support.e2e.backups import BACKUP, backup_status
from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import EACH_ENGINE
from devcluster.store import ObjectStore

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500), EACH_ENGINE]

_BASES = {"postgresql": "pgbackrest/backup/main/2", "mysql": "mysql/base/data"}


def verify(cluster: ClusterUnderTest, name: str, request: str) -> dict[str, str]:
    """Request a verification, and return the condition that it results in."""
    client = cluster.namespace_client
    client.kubectl("annotate", "backup", name, f"databases.steersman.dev/verify={request}", "--overwrite")

    def is_handled() -> bool:
        return backup_status(cluster, name).get("verification", {}).get("request") == request

    cluster.until(f"the verification {request} ends", is_handled, 400)
    return client.condition("backup", name, "Verified")


def test_schedule_verifies_and_finds_a_changed_object(archived: ClusterUnderTest, store: ObjectStore) -> None:
    client, name = archived.namespace_client, archived.status["backup"]["lastBackup"]["name"]
    assert client.condition("backup", name, "Verified")["reason"] == "NeverVerified"
    archived.apply(backup={**BACKUP, "verification": {"schedule": "* * * * *"}})
    archived.wait_reason("Verified", "BackupsVerified", 400)
    found = backup_status(archived, name)["verification"]
    assert found["recoverySeconds"] < 300 and found["dataLossSeconds"] >= 0, found
    assert archived.status["backup"]["lastVerification"]["verified"] is True
    archived.apply(backup={**BACKUP, "verification": {"schedule": "* * * * *", "suspend": True}})
    archived.until("no Job", lambda: not _jobs(archived), 200)
    assert not [each for each in client.all("persistentvolumeclaims") if "verify" in each["metadata"]["name"]]
    path = f"{archived.status['backup']['path']}/{_BASES[archived.engine.settings]}"
    largest = max((key for key in store.keys(path) if "manifest" not in key), key=lambda key: len(store.read(key)))
    with store.corrupted(largest):
        damaged = verify(archived, name, "changed")
    assert (damaged["status"], damaged["reason"]) == ("False", "ArchiveDamaged"), damaged
    archived.wait_reason("VerificationFailed", "BackupsVerified", 60)
    assert verify(archived, name, "restored")["status"] == "True"


def _jobs(cluster: ClusterUnderTest) -> list[str]:
    return [name for each in cluster.namespace_client.all("jobs") if "verify" in (name := each["metadata"]["name"])]
