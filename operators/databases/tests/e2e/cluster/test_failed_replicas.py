"""With `replaceFailedInstances: OnRequest`, what has failed stays until a person has another take its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from database_support.e2e.cluster import ClusterUnderTest, writing
from database_support.e2e.engines import EACH_ENGINE
from database_support.e2e.plugin import install_plugin

pytestmark = [pytest.mark.xdist_group("failed-replicas"), pytest.mark.timeout(1200)]


@EACH_ENGINE
def test_failed_replica_is_kept_until_replacement_requested(three: ClusterUnderTest, tmp_path: Path) -> None:
    """Of itself the operator gives broken data up after five minutes, and a lost volume as soon as it tells of it."""
    failed, primary, place = three.replicas[0], three.primary, three.namespace_client
    plugin = install_plugin(three, tmp_path)
    three.apply(replaceFailedInstances="OnRequest")
    three.wait_ready()
    numbers = ", ".join(f"({n})" for n in range(1000))
    three.sql(f"CREATE TABLE asked (n int PRIMARY KEY); INSERT INTO asked VALUES {numbers}", "shop")

    def kept() -> list[tuple[str, bool]]:
        """Its objects, and whether somebody is about to take them away: a claim is marked for it first."""
        claim, statefulset = place.get("pvc", f"data-{failed}"), place.get("statefulset", failed)
        marked = "databases.steersman.dev/removed-at" in claim["metadata"]["labels"]
        ends = "deletionTimestamp" in statefulset["metadata"]
        return [(claim["metadata"]["uid"], marked), (statefulset["metadata"]["uid"], ends)]

    with writing(three, "shop-app") as seen:
        before = kept()
        three.execute(failed, "sh", "-c", three.engine.corrupt)
        place.kubectl("delete", "pod", f"{failed}-0", "--force", "--grace-period=0", "--wait=false")
        said = three.wait_reason("InstanceCrashing", seconds=180)["message"]
        assert failed in said and three.engine.corruption_message in said and "kubectl steersman replace" in said, (
            said
        )
        # It goes as soon as no pod uses it.
        place.kubectl("delete", "pvc", f"data-{failed}", "--wait=false")
        said = three.wait_reason("VolumeLost", "VolumesResized")["message"]
        assert f"the volume of {failed} is lost or being deleted" in said
        assert kept() == before
        assert not [told for told in place.events("orders", "InstanceReplaced") if told.startswith(f"{failed} ")]

        assert f"replaced {failed}" in plugin("replace", three.name, failed)
        three.wait_ready(seconds=400)
        assert seen.errors == [] and seen.lost_rows() == 0
    three.until("the claim is gone", lambda: not place.get("pvc", f"data-{failed}"), 60)
    assert failed not in three.nodes() and three.primary == primary
    three.until(
        "each has the rows",
        lambda: {three.sql("SELECT COUNT(*) FROM asked", "shop", n) for n in three.nodes()} == {"1000"},
        30,
    )
    assert f"replacing instance {failed}: a user requested it" in place.events("orders", "InstanceReplaced")
