"""Upgrade of the operator by Helm, from the previous release and back, while clients write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient, WriteLog, writing
from database_support.e2e.engines import MYSQL, POSTGRESQL
from devcluster import images, previous_release, tools
from devcluster.errors import Unsupported
from devcluster.operator import DEPLOYMENT, NAMESPACE, install, remove
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from framework_support.helm_runner import Helm

pytestmark = [pytest.mark.xdist_group("operator-upgrade"), pytest.mark.disruptive, pytest.mark.timeout(2700)]

IN_NAMESPACE = ("--namespace", NAMESPACE)
WAIT = ("--wait", "--timeout=180s")
KINDS = "postgresqlclusters,mysqlclusters,databases.databases.steersman.dev,databaseusers"
VARIABLES = ("STEERSMAN_IMAGE_POSTGRESQL_17", "STEERSMAN_IMAGE_MYSQL_9_7")
IN_NODES = {"StorageSufficient"}
"""Conditions of the nodes' disks, which other programs fill, too."""
ABSENT_WHEN_READY = {"Reconciling", "Stalled", "Paused"}
PARAMETERS = {"postgresql": "work_mem", "mysql": "sort_buffer_size"}
GRANTS = {"postgresql": "CONNECT", "mysql": "ALL"}
SUM = "SELECT COUNT(*), SUM(n) FROM kept"


@dataclass(frozen=True)
class Release:
    """A release of the operator on the nodes.

    Attributes:
        chart: directory of the Helm chart.
        image: image of the operator.
        servers: images of PostgreSQL and MySQL.
    """

    chart: Path
    image: str
    servers: tuple[str, str]

    @property
    def server_values(self) -> tuple[str, ...]:
        """Return the arguments of helm that select the images of the servers."""
        entries = (
            f"extraEnv[{number}].name={name},extraEnv[{number}].value={image}"
            for number, (name, image) in enumerate(zip(VARIABLES, self.servers, strict=True))
        )
        return ("--set", ",".join(entries))


@dataclass
class Workload:
    """Two clusters, each with a database and a user.

    Attributes:
        changes: number of changes of all specs.
    """

    place: NamespaceClient
    clusters: Mapping[str, ClusterUnderTest]
    changes: int = field(default=0)

    def apply(self) -> None:
        """Apply all objects, each with another spec than before. No change needs a restart."""
        self.changes += 1
        for name, cluster in self.clusters.items():
            settings, parameter = cluster.engine.settings, PARAMETERS[cluster.engine.settings]
            parameters = {**cluster.engine.small[settings]["parameters"], parameter: self.parameter(settings)}
            cluster.apply(**{settings: {"parameters": parameters}})
            # The rollback needs it: the previous operator does not recognize marks with the UID of a namespace.
            adopts = self.changes % 2 == 0
            self.place.apply("Database", name, cluster.reference(deletionPolicy="Delete", adopt=adopts))
            grants = [{"database": name, "privileges": [GRANTS[settings]]}]
            limit = 10 + self.changes
            user = cluster.reference(user=f"{name}_clerk", grants=grants, connectionLimit=limit, adopt=adopts)
            self.place.apply("DatabaseUser", f"{name}-clerk", user)

    def parameter(self, settings: str) -> str:
        """Return the declared value, as the server shows it."""
        return f"{4 + self.changes}MB" if settings == "postgresql" else str((4 + self.changes) * 65536)

    def wait_ready(self) -> None:
        """Wait until all objects are reconciled, and the servers use the parameters."""
        for name, cluster in self.clusters.items():
            cluster.wait_ready(seconds=400)
            self.place.wait_current("database", name, "DatabaseReady", seconds=120)
            self.place.wait_current("databaseuser", f"{name}-clerk", "ProvisionSucceeded", seconds=120)
            settings = cluster.engine.settings
            expected = {self.parameter(settings)}
            found = lambda: cluster.server_values(PARAMETERS[settings]) == expected  # noqa: B023, E731
            cluster.until("all servers use the parameter", found, 120)

    def running(self) -> dict[str, Any]:
        """Return what must not change: all pods with their restarts, the processes, the primaries."""
        pods = {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                [status["restartCount"] for status in pod["status"].get("containerStatuses", ())],
            )
            for pod in self.place.all("pods")
        }
        servers = {name: (cluster.leader, cluster.processes()) for name, cluster in self.clusters.items()}
        return {"pods": pods, "servers": servers}

    def conditions(self) -> dict[str, dict[str, str]]:
        """Return the status of each condition, by object."""

        def status(found: dict[str, Any]) -> dict[str, str]:
            return {c["type"]: c["status"] for c in found["status"]["conditions"] if c["type"] not in IN_NODES}

        objects = self.place.all(KINDS)
        return {f"{found['kind']}/{found['metadata']['name']}": status(found) for found in objects}

    def warnings(self) -> set[tuple[str, str]]:
        """Return object and reason of each Warning of the operator."""
        return {
            (event["involvedObject"]["name"], event["reason"])
            for event in self.place.all("events", "--field-selector=type=Warning")
            if event["involvedObject"]["apiVersion"].startswith("databases.steersman.dev/")
        }


@pytest.fixture(scope="module")
def releases(cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    """The previous release and that of this checkout, on the nodes."""
    if not cluster.is_devcluster:
        pytest.skip("loads images into the devcluster")
    try:
        previous = previous_release.checkout()
    except Unsupported as reason:
        pytest.skip(str(reason))
    directory = tmp_path_factory.mktemp("charts")
    return (
        _load(previous, directory / "previous", "-previous"),
        _load(images.CHECKOUT, directory / "present"),
    )


def _load(checkout: Path, chart: Path, suffix: str = "") -> Release:
    progress = Progress()
    recipes = images.recipes_of(checkout, suffix)
    for recipe in recipes:
        images.load(images.ensure(recipe, progress))
    postgresql, mysql, operator = (recipe.reference for recipe in recipes)
    previous_release.write_chart(checkout, operator, chart, progress)
    return Release(chart, operator, (postgresql, mysql))


@pytest.fixture
def helm(cluster: Target, tmp_path: Path) -> Iterator[Helm]:
    """helm for a cluster without the operator and its CRDs. Afterwards the operator is installed as before."""
    found = Helm(tools.helm(), tmp_path / "helm", cluster.kubeconfig)

    def clean() -> None:
        # Helm keeps the CRDs, so its operator cannot delete their objects.
        found.run("uninstall", DEPLOYMENT, *IN_NAMESPACE, "--ignore-not-found", *WAIT)
        remove(cluster, Progress())

    clean()
    try:
        yield found
    finally:
        clean()
        install(cluster, Progress())


@pytest.fixture
def workload(helm: Helm, place: NamespaceClient) -> Workload:
    """Two clusters that are not applied yet. Their namespace is deleted before the operator is."""
    postgresql = {**POSTGRESQL.small, "pooler": {"replicas": 1, "readOnly": False}}
    return Workload(
        place,
        {
            "shop": ClusterUnderTest(place, "orders", postgresql),
            "goods": ClusterUnderTest(place, "stock", dict(MYSQL.small), MYSQL),
        },
    )


def wait_until_alone(cluster: Target, image: str) -> None:
    """Wait until the only pods of the operator have this image."""

    def alone() -> bool:
        scope = (f"--selector=app.kubernetes.io/name={DEPLOYMENT}", f"--namespace={NAMESPACE}")
        pods = (cluster.get("pods", *scope) or {"items": []})["items"]
        return {pod["spec"]["containers"][0]["image"] for pod in pods} == {image}

    wait_until(f"only {image} runs", alone, seconds=120)


def test_upgrade_and_rollback_restart_no_database(
    cluster: Target,
    releases: tuple[Release, Release],
    helm: Helm,
    workload: Workload,
    record_property: Callable[[str, object], None],
) -> None:
    previous, present = releases
    upgrade = ("upgrade", DEPLOYMENT, str(present.chart), *IN_NAMESPACE, "--reset-then-reuse-values", *WAIT)
    helm(
        "install",
        DEPLOYMENT,
        str(previous.chart),
        *IN_NAMESPACE,
        "--create-namespace",
        *WAIT,
        *previous.server_values,
    )
    workload.apply()
    workload.wait_ready()
    for name, each in workload.clusters.items():
        each.sql("CREATE TABLE kept (n int PRIMARY KEY); INSERT INTO kept VALUES (7), (8)", name)
    with ExitStack() as stack:
        logs = {
            # A busy machine delays writes by more than the default timeouts, and causes no error so.
            name: stack.enter_context(writing(each, f"{name}-app", settings=each.engine.lock_wait))
            for name, each in workload.clusters.items()
        }
        before, conditions, warnings = workload.running(), workload.conditions(), workload.warnings()

        def verify(step: str, image: str) -> None:
            """Assert that the operator reconciles all objects and disturbed no server."""
            wait_until_alone(cluster, image)
            workload.wait_ready()
            workload.apply()
            workload.wait_ready()
            for name, log in logs.items():
                log.wait_for_writes(time.time())
                record_property(
                    f"longest gap in writes of {name} until {step}, in seconds", round(log.longest_gap, 2)
                )
                assert (step, log.errors, log.lost_rows()) == (step, [], 0)
            assert (step, workload.running()) == (step, before)
            found_warnings = workload.warnings()
            if image == present.image:
                assert (step, found_warnings - warnings) == (step, set())
            warnings.update(found_warnings)
            for found, holds in workload.conditions().items():
                assert (step, found, holds) == (step, found, {**holds, **conditions[found]})
                assert not holds.keys() & ABSENT_WHEN_READY, (step, found, holds)

        helm(*upgrade)
        verify("upgrade", present.image)
        if previous_release.is_tagged():
            # The pinned state recognizes its Secrets by labels that were removed before the first release.
            helm("rollback", DEPLOYMENT, *IN_NAMESPACE, *WAIT)
            verify("rollback", previous.image)
            helm(*upgrade)
            verify("second upgrade", present.image)

        helm(*upgrade, *present.server_values)
        wait_until_alone(cluster, present.image)
        for each in workload.clusters.values():
            each.wait_reason("MinorUpgradeAvailable", "UpToDate")
            each.wait_ready()
        assert workload.running() == before, "newer images are only reported"
        assert all(log.errors == [] for log in _read(logs))
        for each, image in zip(workload.clusters.values(), present.servers, strict=True):
            # As the documentation of the upgrade has it.
            each.namespace_client.patch(
                each.kind, each.name, {"spec": {"image": None, "maintenance": {"minorUpgrades": "Automatic"}}}
            )
            each.wait_reason("Current", "UpToDate", seconds=600)
            each.wait_ready(seconds=400)
            assert {m["spec"]["containers"][0]["image"] for m in map(each.pod, each.nodes())} == {image}
        for name, log in logs.items():
            log.wait_for_writes(time.time())
            record_property(f"longest gap in writes of {name}, in seconds", round(log.longest_gap, 2))
            assert log.lost_rows() == 0
    for name, each in workload.clusters.items():
        assert each.sql(SUM, name).replace("|", "\t") == "2\t15"
        login = each.namespace_client.secret(f"{name}-clerk-user")
        assert each.namespace_client.log_in(f"{each.primary}-0", login, "SELECT 1", each.engine.settings) == "1"


def _read(logs: Mapping[str, WriteLog]) -> Iterator[WriteLog]:
    for log in logs.values():
        log.read_log()
        yield log
