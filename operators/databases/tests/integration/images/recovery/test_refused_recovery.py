"""Recoveries that are refused before anything is written, each with one sentence."""

from __future__ import annotations

import re

import pytest

from database_support.archive.archived_server import empty_volumes, marks, run_job, write_store
from database_support.archive.job_process import KILLED
from database_support.archive.story import Story

pytestmark = pytest.mark.xdist_group("postgresql-archive-refused-recovery")

JOB = {"cluster_uid": "99999999"}
SENTENCE = re.compile(r"\S[^\n]{20,600}\.")


def segments(story: Story) -> list[str]:
    return [key for key in story.server.store.keys(story.server.path) if re.search(r"/[0-9A-F]{24}-", key)]


@pytest.mark.parametrize(
    ("changed", "job", "code", "reason", "words"),
    [
        ({"passphrase": "another" * 5}, {}, 1, "WrongEncryptionKey", "passphrase"),
        ({"path": "orders/postgresqlcluster.other/1234"}, {}, 3, "NoUsableBackup", "no archive at orders/"),
        ({"bucket": "other"}, {}, 1, "BucketNotFound", "Bucket other"),
        ({"secretAccessKey": "x" * 40}, {}, 1, "CredentialsRejected", "credentials"),
        ({"ca": ""}, {}, 1, "CertificateNotTrusted", "certificate"),
        ({"engine": "mysql"}, {}, 3, "WrongEngine", "is of mysql, not of PostgreSQL"),
        ({}, {"version": "15"}, 3, "WrongEngineVersion", "PostgreSQL 17, and the cluster runs 15"),
        ({}, {"target": {"time": "2020-01-01T00:00:00Z"}}, 3, "NoUsableBackup", "the first of the archive"),
        ({}, {"target": {"time": "2099-01-01T00:00:00Z"}}, 3, "TargetNotReached", "last transaction"),
        ({}, {"target": {"name": "nowhere"}}, 3, "TargetNotReached", "no restore point 'nowhere'"),
        ({}, {"target": {"lsn": "F/0"}}, 3, "TargetNotReached", "archive ends at 0/"),
    ],
)
def test_recovery_is_refused_in_one_sentence(
    story: Story, changed: dict[str, object], job: dict[str, object], code: int, reason: str, words: str
) -> None:
    with empty_volumes(story.server, **changed) as volumes:
        done = run_job(volumes, "recover", {**JOB, **job})
        assert (done.code, done.result["reason"]) == (code, reason), done.logs
        assert words in done.result["message"]
        assert SENTENCE.fullmatch(done.result["message"]), done.result["message"]
        secrets = [story.server.store.credentials.secret_access_key, "another" * 5]
        assert [secret for secret in secrets if secret in done.logs] == []
        assert {file.name for file in volumes.paths.volume.iterdir()} <= {".lock"}


def test_backup_larger_than_the_volume_is_refused(story: Story) -> None:
    with empty_volumes(story.server) as volumes:
        done = run_job(volumes, "recover", JOB, moment="full")
        assert (done.code, done.result["reason"]) == (3, "NotEnoughSpace"), done.logs
        sentence = (
            r"Backup \S+ needs \d+ MiB, and the data volume has 1 MiB\. Increase spec\.storage of the cluster\."
        )
        assert re.fullmatch(sentence, done.result["message"])
        assert {file.name for file in volumes.paths.volume.iterdir()} <= {".lock"}


def test_recovery_fails_if_the_store_refuses_during_replay(story: Story) -> None:
    """A store that refuses must not look like the end of the archive: PostgreSQL would open with lost commits."""
    with empty_volumes(story.server) as volumes:
        assert run_job(volumes, "recover", JOB, moment="restored").code == KILLED
        assert run_job(volumes, "recover", JOB, moment="replaying").code == KILLED
        write_store(volumes.paths.source_store_file, story.server.store_fields(secretAccessKey="x" * 40))
        failed = run_job(volumes, "recover", JOB)
        assert (failed.code, failed.result["reason"]) == (1, "RecoveryFailed"), failed.logs
        assert not (volumes.paths.postgresql_data / "PG_VERSION").exists()
        write_store(volumes.paths.source_store_file, story.server.store_fields())
        assert run_job(volumes, "recover", JOB).code == 0
        assert marks(volumes)[-1] == "g"


def test_recovery_without_a_segment_is_refused(story: Story) -> None:
    """Last in this module: the segment stays away."""
    store = story.server.store
    key = sorted(segments(story))[-2]
    name = key.rpartition("/")[2].partition("-")[0]
    store.corrupt(key)
    with empty_volumes(story.server) as volumes:
        done = run_job(volumes, "recover", JOB)
        assert done.code == 1, done.logs
        assert not (volumes.paths.postgresql_data / "PG_VERSION").exists()
    store.delete(key)
    with empty_volumes(story.server) as volumes:
        done = run_job(volumes, "recover", JOB)
        assert (done.code, done.result["reason"]) == (3, "WALMissing"), done.logs
        assert name in done.result["message"]
        assert "complete up to 2" in done.result["message"]
