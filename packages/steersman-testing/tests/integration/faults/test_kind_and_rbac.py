"""Kinds, permissions and valid objects disappear and return."""

from __future__ import annotations

import asyncio
from pathlib import Path

from framework_support.churn import Churn
from framework_support.fault_proxy import FaultProxy
from framework_support.fault_tests import FaultScale, StartOperator, write_measurements
from framework_support.gadget import Gadget
from framework_support.operator_process import OperatorProcess
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apply import meta, rbac
from steersman.api.core_v1 import ConfigMap
from steersman.api.rbac_v1 import RoleBinding
from steersman.client import Client, MergePatch, connect
from steersman.errors import Forbidden, NotFound
from steersman.meta import ObjectKey, unstructured
from steersman_testing.envtest import Envtest

DEFINITION = ObjectKey("", "gadgets.faults.example.com")
USER = "gadgets"


async def test_crd_recreated_resumes_reconciling(envtest: Envtest, churn: Churn, operator: StartOperator) -> None:
    async with operator(envtest.kubeconfig) as process:
        await churn.wait_until_converged()
        async with churn.running():
            await churn.wait_for_round()
            await churn.client.delete(CustomResourceDefinition, DEFINITION)
            await _wait_until_forbidden(churn.client, churn)
            await _wait_for_metric(process, "steersman_watch_restarts_total")
            await churn.install_crd()
            await churn.wait_for_round()
        elapsed = await churn.wait_until_converged()
        assert process.exit_code is None
        assert churn.failures["NotFound"], "the kind was never away"
        await write_measurements("CRD deleted and made again", churn, process, recovery=elapsed)


async def test_rbac_withdrawn_and_restored_recovers(
    envtest: Envtest, churn: Churn, operator: StartOperator, scale: FaultScale, tmp_path: Path
) -> None:
    user = envtest.user(USER)
    await _grant(churn)
    async with connect(user.config) as transport:
        async with asyncio.timeout(60):
            while not await _may_list(Client(transport), churn.namespace):
                await asyncio.sleep(0.05)
        with FaultProxy.running(tmp_path, user.kubeconfig) as proxy:
            async with operator(proxy.kubeconfig) as process:
                await churn.wait_until_converged()
                async with churn.running():
                    await churn.wait_for_round()
                    await churn.client.delete(RoleBinding, ObjectKey(churn.namespace, USER))
                    await _wait_until_forbidden(Client(transport), churn)
                    # RBAC is checked per request. Open watches continue, but writes for their events are forbidden.
                    await _wait_for_metric(process, "controller_runtime_reconcile_errors_total")
                    proxy.break_watches()
                    await _wait_for_metric(process, "steersman_watch_restarts_total")
                    await asyncio.sleep(scale.outage)
                    await _grant(churn)
                    await churn.wait_for_round()
                elapsed = await churn.wait_until_converged()
                assert process.exit_code is None
                await write_measurements(
                    "RBAC withdrawn and given back", churn, process, seconds=scale.outage, recovery=elapsed
                )


async def test_undecodable_objects_do_not_affect_others(
    envtest: Envtest, churn: Churn, operator: StartOperator
) -> None:
    listed, watched = churn.keys[1], churn.keys[-2]
    churn.excluded = {listed, watched}
    await _set_replicas(churn, listed, "blinding")
    async with operator(envtest.kubeconfig) as process:
        await churn.wait_until_converged(ignoring=[listed])
        before = await churn.client.get(ConfigMap, watched)
        async with churn.running():
            await churn.wait_for_round()
            await _set_replicas(churn, watched, "blinding")
            await churn.wait_for_round()
        elapsed = await churn.wait_until_converged(ignoring=churn.excluded)
        assert (await churn.client.get(ConfigMap, watched)).data == before.data
        assert (await process.metrics())["steersman_decode_errors_total"] >= 2
        await write_measurements("poisoned objects", churn, process, recovery=elapsed)
        for key in churn.excluded:
            await _set_replicas(churn, key, 7)
        await churn.wait_until_converged()
        assert process.exit_code is None


async def _set_replicas(churn: Churn, key: ObjectKey, replicas: int | str) -> None:
    # A typed client could not decode the response.
    await churn.client.patch(unstructured(Gadget.api_resource), key, MergePatch({"spec": {"replicas": replicas}}))


async def _grant(churn: Churn) -> None:
    """Grant the permissions of the operator to ``USER``."""
    metadata = meta.ObjectMeta(name=USER, namespace=churn.namespace)
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    rules = [
        rbac.PolicyRule(api_groups=[group], resources=resources, verbs=verbs)
        for group, resources in (("", ["configmaps"]), ("faults.example.com", ["gadgets", "gadgets/status"]))
    ]
    await churn.client.apply(rbac.Role(metadata=metadata, rules=rules))
    role = rbac.RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=USER)
    user = rbac.Subject(api_group="rbac.authorization.k8s.io", kind="User", name=USER)
    await churn.client.apply(rbac.RoleBinding(metadata=metadata, role_ref=role, subjects=[user]))


async def _may_list(client: Client, namespace: str) -> bool:
    try:
        await client.list(Gadget, namespace=namespace)
    except (Forbidden, NotFound):
        return False
    return True


async def _wait_until_forbidden(client: Client, churn: Churn) -> None:
    async with asyncio.timeout(churn.patience):
        while await _may_list(client, churn.namespace):
            await asyncio.sleep(0.05)


async def _wait_for_metric(process: OperatorProcess, metric: str) -> None:
    """Wait until the counter ``metric`` of the operator is above zero."""
    async with asyncio.timeout(60):
        while not (await process.metrics()).get(metric, 0.0):
            await asyncio.sleep(0.1)
