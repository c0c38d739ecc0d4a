"""The kind, the right to see it, or the sense of one object of it goes away, and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from framework_support.beacon import Beacon
from framework_support.churn import Churn
from framework_support.fault_proxy import FaultProxy
from framework_support.fault_scale import Scale, StartOperator
from framework_support.figures import report
from framework_support.operator_process import OperatorProcess
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apply.rbac_v1 import PolicyRuleApply, RoleApply, RoleBindingApply, RoleRefApply, SubjectApply
from steersman.api.core_v1 import ConfigMap
from steersman.api.rbac_v1 import RoleBinding
from steersman.client import Client, MergePatch, connect
from steersman.errors import Forbidden, NotFound
from steersman.meta import ObjectKey, ObjectMetaApply, unstructured
from steersman_testing.envtest import Envtest

DEFINITION = ObjectKey("", "beacons.faults.example.com")
USER = "beacons"


async def test_the_kind_is_deleted_and_made_again(envtest: Envtest, churn: Churn, operator: StartOperator) -> None:
    async with operator(envtest.kubeconfig) as process:
        await churn.settled()
        async with churn.changing():
            await churn.round()
            await churn.client.delete(CustomResourceDefinition, DEFINITION)
            await _until_refused(churn.client, churn)
            await _until_counted(process, "steersman_watch_restarts_total")
            await churn.define()
            await churn.round()
        took = await churn.settled()
        assert process.exit_code is None
        assert churn.failures["NotFound"], "the kind was never away"
        await report("CRD deleted and made again", churn, process, recovery=took)


async def test_its_rights_are_withdrawn_and_given_back(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: Scale, tmp_path: Path
) -> None:
    user = envtest.user(USER)
    await _permit(churn)
    async with connect(user.config) as transport:
        async with asyncio.timeout(60):
            while not await _may_list(Client(transport), churn.namespace):
                await asyncio.sleep(0.05)
        with FaultProxy.running(tmp_path, user.kubeconfig) as proxy:
            async with operator(proxy.kubeconfig) as process:
                await churn.settled()
                async with churn.changing():
                    await churn.round()
                    await churn.client.delete(RoleBinding, ObjectKey(churn.namespace, USER))
                    await _until_refused(Client(transport), churn)
                    # RBAC is asked once a request: watches go on, and what they tell of may not be acted on.
                    await _until_counted(process, "controller_runtime_reconcile_errors_total")
                    proxy.break_watches()
                    await _until_counted(process, "steersman_watch_restarts_total")
                    await asyncio.sleep(scale.outage)
                    await _permit(churn)
                    await churn.round()
                took = await churn.settled()
                assert process.exit_code is None
                await report("RBAC withdrawn and given back", churn, process, seconds=scale.outage, recovery=took)


async def test_poisoned_objects_are_left_alone_and_cost_the_others_nothing(
    envtest: Envtest, churn: Churn, operator: StartOperator
) -> None:
    listed, watched = churn.keys[1], churn.keys[-2]
    churn.spared = {listed, watched}
    await _brighten(churn, listed, "blinding")
    async with operator(envtest.kubeconfig) as process:
        await churn.settled(but=[listed])
        before = await churn.client.get(ConfigMap, watched)
        async with churn.changing():
            await churn.round()
            await _brighten(churn, watched, "blinding")
            await churn.round()
        took = await churn.settled(but=churn.spared)
        assert (await churn.client.get(ConfigMap, watched)).data == before.data
        assert (await process.metrics())["steersman_decode_errors_total"] >= 2
        await report("poisoned objects", churn, process, recovery=took)
        for key in churn.spared:
            await _brighten(churn, key, 7)
        await churn.settled()
        assert process.exit_code is None


async def _brighten(churn: Churn, key: ObjectKey, brightness: int | str) -> None:
    # A typed client could not read the answer.
    await churn.client.patch(unstructured(Beacon.api_resource), key, MergePatch({"spec": {"brightness": brightness}}))


async def _permit(churn: Churn) -> None:
    """All that the operator needs, for ``USER``."""
    metadata = ObjectMetaApply(name=USER, namespace=churn.namespace)
    rules = [
        PolicyRuleApply(api_groups=[group], resources=resources, verbs=["get", "list", "watch", "create", "patch"])
        for group, resources in (("", ["configmaps"]), ("faults.example.com", ["beacons", "beacons/status"]))
    ]
    await churn.client.apply(RoleApply(metadata=metadata, rules=rules))
    role = RoleRefApply(api_group="rbac.authorization.k8s.io", kind="Role", name=USER)
    user = SubjectApply(api_group="rbac.authorization.k8s.io", kind="User", name=USER)
    await churn.client.apply(RoleBindingApply(metadata=metadata, role_ref=role, subjects=[user]))


async def _may_list(client: Client, namespace: str) -> bool:
    try:
        await client.list(Beacon, namespace=namespace)
    except (Forbidden, NotFound):
        return False
    return True


async def _until_refused(client: Client, churn: Churn) -> None:
    async with asyncio.timeout(churn.patience):
        while await _may_list(client, churn.namespace):
            await asyncio.sleep(0.05)


async def _until_counted(process: OperatorProcess, metric: str) -> None:
    """Returns once the operator has counted one of what ``metric`` counts."""
    async with asyncio.timeout(60):
        while not (await process.metrics()).get(metric, 0.0):
            await asyncio.sleep(0.1)
