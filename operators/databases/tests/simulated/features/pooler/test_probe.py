"""The script by which a kubelet asks whether a pooler lives, run by a shell beside a PgBouncer that is none."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from database_support.unit.cluster_harness import KEY
from steersman.meta import ObjectMeta
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterSpec
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.cluster.declared import declare
from steersman_databases.features.pooler.specs import pooler_deployment

_PSQL = """#!/bin/sh
case $* in
*"SHOW STATE"*) cat {state} ;;
*RESUME*) echo resumed >> {told} ;;
esac
"""


class Probed:
    """A pod's volume and a console that answers what is in a file; none where there is none."""

    def __init__(self, where: Path) -> None:
        self.state, self.told, self.mark = where / "state", where / "told", where / "paused"
        psql = where / "psql"
        psql.write_text(_PSQL.format(state=self.state, told=self.told))
        psql.chmod(0o755)
        self._where = where

    def says(self, paused: str) -> None:
        self.state.write_text(f"active|no\npaused|{paused}\nsuspended|no\n")

    def lives(self, **parameters: str) -> bool:
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        cluster = PostgreSQLCluster(metadata=metadata, spec=PostgreSQLClusterSpec())
        pooler = PoolerSettings(parameters=parameters)  # type: ignore[arg-type]
        applied = pooler_deployment(declare(cluster, "image"), pooler, "rw", image="image")
        (container,) = applied.spec.template.spec.containers  # type: ignore[union-attr]
        command: list[str] = list(container.liveness_probe.exec.command)  # type: ignore[union-attr,arg-type]
        shell, flag, script = command
        script = script.replace("/run/steersman/paused", str(self.mark))
        environment = {**os.environ, "PATH": f"{self._where}:{os.environ['PATH']}"}
        return (
            subprocess.run([shell, flag, script], env=environment, check=False, capture_output=True).returncode == 0
        )

    def age(self, seconds: float) -> None:
        then = time.time() - seconds
        os.utime(self.mark, (then, then))


@pytest.fixture
def pooler(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


def test_paused_pooler_is_alive_silent_one_is_not(pooler: Probed) -> None:
    assert not pooler.lives()
    for paused in ("no", "yes", "yes"):
        pooler.says(paused)
        assert pooler.lives()
    assert not pooler.told.exists()


def test_pooler_paused_too_long_is_resumed(pooler: Probed) -> None:
    pooler.says("yes")
    assert pooler.lives()
    pooler.age(110)
    assert pooler.lives() and not pooler.told.exists()
    pooler.age(125)
    assert pooler.lives() and pooler.told.read_text() == "resumed\n"
    # The next time counts from its own beginning.
    assert pooler.lives() and pooler.told.read_text() == "resumed\n"


def test_stale_pause_marker_is_ignored(pooler: Probed) -> None:
    pooler.says("yes")
    assert pooler.lives()
    pooler.says("no")
    assert pooler.lives() and not pooler.mark.exists()


@pytest.mark.parametrize("wait", ["600", "0"])
def test_user_wait_timeout_extends_the_pause(pooler: Probed, wait: str) -> None:
    pooler.says("yes")
    assert pooler.lives(query_wait_timeout=wait)
    pooler.age(300)
    assert pooler.lives(query_wait_timeout=wait) and not pooler.told.exists()
