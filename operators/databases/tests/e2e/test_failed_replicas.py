"""With `replaceFailedInstances: OnRequest`, what has failed stays until a person has another take its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from database_support.cluster_engines import EACH
from database_support.cluster_under_test import ClusterUnderTest, writing
from database_support.installed_plugin import install_plugin

pytestmark = [pytest.mark.xdist_group("failed-replicas"), pytest.mark.timeout(1200)]


@EACH
def test_a_failed_replica_is_kept_until_somebody_asks_for_another(three: ClusterUnderTest, tmp_path: Path) -> None:
    """Of itself the operator gives broken data up after five minutes, and a lost volume as soon as it tells of it."""
    failed, primary, place = three.replicas[0], three.primary, three.place
    plugin = install_plugin(three, tmp_path)
    three.apply(replaceFailedInstances="OnRequest")
    three.wait_ready()
    numbers = ", ".join(f"({n})" for n in range(1000))
    three.sql(f"CREATE TABLE asked (n int PRIMARY KEY); INSERT INTO asked VALUES {numbers}", "shop")

    def kept() -> list[tuple[str, bool]]:
        """Its objects, and whether somebody is about to take them away: a claim is marked for it first."""
        claim, statefulset = place.get("pvc", f"data-{failed}"), place.get("statefulset", failed)
        marked = "databases.steersman.dev/retired" in claim["metadata"]["labels"]
        ends = "deletionTimestamp" in statefulset["metadata"]
        return [(claim["metadata"]["uid"], marked), (statefulset["metadata"]["uid"], ends)]

    with writing(three, "shop-app") as seen:
        before = kept()
        three.execute(failed, "sh", "-c", three.engine.spoil)
        place.kubectl("delete", "pod", f"{failed}-0", "--force", "--grace-period=0", "--wait=false")
        said = three.wait_reason("InstanceCrashing", seconds=180)["message"]
        assert failed in said and three.engine.broken in said and "kubectl steersman replace" in said, said
        # It goes as soon as no pod uses it.
        place.kubectl("delete", "pvc", f"data-{failed}", "--wait=false")
        said = three.wait_reason("VolumeLost", "StorageAsDeclared")["message"]
        assert f"the volume of {failed} is gone, or being deleted" in said
        assert kept() == before
        assert not [told for told in place.events("orders", "InstanceReplaced") if told.startswith(f"{failed} ")]

        assert f"replaced {failed}" in plugin("replace", three.name, failed)
        three.wait_ready(seconds=400)
        assert seen.errors == [] and seen.lost() == 0
    three.until("the claim is gone", lambda: not place.get("pvc", f"data-{failed}"), 60)
    assert failed not in three.nodes() and three.primary == primary
    three.until(
        "each has the rows",
        lambda: {three.sql("SELECT COUNT(*) FROM asked", "shop", n) for n in three.nodes()} == {"1000"},
        30,
    )
    assert f"{failed} is replaced: it was asked for" in place.events("orders", "InstanceReplaced")
