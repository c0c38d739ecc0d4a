"""Controller of Prometheus."""

from __future__ import annotations

from steersman import Condition, Manager, Reconciler, Request, Result, set_condition

from monitoring_operator.api.v1.prometheus import Prometheus, PrometheusStatus


class PrometheusReconciler(Reconciler[Prometheus]):
    """Makes the cluster match the spec of each Prometheus."""

    async def reconcile(self, request: Request) -> Result:
        """Compare the actual state with the spec, and change what differs.

        The controller calls it after each change, and retries it with back-off after an error.
        """
        obj = await self.client.get(Prometheus, request)
        # Add your logic here: apply the objects that the spec declares, such as
        # `await self.client.apply(config_map_for(obj), owner=obj)`.
        previous = obj.status or PrometheusStatus()
        ready = Condition(type="Ready", status="True", reason="Reconciled", message="The cluster matches the spec.")
        status = PrometheusStatus(
            observed_generation=obj.metadata.generation,
            conditions=set_condition(previous.conditions, ready, self.runtime.clock.now()),
        )
        if status != obj.status:
            await self.client.apply_status(obj, status)
            self.events.normal(obj, "Reconciled", "The cluster matches the spec.")
        return Result()

    @classmethod
    def setup_with_manager(cls, manager: Manager) -> None:
        """Declare the watched kinds and the permissions of the controller.

        Example: ``.owns(ConfigMap).rbac(ConfigMap, "create", "patch")`` before ``complete``.
        """
        manager.controller(Prometheus).complete(cls)
