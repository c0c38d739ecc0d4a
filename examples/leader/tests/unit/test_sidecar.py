"""Sidecars in virtual time: partitions, kills, freezes and deletions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace
from steersman import MergePatch, ObjectKey, ObjectMeta
from steersman.api.coordination_v1 import Lease
from steersman.errors import ApiError, Invalid
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

from leader_operator.api.v1.leaderservice import LeaderService
from model_pod import KEY, ModelPod, model_pods, now

LEASE = ObjectKey("default", "orders-leader")


def lease(server: InMemoryApiServer) -> Lease:
    found = server.read(Lease, LEASE)
    assert found is not None
    return found


def recorded_term(server: InMemoryApiServer) -> int:
    found = server.read(LeaderService, KEY)
    assert found is not None
    return found.status.term or 0


@virtual_time
async def test_one_pod_leads_and_all_report_it(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        await asyncio.sleep(5)
        for pod in pods.pods:
            report = pod.report()
            assert (report.leader, report.term) == (leader.name, 1)
            assert report.leading is (pod is leader)
            assert (report.valid_seconds > 0) is (pod is leader)
        assert recorded_term(apiserver) == 1
        assert lease(apiserver).metadata.owner_references[0].name == "orders"
        assert {write.writer for write in pods.store.acknowledged} == {leader.name}


@pytest.mark.requirement("pattern/leader")
@virtual_time
async def test_partitioned_leader_ends_before_next_one(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        began = now()
        leader.partition()
        following = await pods.wait_for_leader(other_than=leader)
        assert leader.application.ended_at, "the partitioned leader still runs"
        assert leader.application.ended_at[0] - began <= 21
        assert 23 <= now() - began <= 30
        assert following.report().term == 2
        leader.heal()
        await asyncio.sleep(60)
        assert pods.leaders() == [following]
        assert pods.store.violations() == []


@virtual_time
async def test_leader_renews_after_short_partition(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.partition()
        await asyncio.sleep(6)
        leader.heal()
        await asyncio.sleep(60)
        assert pods.leaders() == [leader]
        assert recorded_term(apiserver) == 1


@virtual_time
async def test_killed_pod_is_replaced_after_the_lease(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        began = now()
        pods.pods.remove(leader)
        leader.kill()
        await pods.wait_for_leader()
        assert 23 <= now() - began <= 30
        assert pods.store.violations() == []


@virtual_time
async def test_restarted_sidecar_ends_the_application_first(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        began = now()
        leader.restart_sidecar()
        await asyncio.sleep(0.1)
        assert leader.application.ended_at == [began], "SIGKILL at once: the rest of the Lease is unknown"
        await asyncio.sleep(10)
        await pods.wait_for_leader()
        assert recorded_term(apiserver) == 2
        assert pods.store.violations() == []


@virtual_time
async def test_deleted_pod_hands_over_within_seconds(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        began = now()
        await leader.shut_down()
        await pods.wait_for_leader(other_than=leader)
        assert now() - began <= 5
        assert pods.store.violations() == []


@virtual_time
async def test_unhealthy_leader_ends_and_is_replaced(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver, termination_seconds=30) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        leader.application.healthy = False
        began = now()
        await pods.wait_for_leader(other_than=leader)
        # The Lease is renewed while the application ends, and released afterwards.
        assert 30 <= leader.application.ended_at[0] - began <= 33
        assert now() - leader.application.ended_at[0] <= 5
        await asyncio.sleep(60)
        assert leader not in pods.leaders()
        assert pods.store.violations() == []


@virtual_time
async def test_hanging_health_check_does_not_delay_the_end(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        leader.application.hangs = True
        began = now()
        leader.partition()
        await pods.wait_for_leader(other_than=leader)
        assert leader.application.ended_at, "the partitioned leader still runs"
        assert leader.application.ended_at[0] - began <= 21
        assert pods.store.violations() == []


@virtual_time
async def test_hanging_health_check_ends_the_term(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.hangs = True
        await pods.wait_for_leader(other_than=leader, within=30)
        assert pods.store.violations() == []


@virtual_time
async def test_application_that_did_not_end_keeps_the_lease(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stop_errors = [OSError("too many open files"), ValueError("malformed")] * 100
        leader.application.healthy = False
        await asyncio.sleep(50)
        assert not leader.application.ended_at
        assert lease(apiserver).spec.holder_identity == leader.settings.identity
        await pods.wait_for_leader(other_than=leader, within=120)
        assert pods.store.violations() == []


@virtual_time
async def test_crashed_application_ends_the_term(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.crash()
        await asyncio.sleep(1)
        assert not leader.report().leading
        await pods.wait_for_leader(within=10)
        assert recorded_term(apiserver) == 2


@virtual_time
async def test_end_of_a_later_container_ends_the_term(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.helpers.add("started-later")
        await asyncio.sleep(5)
        assert leader.report().leading
        leader.application.helpers.clear()
        await asyncio.sleep(1)
        assert not leader.report().leading
        await pods.wait_for_leader(within=10)
        assert recorded_term(apiserver) == 2


@virtual_time
async def test_unreadable_processes_do_not_end_the_sidecar(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver, number=1) as pods:
        leader = await pods.wait_for_leader()
        leader.application.list_errors = [OSError("too many open files")]
        await asyncio.sleep(1)
        assert leader.application.ended_at
        await pods.wait_for_leader()
        assert recorded_term(apiserver) == 2
        assert pods.store.violations() == []


@virtual_time
async def test_pod_without_application_does_not_lead(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver, number=1) as pods:
        await asyncio.sleep(1)
        pods.pods[0].application.crash(restart=False)
        await asyncio.sleep(60)
        assert pods.leaders() == []
        pods.pods[0].application.restart()
        assert await pods.wait_for_leader(within=40)


@pytest.mark.parametrize("checks_term", [False, True])
@virtual_time
async def test_thawed_pod_is_refused_by_a_checking_store(apiserver: InMemoryApiServer, checks_term: bool) -> None:
    async with model_pods(apiserver, checks_term=checks_term) as pods:
        leader = await pods.wait_for_leader()
        leader.freeze()
        await pods.wait_for_leader(other_than=leader)
        thawed_at = now()
        leader.thaw()
        await asyncio.sleep(5)
        assert leader.application.ended_at[0] - thawed_at <= 1
        # The application writes what it began before, until the sidecar has ended it.
        assert bool(pods.store.refused) is checks_term
        assert bool(pods.store.violations()) is not checks_term


@virtual_time
async def test_deleted_lease_ends_the_leader(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        began = now()
        await pods.user.delete(Lease, LEASE)
        await asyncio.sleep(5)
        assert leader.application.ended_at[0] - began <= 3
        assert pods.leaders() == []
        await pods.wait_for_leader()
        assert now() - began >= 25
        assert (lease(apiserver).spec.lease_transitions, recorded_term(apiserver)) == (2, 2)
        assert pods.store.violations() == []


@virtual_time
async def test_repeatedly_deleted_lease_has_one_writer(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        for _ in range(600):
            with suppress(ApiError):
                await pods.user.delete(Lease, LEASE)
            await asyncio.sleep(0.3)
            assert len(pods.leaders()) <= 1
        assert pods.store.violations() == []
        assert recorded_term(apiserver) > 3


@virtual_time
async def test_deleted_lease_of_partitioned_leader_is_waited_out(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        leader.partition()
        await pods.user.delete(Lease, LEASE)
        following = await pods.wait_for_leader(other_than=leader)
        assert leader.application.ended_at
        assert following.report().term == 2
        assert pods.store.violations() == []


@virtual_time
async def test_edited_holder_ends_the_leader_at_once(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        began = now()
        await pods.user.patch(Lease, LEASE, MergePatch({"spec": {"holderIdentity": "somebody_else"}}))
        await asyncio.sleep(5)
        assert leader.application.ended_at[0] - began <= 3
        assert leader.report().leader == "somebody"


@virtual_time
async def test_deleted_leaderservice_ends_the_term(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        await pods.wait_for_leader()
        await pods.user.delete(LeaderService, KEY)
        await apiserver.collect_garbage_async()
        await asyncio.sleep(30)
        assert pods.leaders() == []


@virtual_time
async def test_min_term_raises_the_terms_of_a_new_service(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        await pods.wait_for_leader()
        deleted = await pods.user.get(LeaderService, KEY)
        await pods.user.delete(LeaderService, KEY)
        await apiserver.collect_garbage_async()
        await asyncio.sleep(20)
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await pods.user.create(LeaderService(metadata=metadata, spec=replace(deleted.spec, min_term=40)))
        await asyncio.sleep(60)
        assert recorded_term(apiserver) == 41
        assert [pod.report().term for pod in pods.leaders()] == [41]


@virtual_time
async def test_recreated_service_waits_for_previous_leader(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        leader.application.stubborn = True
        leader.partition()
        deleted = await pods.user.get(LeaderService, KEY)
        await pods.user.delete(LeaderService, KEY)
        await apiserver.collect_garbage_async()
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await pods.user.create(LeaderService(metadata=metadata, spec=deleted.spec))
        await pods.wait_for_leader(other_than=leader)
        assert leader.application.ended_at, "the partitioned leader still runs"


@virtual_time
async def test_raised_min_term_begins_a_new_term(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        await pods.wait_for_leader()
        await pods.user.patch(LeaderService, KEY, MergePatch({"spec": {"minTerm": 40}}))
        await asyncio.sleep(40)
        assert [pod.report().term for pod in pods.leaders()] == [41]
        assert lease(apiserver).spec.lease_transitions == 41
        assert recorded_term(apiserver) == 41
        assert pods.store.violations() == []
        await asyncio.sleep(60)
        assert recorded_term(apiserver) == 41


@virtual_time
async def test_lower_min_term_keeps_the_leader(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver, min_term=40) as pods:
        leader = await pods.wait_for_leader()
        await pods.user.patch(LeaderService, KEY, MergePatch({"spec": {"minTerm": 20}}))
        await asyncio.sleep(60)
        assert pods.leaders() == [leader]
        assert leader.report().term == 41


@virtual_time
async def test_changed_termination_is_used_by_candidates(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver) as pods:
        leader = await pods.wait_for_leader()
        assert lease(apiserver).spec.lease_duration_seconds == 25
        await pods.user.patch(LeaderService, KEY, MergePatch({"spec": {"terminationSeconds": 40}}))
        await asyncio.sleep(5)
        await leader.shut_down()
        await pods.wait_for_leader(other_than=leader)
        assert lease(apiserver).spec.lease_duration_seconds == 55


@virtual_time
async def test_lower_term_is_rejected_by_the_api_server(apiserver: InMemoryApiServer) -> None:
    async with model_pods(apiserver, number=0) as pods:
        await pods.user.patch(LeaderService, KEY, MergePatch({"status": {"term": 3}}), subresource="status")
        for status in ({"term": 2}, {"term": None}):
            with pytest.raises(Invalid, match="term must not decrease"):
                await pods.user.patch(LeaderService, KEY, MergePatch({"status": status}), subresource="status")


@pytest.mark.parametrize("seed", range(4))
def test_writers_never_overlap_under_random_faults(seed: int, apiserver: InMemoryApiServer) -> None:
    @virtual_time
    async def run() -> None:
        await run_random_faults(apiserver, seed, freeze=False)

    run()


@pytest.mark.parametrize("seed", range(4))
def test_checking_store_refuses_thawed_writers(seed: int, apiserver: InMemoryApiServer) -> None:
    @virtual_time
    async def run() -> None:
        await run_random_faults(apiserver, seed, freeze=True)

    run()


async def run_random_faults(server: InMemoryApiServer, seed: int, *, freeze: bool) -> None:
    """Run ten minutes with a fault every ten seconds. Only frozen pods need a store that checks terms."""
    random = virtual_runtime(seed).random
    async with model_pods(server, checks_term=freeze) as pods:
        for _ in range(60):
            await asyncio.sleep(random.uniform(0, 20))
            pod: ModelPod = random.choice(pods.pods)
            pod.application.stubborn = random.random() < 0.5
            match random.randrange(8 if freeze else 7):
                case 0:
                    pod.partition()
                case 1 | 2:
                    pod.thaw()
                case 3:
                    pod.restart_sidecar() if pod.running.is_set() else None
                case 4:
                    pods.pods.remove(pod)
                    pod.kill()
                    pods.add()
                case 5:
                    with suppress(ApiError):
                        await pods.user.delete(Lease, LEASE)
                case 6:
                    server.fail_next(matching("PATCH", "/leases"), 503, times=random.randrange(6))
                case _:
                    pod.freeze()
        assert pods.store.violations() == []
        assert len({write.term for write in pods.store.acknowledged}) > 5
