"""Settings and responses of the sidecar."""

from __future__ import annotations

import json

import pytest
from steersman.errors import ConfigurationError
from steersman.manager.serving import ServerRequest

from leader_operator.sidecar.leader_server import leader_handler
from leader_operator.sidecar.settings import SidecarSettings, pod_of
from leader_operator.sidecar.sidecar import LeaderReport

ENVIRONMENT = {"POD_NAMESPACE": "shop", "LEADER_SERVICE": "orders", "POD_NAME": "orders-0", "POD_UID": "4f1a"}


def test_settings_have_defaults_for_optional_variables() -> None:
    settings = SidecarSettings.from_environment(ENVIRONMENT)
    assert (str(settings.service), settings.identity, settings.port) == ("shop/orders", "orders-0_4f1a", 4040)
    assert pod_of(settings.identity) == ("orders-0", "4f1a")
    assert pod_of("") == ("", "")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"POD_UID": ""}, "POD_UID is not set"),
        ({"LEADER_PORT": "http"}, "LEADER_PORT='http' is not a number above 0"),
        ({"LEADER_RETRY_PERIOD_SECONDS": "nan"}, "LEADER_RETRY_PERIOD_SECONDS='nan' is not a number"),
        ({"LEADER_RENEW_DEADLINE_SECONDS": "2"}, "too short for LEADER_RETRY_PERIOD_SECONDS=2"),
    ],
)
def test_malformed_settings_raise(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SidecarSettings.from_environment(ENVIRONMENT | variables)


async def test_handler_responds_with_leader_and_status() -> None:
    report = LeaderReport(leader="orders-0", leading=True, term=7, valid_seconds=8.79)
    handle = leader_handler(lambda: report)
    response = await handle(ServerRequest("/leader"))
    assert json.loads(response.body) == {"leader": "orders-0", "leading": True, "term": 7, "validSeconds": 8.7}
    assert (await handle(ServerRequest("/leading"))).status == 200
    report = LeaderReport()
    assert json.loads((await handle(ServerRequest("/leader"))).body)["leader"] is None
    assert (await handle(ServerRequest("/leading"))).status == 503
    assert (await handle(ServerRequest("/"))).status == 404
