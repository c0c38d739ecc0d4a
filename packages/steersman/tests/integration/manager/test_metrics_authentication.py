"""Authentication and authorization of metrics clients by the real API server."""

from __future__ import annotations

from steersman.api.core_v1 import ServiceAccount
from steersman.manager.serving.token_authorizer import TokenAuthorizer
from steersman.meta import ObjectKey, ObjectMeta
from steersman.observability.runtime import Runtime
from steersman_manifests.rbac import metrics_reader_role
from steersman_testing.envtest import Envtest


async def test_authorizer_accepts_service_account_tokens(envtest: Envtest, envtest_namespace: str) -> None:
    # Returns when the role is effective: the API server observes roles some time after they are written.
    envtest.user(f"system:serviceaccount:{envtest_namespace}:prometheus", roles=[metrics_reader_role("scraping")])
    async with envtest.client() as client:
        tokens: dict[str, str] = {}
        for name in ("prometheus", "unprivileged"):
            await client.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=envtest_namespace)))
            tokens[name] = (await client.create_token(ObjectKey(envtest_namespace, name))).status.token
        authorizer = TokenAuthorizer(client, Runtime())
        assert (await authorizer.authorize(f"Bearer {tokens['prometheus']}", "/metrics")).status == 200
        assert (await authorizer.authorize(f"Bearer {tokens['prometheus']}", "/debug/triggers")).status == 403
        refused = await authorizer.authorize(f"Bearer {tokens['unprivileged']}", "/metrics")
        assert refused.status == 403
        assert (
            f"'system:serviceaccount:{envtest_namespace}:unprivileged' is not allowed to get /metrics"
            in refused.reason
        )
        assert (await authorizer.authorize("Bearer nonsense", "/metrics")).status == 401
