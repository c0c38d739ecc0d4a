"""Authentication methods and server addresses on the real API server."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from framework_support.certificates import CertificateAuthority
from framework_support.loopback_server import connect_proxy, get, open_transport
from steersman.client import ClusterConfig, HttpRequest, HttpTransport, load_config
from steersman.client.config import Impersonation
from steersman.client.transport.http import error_from_body
from steersman.errors import ConnectionFailed, CredentialsFailed
from steersman_testing.envtest import Envtest

SELF_SUBJECT_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def post(transport: HttpTransport, path: str, document: Mapping[str, Any]) -> Any:
    body = json.dumps(document).encode()
    response = await transport.request(HttpRequest(method="POST", path=path, body=body))
    if response.status >= 400:
        raise error_from_body(response.status, response.body, response.retry_after)
    return json.loads(response.body)


async def who_am_i(transport: HttpTransport) -> dict[str, Any]:
    """Return the authenticated user: username, groups, uid, extra."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return (await post(transport, SELF_SUBJECT_REVIEWS, review))["status"]["userInfo"]


async def authenticated_user(transport: HttpTransport) -> str:
    return (await who_am_i(transport))["username"]


async def service_account(envtest: Envtest, account: str) -> str:
    """Create the ServiceAccount if it is missing, and return a token."""
    async with open_transport(envtest.config) as administrator:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        body = json.dumps({"metadata": {"name": account}}).encode()
        await administrator.request(HttpRequest(method="POST", path=accounts, body=body))
        return (await post(administrator, f"{accounts}/{account}/token", {"spec": {}}))["status"]["token"]


@asynccontextmanager
async def as_user(
    envtest: Envtest, directory: Path, user: Mapping[str, Any], **cluster: Any
) -> AsyncGenerator[HttpTransport, None]:
    """Yield a transport for a kubeconfig with ``user``. ``cluster`` adds fields to its cluster."""
    document = envtest.kubeconfig_dict
    document["users"][0]["user"] = dict(user)
    fields = document["clusters"][0]["cluster"]
    for field, value in cluster.items():
        fields[field.replace("_", "-")] = value
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    async with open_transport(load_config(path)) as transport:
        yield transport


def certificate_data(envtest: Envtest, user: str) -> dict[str, str]:
    """Return ``client-certificate-data`` and ``client-key-data`` of ``user``."""
    return yaml.safe_load(envtest.user(user).kubeconfig.read_text())["users"][0]["user"]


def exec_entry(directory: Path, code: str) -> dict[str, Any]:
    """Return the field ``exec`` for a script that runs ``code``.

    The code can use its directory ``here`` and the function ``answer(**status)``.
    """
    script = directory / "login"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "def answer(**status):\n"
        "    kind = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "    print(json.dumps({**kind, 'status': status}))\n"
        f"{code}\n"
    )
    script.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./login", "interactiveMode": "Never"}}


async def test_exec_plugin_token_authenticates(envtest: Envtest, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(await service_account(envtest, "till"))
    user = exec_entry(tmp_path, "answer(token=(here / 'token').read_text())")
    async with as_user(envtest, tmp_path, user) as transport:
        assert await authenticated_user(transport) == "system:serviceaccount:default:till"


async def test_exec_plugin_certificate_authenticates(envtest: Envtest, tmp_path: Path) -> None:
    pair = certificate_data(envtest, "jane")
    for file, field in (("crt", "client-certificate-data"), ("key", "client-key-data")):
        (tmp_path / file).write_bytes(base64.b64decode(pair[field]))
    read = "clientCertificateData=(here / 'crt').read_text(), clientKeyData=(here / 'key').read_text()"
    async with as_user(envtest, tmp_path, exec_entry(tmp_path, f"answer({read})")) as transport:
        assert await authenticated_user(transport) == "jane"


async def test_exec_plugin_is_rerun_after_401(
    envtest: Envtest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steersman.client.exec_plugin._MIN_REFRESH_INTERVAL_SECONDS", 0.0)
    (tmp_path / "token").write_text(await service_account(envtest, "till"))
    user = exec_entry(
        tmp_path,
        "first = not (here / 'ran').exists()\n"
        "(here / 'ran').touch()\n"
        "answer(token='expired' if first else (here / 'token').read_text())",
    )
    async with as_user(envtest, tmp_path, user) as transport:
        assert await authenticated_user(transport) == "system:serviceaccount:default:till"


async def test_exec_plugin_failure_is_reported(envtest: Envtest, tmp_path: Path) -> None:
    user = exec_entry(tmp_path, "sys.exit('run `login --renew` first')")
    async with as_user(envtest, tmp_path, user) as transport:
        with pytest.raises(
            CredentialsFailed, match=r"user 'admin': exec: .*login exited with code 1: run `login --renew`"
        ):
            await authenticated_user(transport)


async def test_rotated_certificate_files(envtest: Envtest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.credentials.FILE_RELOAD_INTERVAL_SECONDS", 0.0)

    def rotate(user: str) -> None:
        pair = certificate_data(envtest, user)
        (tmp_path / "tls.crt").write_bytes(base64.b64decode(pair["client-certificate-data"]))
        (tmp_path / "tls.key").write_bytes(base64.b64decode(pair["client-key-data"]))

    rotate("jane")
    async with as_user(envtest, tmp_path, {"client-certificate": "tls.crt", "client-key": "tls.key"}) as transport:
        assert await authenticated_user(transport) == "jane"
        rotate("joe")
        assert await authenticated_user(transport) == "joe"


async def test_watch_survives_certificate_rotation(
    envtest: Envtest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steersman.client.credentials.FILE_RELOAD_INTERVAL_SECONDS", 0.0)
    administrator = envtest.kubeconfig_dict["users"][0]["user"]
    (tmp_path / "tls.crt").write_bytes(base64.b64decode(administrator["client-certificate-data"]))
    (tmp_path / "tls.key").write_bytes(base64.b64decode(administrator["client-key-data"]))
    path = "/api/v1/namespaces/default/configmaps"
    watch = get(path, query={"watch": "1", "fieldSelector": "metadata.name=rotation"})
    async with (
        as_user(envtest, tmp_path, {"client-certificate": "tls.crt", "client-key": "tls.key"}) as transport,
        transport.stream(watch) as lines,
    ):
        pair = certificate_data(envtest, "jane")
        (tmp_path / "tls.crt").write_bytes(base64.b64decode(pair["client-certificate-data"]))
        (tmp_path / "tls.key").write_bytes(base64.b64decode(pair["client-key-data"]))
        assert await authenticated_user(transport) == "jane"
        async with open_transport(envtest.config) as other:
            await post(other, path, {"metadata": {"name": "rotation"}})
            async with asyncio.timeout(30):
                assert json.loads(await anext(lines))["object"]["metadata"]["name"] == "rotation"
            await other.request(HttpRequest(method="DELETE", path=f"{path}/rotation"))


async def test_rotated_token_files(envtest: Envtest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("withdrawn")
    async with as_user(envtest, tmp_path, {"tokenFile": "token"}) as transport:
        await transport.request(get("/version"))
        # The next reload is due in a minute. The 401 response triggers an earlier one.
        file.write_text(await service_account(envtest, "till"))
        assert await authenticated_user(transport) == "system:serviceaccount:default:till"
    monkeypatch.setattr("steersman.client.credentials.FILE_RELOAD_INTERVAL_SECONDS", 0.0)
    async with as_user(envtest, tmp_path, {"tokenFile": "token"}) as transport:
        assert await authenticated_user(transport) == "system:serviceaccount:default:till"
        file.write_text(await service_account(envtest, "store"))
        assert await authenticated_user(transport) == "system:serviceaccount:default:store"


async def test_impersonation_restricts_permissions(envtest: Envtest, tmp_path: Path) -> None:
    administrator = envtest.kubeconfig_dict["users"][0]["user"]
    fields = {
        "as": "jané",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/scopes": ["x", "y"]},
    }
    async with as_user(envtest, tmp_path, {**administrator, **fields}) as transport:
        me = await who_am_i(transport)
        assert (me["username"], me["uid"]) == ("jané", "7")
        assert set(me["groups"]) == {"a", "b", "system:authenticated"}
        assert me["extra"] == {"example.com/scopes": ["x", "y"]}
        refused = await transport.request(get("/api/v1/namespaces/default/secrets"))
    assert refused.status == 403
    assert 'User "jané" cannot list resource "secrets"' in json.loads(refused.body)["message"]


async def test_impersonation_requires_permission(envtest: Envtest) -> None:
    somebody = envtest.user("jane").config
    pretender = dataclasses.replace(somebody, impersonate=Impersonation(user="root", groups=("system:masters",)))
    async with open_transport(pretender) as transport:
        refused = await transport.request(get("/api/v1/namespaces/default/secrets"))
    assert refused.status == 403
    assert "cannot impersonate" in json.loads(refused.body)["message"]


async def test_requests_through_proxy_succeed(envtest: Envtest, tmp_path: Path) -> None:
    administrator = envtest.kubeconfig_dict["users"][0]["user"]
    watch = get("/api/v1/namespaces", query={"watch": "1", "resourceVersion": "0"})
    async with (
        connect_proxy() as (port, targets),
        as_user(envtest, tmp_path, administrator, proxy_url=f"http://127.0.0.1:{port}") as transport,
    ):
        assert await authenticated_user(transport) == "envtest"
        async with transport.stream(watch) as lines:
            assert json.loads(await anext(lines))["type"] == "ADDED"
    assert targets == [envtest.server.removeprefix("https://")] * 2


async def test_tls_server_name_is_verified(envtest: Envtest, tmp_path: Path) -> None:
    administrator = envtest.kubeconfig_dict["users"][0]["user"]
    async with as_user(envtest, tmp_path, administrator, tls_server_name="kubernetes.default") as transport:
        assert await authenticated_user(transport) == "envtest"
    async with as_user(envtest, tmp_path, administrator, tls_server_name="elsewhere.example.com") as transport:
        with pytest.raises(ConnectionFailed, match=r"elsewhere\.example\.com"):
            await authenticated_user(transport)


async def test_wrong_ca_error_names_the_server(envtest: Envtest) -> None:
    config: ClusterConfig = dataclasses.replace(envtest.config, ca=CertificateAuthority().certificate)
    async with open_transport(config) as transport:
        with pytest.raises(ConnectionFailed, match="certificate verify failed") as caught:
            await authenticated_user(transport)
    assert envtest.server in str(caught.value)
    assert not caught.value.sent
