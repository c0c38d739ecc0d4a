"""Controller of RedisCluster: first its Kubernetes objects, then its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman import (
    Conflict,
    Manager,
    ObjectKey,
    ReconcileOutcome,
    Reconciler,
    ReconcilerContext,
    Result,
    generation_changed,
)
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, Pod, Secret, Service
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.cache import InformerOptions
from steersman.controller import annotations_changed
from steersman.errors import AlreadyExists, NameConflict

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.controllers.executor import StepExecutor
from redis_operator.controllers.pods import members_of
from redis_operator.controllers.status import status_fields
from redis_operator.nodes import Redis
from redis_operator.nodes.client import RedisPyClient
from redis_operator.plan import Done, Goal, Meet, Member, Replace, ScaleIn, Step, Wait, next_step
from redis_operator.resources import (
    GIVE_UP_NODE_ANNOTATION,
    MANAGED_BY,
    ObjectNames,
    client_service,
    config_map,
    disruption_budget,
    generate_password,
    headless_service,
    owning_cluster,
    password_secret,
    statefulset,
)

_OWNED_ONLY = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")
_RESYNC_SECONDS = 20.0
_NEXT_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(Result):
    """Step and members of a reconcile, for the status."""

    step: Step
    members: Sequence[Member]


class RedisClusterReconciler(Reconciler[RedisCluster]):
    """Reconciles one RedisCluster, one step at a time. It keeps no state between reconciles.

    Args:
        context: the context that the controller passes.
        redis: sends commands to nodes. Tests pass a model.
    """

    def __init__(self, context: ReconcilerContext, redis: Redis) -> None:
        super().__init__(context)
        self._redis = redis

    async def reconcile(self, cluster: RedisCluster) -> Result:
        password = await self._password(cluster)
        declared = await self._apply_objects(cluster, password)
        step, members = await self._plan(cluster, declared, password)
        await self._perform(cluster, declared, step, password)
        await self._delete_unused_config_maps(cluster, declared)
        after = _RESYNC_SECONDS if isinstance(step, Done) else _NEXT_STEP_SECONDS
        return StepResult(step=step, members=members, requeue_after=after)

    async def update_status(self, cluster: RedisCluster, outcome: ReconcileOutcome) -> None:
        if isinstance(outcome.result, StepResult):
            step, members = outcome.result.step, outcome.result.members
        elif outcome.error is not None and not isinstance(outcome.error, Conflict):
            step, members = Wait(type(outcome.error).__name__, str(outcome.error)), None
        else:
            return
        await self.status(cluster, **status_fields(cluster, step, members))

    async def _password(self, cluster: RedisCluster) -> str:
        """Return the password of the Secret, which is created once.

        A new password loses no data, because the nodes restart with it.

        Raises:
            NameConflict: a foreign object has the name of the Secret.
        """
        key = ObjectNames(cluster.key).secret
        secret = await self.client.get_or_none(Secret, key)
        if secret is None:
            try:
                secret = await self.client.create(password_secret(cluster, generate_password()), owner=cluster)
            except AlreadyExists:
                # Without its labels the Secret is not in the cache, although the nodes use its password.
                secret = await self.client.live.get(Secret, key)
                if not secret.is_controlled_by(cluster):
                    message = f"Secret {key} belongs to another owner. Rename the Secret or this RedisCluster."
                    raise NameConflict(message) from None
        return secret.data["password"].decode()

    async def _apply_objects(self, cluster: RedisCluster, password: str) -> StatefulSet:
        """Apply all objects. This reverts changes and deletions by others."""
        for config in (headless_service(cluster), client_service(cluster), disruption_budget(cluster)):
            await self.client.apply(config, owner=cluster)
        configuration = await self.client.apply(config_map(cluster), owner=cluster)
        config_stateful_set = statefulset(cluster, configuration.metadata.name, password)
        declared = await self.client.apply(config_stateful_set, owner=cluster)
        if (declared.spec.replicas or 0) < cluster.spec.replicas:
            await self._scale(declared, cluster.spec.replicas)
        return declared

    async def _scale(self, declared: StatefulSet, replicas: int) -> None:
        """Scale with the observed resourceVersion.

        A late write must not remove pods that own slots by now."""
        version = declared.metadata.resource_version
        await self.client.live.scale(StatefulSet, declared.key, replicas, resource_version=version)

    async def _plan(
        self, cluster: RedisCluster, declared: StatefulSet, password: str
    ) -> tuple[Step, Sequence[Member]]:
        goal = Goal(
            replicas=cluster.spec.replicas,
            pods=declared.spec.replicas or 0,
            replicas_per_master=cluster.spec.replicas_per_master,
            abandoned_nodes=frozenset(cluster.metadata.annotations.get(GIVE_UP_NODE_ANNOTATION, "").split(",")),
        )
        pods = await self.client.list(Pod, namespace=cluster.metadata.namespace, owner=declared)
        members = await members_of(pods, declared, goal, self._redis, password)
        if (declared.status.observed_generation or 0) < declared.metadata.generation:
            return Wait("PodsMissing", "waiting for the StatefulSet controller"), members
        return next_step(goal, members), members

    async def _perform(self, cluster: RedisCluster, declared: StatefulSet, step: Step, password: str) -> None:
        match step:
            case Wait() | Done():
                return
            case ScaleIn(to):
                await self._scale(declared, to)
            case Replace(at):
                await self._replace(declared, at)
            case _:
                await StepExecutor(self._redis, password, self.runtime.clock).execute(step)
        self.log.info("step done", step=step.reason, what=step.message)
        if not isinstance(step, Meet):
            self.events.normal(cluster, step.reason, step.message)

    async def _replace(self, declared: StatefulSet, member: Member) -> None:
        """Delete the pod with the observed resourceVersion.

        It may have become a master since then."""
        pod = await self.client.get(Pod, ObjectKey(declared.metadata.namespace, member.name))
        if pod.metadata.uid == member.uid:
            version = pod.metadata.resource_version
            await self.client.delete(Pod, pod.key, uid=member.uid, resource_version=version)

    async def _delete_unused_config_maps(self, cluster: RedisCluster, declared: StatefulSet) -> None:
        """Delete ConfigMaps that no pod uses."""
        pods = await self.client.list(Pod, namespace=cluster.metadata.namespace, owner=declared)
        specs = [declared.spec.template.spec, *(pod.spec for pod in pods)]
        used = {v.config_map.name for spec in specs for v in spec.volumes if v.config_map is not None}
        for old in await self.client.list(ConfigMap, namespace=cluster.metadata.namespace, owner=cluster):
            if old.metadata.name not in used and old.metadata.deletion_timestamp is None:
                await self.client.delete(ConfigMap, old.key, uid=old.metadata.uid)

    @classmethod
    def setup_with_manager(cls, manager: Manager, redis: Redis | None = None) -> None:
        """Register the controller and its watches with the manager."""
        nodes = redis or RedisPyClient()
        # Cache only objects of the operator, not all Secrets and Pods of the cluster.
        for kind in (StatefulSet, Service, Secret, ConfigMap, Pod, PodDisruptionBudget):
            manager.cache.configure(kind, _OWNED_ONLY)
        (
            manager.controller(RedisCluster)
            .with_predicate(generation_changed | annotations_changed)
            .owns(StatefulSet)
            .owns(Service)
            .owns(ConfigMap)
            .owns(Secret)
            .owns(PodDisruptionBudget)
            .watches(Pod, owning_cluster)
            .needs(StatefulSet, "patch", subresource="scale")
            .needs(ConfigMap, "delete")
            .needs(Secret, "get", "list", "watch", "create")
            .needs(Pod, "delete")
            .max_concurrent_reconciles(16)
            .max_retry_delay(_RESYNC_SECONDS)
            .complete(lambda context: cls(context, nodes))
        )
