"""Services follow the roles of a cluster that an operator looks after, as fast as test_patroni_cluster.py has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import EACH_ENGINE
from database_support.e2e.field_watch import FOLLOWS, ROLE, endpoints, watching_field
from database_support.e2e.leader_watch import watching_leader

pytestmark = [pytest.mark.xdist_group("cluster-services"), EACH_ENGINE]

Record = Callable[[str, object], None]


@pytest.mark.requirement("pattern/service")
def test_services_follow_planned_switchover(three: ClusterUnderTest, record_property: Record) -> None:
    place, former, (witness, wanted) = three.namespace_client, three.primary, three.replicas

    def left() -> float | None:
        return next((at for at, names in ro.lines[before:] if f"{wanted}-0" not in names.split()), None)

    with (
        watching_leader(three, witness) as members,
        watching_field(place, "pod", f"{former}-0", ROLE) as role,
        endpoints(place, f"{three.name}-rw") as rw,
        endpoints(place, f"{three.name}-ro") as ro,
        endpoints(place, f"{three.name}-r") as r,
    ):
        three.until("-ro leads to both", lambda: len(ro.lines[-1][1].split()) == 2, 60)
        before = len(ro.lines)
        three.annotate("switchover", wanted)
        since = members.wait_for(f"{wanted} leads", f"{wanted}-0".__eq__)
        moments = {
            "-rw leads to it": rw.wait_for("-rw leads to it", f"{wanted}-0".__eq__) - since,
            "it leaves -ro": three.until("it leaves -ro", left, 60) - since,
        }
        follows = role.wait_for("the former follows", "replica".__eq__)
        joins = ro.wait_for("the former joins -ro", lambda names: f"{former}-0" in names.split())
        moments["the former joins -ro"] = joins - follows
        for what, seconds in moments.items():
            record_property(f"seconds until {what}", round(seconds, 2))
        three.wait_ready()
        assert all(f"{wanted}-0" in names.split() for _, names in r.lines), "-r leads to it whatever it is"
    assert max(moments.values()) <= FOLLOWS, moments
