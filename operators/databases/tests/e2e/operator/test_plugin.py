"""``kubectl steersman``, as kubectl runs it, against clusters that are there."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL
from database_support.e2e.plugin import InstalledPlugin, install_plugin

pytestmark = [pytest.mark.xdist_group("plugin"), EACH_ENGINE]


@pytest.fixture(scope="module")
def plugin(three: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory) -> InstalledPlugin:
    return install_plugin(three, tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def blog(shared: NamespaceClient) -> DatabaseUnderTest:
    """A MySQL database with a cluster of its own beside it."""
    made = DatabaseUnderTest(shared.target, shared.namespace, "blog", "mysql")
    made.apply(deletionPolicy="Delete")
    made.wait_ready()
    return made


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    three.wait_ready()


def test_status_shows_replication_tree(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    shown = plugin("status", three.name)
    assert re.search(r"Instances: +3 of 3 ready", shown)
    primary, first, second = three.primary, *three.replicas
    nodes = {i: three.pod(i)["spec"]["nodeName"] for i in (primary, first, second)}
    timeline, lag, role = (r" +\d+", r"\d+ B", r"Replica \(sync\)")
    if three.engine is not POSTGRESQL:
        timeline, lag, role = "", r"\d+ queued", "Replica"
    assert re.search(rf"^{primary} +Primary +Running +yes{timeline} +{nodes[primary]}$", shown, re.MULTILINE), shown
    for branch, replica in (("├─", first), ("└─", second)):
        line = rf"^{branch} {replica} +{role} +Streaming +yes +{lag}{timeline} +{nodes[replica]}$"
        assert re.search(line, shown, re.MULTILINE), shown
    assert three.name in plugin("status", "--check")
    assert plugin.status()["primary"] == primary
    assert "not found" in plugin("status", "nobodys", code=1)


@pytest.mark.requirement("overview/repeatable-operations")
def test_switchover(
    plugin: InstalledPlugin, three: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    former, wanted = three.primary, three.replicas[-1]
    assert f"switched over from {former} to {wanted}" in plugin("switchover", three.name, wanted)
    assert three.endpoints() == [f"{wanted}-0"]
    three.wait_ready()
    assert f"{wanted} is already the primary" in plugin("switchover", three.name, wanted, code=1)
    assert "orders-9" in plugin("switchover", three.name, "orders-9", code=2)
    assert re.search(rf"Switchover: +from {former} to {wanted}", plugin("status", three.name))


def test_fence_and_unfence(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    fenced = three.replicas[0]
    assert f"fenced: {fenced}" in plugin("fence", three.name, fenced)

    def stands_still() -> bool:
        running = three.execute(fenced, "sh", "-c", "cat /proc/[0-9]*/comm")
        return three.engine.process not in running.split()

    three.until("no server runs in it, and its pod does", stands_still, 120)
    three.until("it is in no Service", lambda: f"{fenced}-0" not in three.endpoints("r"), 60)

    def has_its_data() -> bool:
        return three.engine.data in three.execute(fenced, "ls", "/var/lib/steersman/data").split()

    # Its pod is made anew: the former one may be the one that was looked into.
    three.until("its data is there", has_its_data, 60)
    three.until("it is said", lambda: re.search(rf"{fenced} .*fenced", plugin("status", three.name)))
    assert "unfenced" in plugin("unfence", three.name, fenced)
    three.wait_ready()


def test_fenced_primary_fails_over(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    former = three.primary
    plugin("fence", three.name, former)
    three.until("another leads", lambda: three.primary not in ("", former), 120)
    three.until("-rw leads to it", lambda: three.endpoints() == [f"{three.primary}-0"], 60)
    plugin("unfence", three.name, "--all")
    three.wait_ready()


def test_restart(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    instances = [three.primary, *three.replicas]

    def uids() -> set[str]:
        return {three.pod(i).get("metadata", {}).get("uid", "") for i in instances}

    before = uids()
    assert "restart requested" in plugin("restart", three.name)
    three.until("all pods are others", lambda: "" not in (now := uids()) and not now & before, 400)
    three.wait_ready()


@pytest.mark.usefixtures("blog")
def test_pause_and_resume(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    assert "paused" in plugin("pause", three.name)
    try:
        three.wait_reason("ByAnnotation", "Paused")
        assert re.search(r"Phase: +Ready \(paused\)", shown := plugin("status", three.name)), shown
        three.namespace_client.kubectl("delete", "service", f"{three.name}-ro")
        # Whoever is looked after gets its own back meanwhile.
        three.namespace_client.kubectl("delete", "service", "blog-primary")
        three.until("another one's is back", lambda: three.namespace_client.get("service", "blog-primary"), 60)
        assert not three.namespace_client.get("service", f"{three.name}-ro")
    finally:
        assert "resumed" in plugin("resume", three.name)
    three.until("it is back", lambda: three.namespace_client.get("service", f"{three.name}-ro"), 60)
    three.until("it says nothing of it", lambda: "(paused)" not in plugin("status", three.name), 60)


def test_mysql(plugin: InstalledPlugin, blog: DatabaseUnderTest) -> None:
    ask = ("--", "--skip-column-names", "--execute", "SELECT CONCAT(CURRENT_USER(), ' on ', @@port)")
    assert "root@localhost on 3306" in plugin("mysql", blog.name, *ask)
    assert "blog" in plugin("mysql", blog.name, "--", "--execute", "SHOW DATABASES")
    length = ("--skip-column-names", "--batch", "--execute", "SELECT CHAR_LENGTH('ö')")
    assert plugin("mysql", blog.name, "--", *length).strip() == "1"
    # The exit code is mysql's own.
    assert "syntax" in plugin("mysql", blog.name, "--", "--execute", "SELEC", code=1)
    assert "not found" in plugin("mysql", "nobodys", code=1)


def test_shell_opens_in_pod(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    if three.engine is POSTGRESQL:
        shell, wrong, options = "psql", "syntax error", ("--tuples-only", "--no-align", "--command")
        question, answers = "SELECT current_user, pg_is_in_recovery()", ("postgres|f", "postgres|t")
    else:
        shell, wrong, options = "mysql", "error in your SQL syntax", ("--skip-column-names", "--execute")
        question, answers = "SELECT current_user(), @@super_read_only", ("root@localhost\t0", "root@localhost\t1")
    ask = ("--", *options, question)
    assert answers[0] in plugin(shell, three.name, *ask)
    assert answers[1] in plugin(shell, three.name, "--replica", *ask)
    assert answers[1] in plugin(shell, three.name, "--instance", three.replicas[0], *ask)
    # The exit code is the shell's own.
    assert wrong in plugin(shell, three.name, "--", options[-1], "SELEC", code=1)


def test_logs(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    told = plugin("logs", three.name, "--tail", "5").splitlines()
    assert {line.split()[0] for line in told if line} == {three.primary, *three.replicas}
    assert 3 <= len(told) <= 15


def test_report_contains_no_secret(plugin: InstalledPlugin, three: ClusterUnderTest, tmp_path: Path) -> None:
    archive = tmp_path / "orders.tar.gz"
    assert str(archive) in plugin("report", three.name, "--file", str(archive))
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as opened:
        contents = {m.name.partition("/")[2]: opened.extractfile(m) for m in opened.getmembers()}
        texts = {name: file.read().decode() for name, file in contents.items() if file is not None}
    assert {"cluster.yaml", "pods.yaml", "statefulsets.yaml", "secrets.yaml", "events.yaml"} <= texts.keys()
    assert "missing.yaml" not in texts, texts["missing.yaml"]
    assert all(instance in texts["logs/instances.txt"] for instance in (three.primary, *three.replicas))
    everything = "\n".join(texts.values())
    for name in (f"{three.name}-admin", "shop-app"):
        assert three.namespace_client.secret(name)["password"] not in everything
    assert "PRIVATE KEY" not in everything


def test_hibernate_and_wake(plugin: InstalledPlugin, three: ClusterUnderTest) -> None:
    three.sql("CREATE TABLE kept (n int PRIMARY KEY); INSERT INTO kept VALUES (7)", "shop")
    assert "hibernated" in plugin("hibernate", three.name, "--wait", "--timeout", "200", seconds=220)
    assert not three.namespace_client.all("pods", f"--selector=databases.steersman.dev/cluster={three.name}")
    assert three.endpoints() == []
    assert "awake" in plugin("wake", three.name, "--wait", "--timeout", "200", seconds=220)
    three.wait_ready()
    assert three.sql("SELECT n FROM kept", "shop") == "7"
    # A hand-written spec goes on from what the plugin has left.
    three.apply()
    three.wait_ready()
