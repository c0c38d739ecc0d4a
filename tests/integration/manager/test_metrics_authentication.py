"""The real API server says whose a token is, and whether its bearer may read the metrics."""

from __future__ import annotations

from steersman.api.core_v1 import ServiceAccount
from steersman.client import Client, HttpRequest, connect
from steersman.manager.authentication import TokenAuthorizer
from steersman.meta import ObjectKey, ObjectMeta, encode
from steersman.observability.runtime import Runtime
from steersman.rbac import metrics_reader_role
from steersman.testing.envtest import Envtest

NAMESPACE = "scraping"


async def test_tokens_of_service_accounts(envtest: Envtest) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraping-reader"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "scraping-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}],
    }
    async with connect(envtest.config) as transport:
        for path, body in (
            ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            (f"/apis/{group}/v1/clusterroles", metrics_reader_role("scraping-reader")),
            (f"/apis/{group}/v1/clusterrolebindings", binding),
        ):
            response = await transport.request(HttpRequest(method="POST", path=path, body=encode(body)))
            assert response.status == 201, response.body
        client = Client(transport)
        tokens: dict[str, str] = {}
        for name in ("prometheus", "clerk"):
            await client.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=NAMESPACE)))
            tokens[name] = (await client.create_token(ObjectKey(NAMESPACE, name))).status.token
        authorizer = TokenAuthorizer(client, Runtime())
        assert (await authorizer.decide(f"Bearer {tokens['prometheus']}", "/metrics")).status == 200
        assert (await authorizer.decide(f"Bearer {tokens['prometheus']}", "/debug/triggers")).status == 403
        refused = await authorizer.decide(f"Bearer {tokens['clerk']}", "/metrics")
        assert refused.status == 403
        assert "system:serviceaccount:scraping:clerk may not get /metrics" in refused.reason
        assert (await authorizer.decide("Bearer nonsense", "/metrics")).status == 401
