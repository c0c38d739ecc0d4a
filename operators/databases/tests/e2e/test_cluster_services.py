"""Services follow the roles of a cluster that an operator looks after, as fast as test_patroni_cluster.py has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from database_support.cluster_engines import EACH
from database_support.cluster_under_test import ClusterUnderTest
from database_support.watched_fields import FOLLOWS, ROLE, endpoints, watching
from database_support.watched_roles import leaders

pytestmark = [pytest.mark.xdist_group("cluster-services"), EACH]

Record = Callable[[str, object], None]


def test_they_follow_a_planned_switchover(three: ClusterUnderTest, record_property: Record) -> None:
    place, former, (witness, wanted) = three.place, three.primary, three.replicas

    def left() -> float | None:
        return next((at for at, names in ro.seen[before:] if f"{wanted}-0" not in names.split()), None)

    with (
        leaders(three, witness) as members,
        watching(place, "pod", f"{former}-0", ROLE) as role,
        endpoints(place, f"{three.name}-rw") as rw,
        endpoints(place, f"{three.name}-ro") as ro,
        endpoints(place, f"{three.name}-r") as r,
    ):
        three.until("-ro leads to both", lambda: len(ro.seen[-1][1].split()) == 2, 60)
        before = len(ro.seen)
        three.annotate("switchover", wanted)
        since = members.moment(f"{wanted} leads", f"{wanted}-0".__eq__)
        moments = {
            "-rw leads to it": rw.moment("-rw leads to it", f"{wanted}-0".__eq__) - since,
            "it leaves -ro": three.until("it leaves -ro", left, 60) - since,
        }
        follows = role.moment("the former follows", "replica".__eq__)
        joins = ro.moment("the former joins -ro", lambda names: f"{former}-0" in names.split())
        moments["the former joins -ro"] = joins - follows
        for what, seconds in moments.items():
            record_property(f"seconds until {what}", round(seconds, 2))
        three.wait_ready()
        assert all(f"{wanted}-0" in names.split() for _, names in r.seen), "-r leads to it whatever it is"
    assert max(moments.values()) <= FOLLOWS, moments
