"""Requests are keys with a cluster."""

from __future__ import annotations

import copy
import pickle

import pytest

from framework_support.controller_env import ControllerEnv, key
from framework_support.widget import Widget
from steersman.controller import Request
from steersman.meta import ObjectKey
from steersman_testing import virtual_time

KEY = ObjectKey("orders", "a")
PLAIN, EAST, WEST = (Request("orders", "a", cluster) for cluster in ("", "east", "west"))


def test_requests_of_different_clusters_differ() -> None:
    assert len({PLAIN, EAST, WEST}) == 3
    assert Request("orders", "a", "east") == EAST
    assert EAST != WEST
    assert PLAIN not in (EAST, WEST)
    assert Request("orders", "b", "east") != EAST


def test_request_equals_key_without_cluster() -> None:
    assert {KEY: 1}[PLAIN] == {KEY: 1}[EAST] == 1
    assert Request.of(KEY) == PLAIN
    assert Request.of(EAST) is EAST
    assert isinstance(Request.of(KEY), Request)


@pytest.mark.parametrize("request_", [PLAIN, EAST])
def test_request_survives_copy_and_pickle(request_: Request) -> None:
    for again in (copy.deepcopy(request_), pickle.loads(pickle.dumps(request_))):
        assert (again, again.cluster, type(again)) == (request_, request_.cluster, type(request_))


@pytest.mark.parametrize("request_", [PLAIN, EAST])
def test_replaced_request_keeps_its_cluster(request_: Request) -> None:
    replaced = request_._replace(name="b")
    assert (replaced, replaced.cluster) == (Request("orders", "b", request_.cluster), request_.cluster)


def test_request_text_names_the_cluster() -> None:
    assert (str(PLAIN), str(EAST)) == ("orders/a", "east:orders/a")
    assert repr(PLAIN) == "Request(namespace='orders', name='a')"
    assert repr(EAST) == "Request(namespace='orders', name='a', cluster='east')"


@virtual_time
async def test_client_accepts_request_of_a_cluster() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with world.running_cache(Widget):
        found = await world.cached.get(Widget, EAST)
    assert found.key == key("a")
