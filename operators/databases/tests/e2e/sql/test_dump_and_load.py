"""The CronJobs of the documentation make dumps by the owner's Secret, which load into a new cluster by that one's."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, SqlClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from framework_support.documented_code import DOCS

PAGE = (DOCS / "how-to" / "dump-and-restore.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Words:
    """What is particular to an engine: what its owner has, and what loads a dump."""

    name: str
    made: Sequence[str]
    load: str


WORDS: Mapping[EngineCommands, Words] = {
    POSTGRESQL: Words(
        name="shop",
        made=(
            "CREATE TABLE visits (n int PRIMARY KEY)",
            "CREATE FUNCTION total() RETURNS bigint LANGUAGE sql AS 'SELECT sum(n) FROM visits'",
            "INSERT INTO visits VALUES (40), (2)",
        ),
        load="pg_restore --no-owner --no-privileges --dbname=shop /dumps/*.dump",
    ),
    MYSQL: Words(
        name="stock",
        made=(
            "CREATE TABLE visits (n int PRIMARY KEY)",
            "CREATE FUNCTION total() RETURNS int READS SQL DATA RETURN (SELECT sum(n) FROM visits)",
            "INSERT INTO visits VALUES (40), (2)",
        ),
        load=(
            "mysql --host=$DB_HOST --port=$DB_PORT --user=$DB_USER --ssl-mode=VERIFY_IDENTITY "
            "--ssl-ca=/etc/stock/ca.crt $DB < $(ls /dumps/*.sql)"
        ),
    ),
}


def documented(of: EngineCommands, image: str) -> list[dict[str, Any]]:
    """The volume of dumps and the CronJob, as somebody copies them from the page."""
    [text] = [block for block in BLOCKS if "kind: CronJob" in block]
    if of is MYSQL:
        text = text.replace("shop", WORDS[of].name)
    volume, cron = yaml.safe_load_all(text)
    [container] = pod_of(cron)["containers"]
    if of is MYSQL:
        [fragment] = [block for block in BLOCKS if "mysqldump --host" in block]
        container.update(yaml.safe_load(textwrap.dedent(fragment)))
    container["image"] = image
    volume["spec"]["resources"]["requests"]["storage"] = "256Mi"
    return [volume, cron]


def pod_of(cron: Mapping[str, Any]) -> dict[str, Any]:
    return cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def loading(cron: Mapping[str, Any], words: Words, secret: str) -> dict[str, Any]:
    """A Job that loads what is in the volume of dumps, by the Secret of another cluster."""
    spec = json.loads(json.dumps(cron["spec"]["jobTemplate"]["spec"]).replace(f'"{words.name}-app"', f'"{secret}"'))
    spec["template"]["spec"]["containers"][0]["args"] = [words.load]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "load"}, "spec": spec}


def cluster_of(place: NamespaceClient, of: EngineCommands, name: str) -> ClusterUnderTest:
    """One instance, and a client of its first database's owner."""
    initdb = {"database": WORDS[of].name, "owner": "keeper"}
    cluster = ClusterUnderTest(place, name, {**of.small, "instances": 1, "bootstrap": {"initdb": initdb}}, of)
    cluster.apply()
    cluster.wait_ready()
    return cluster


def ends(place: NamespaceClient, job: str) -> None:
    """Waits for it to complete. Raises what its pods wrote where they failed."""

    def ended() -> set[str]:
        conditions = place.get("job", job).get("status", {}).get("conditions", [])
        return {c["type"] for c in conditions if c["status"] == "True"} & {"Complete", "Failed"}

    outcome = place.until(f"Job {job} has ended", ended)
    assert outcome == {"Complete"}, place.kubectl("logs", f"job/{job}")


@EACH_ENGINE
@pytest.mark.timeout(900)
def test_documented_dump_and_load_work(place: NamespaceClient, of: EngineCommands) -> None:
    words = WORDS[of]
    former = cluster_of(place, of, words.name)
    client = SqlClient(former, f"{words.name}-app")
    client.start()
    for statement in words.made:
        client.sql(statement)

    volume, cron = documented(of, former.status["image"])
    place.create(volume, cron)
    name = cron["metadata"]["name"]
    place.kubectl("create", "job", f"{name}-now", f"--from=cronjob/{name}")
    ends(place, f"{name}-now")
    former.delete()

    cluster_of(place, of, f"{words.name}2")
    place.create(loading(cron, words, f"{words.name}2-app"))
    ends(place, "load")
    login = place.secret(f"{words.name}2-app")
    found = place.log_in(f"{words.name}2-0-0", login, "SELECT total()", of.settings)
    assert found == "42"
