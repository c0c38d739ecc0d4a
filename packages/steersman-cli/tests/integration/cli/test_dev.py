"""``steersman dev`` with a scaffolded project: one command for the whole development loop."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import URLError

import pytest

from framework_support.projects import CREATE, INIT, KIND, create_project, ours, steersman
from framework_support.pty_terminal import CTRL_C, Terminal, run_in_terminal
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import Deployment
from steersman.client import Client, connect, load_config
from steersman.errors import ApiError, ConfigurationError, Invalid
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman_testing.envtest import find_binaries

DATABASE_USER = unstructured(ApiResource("mygroup.handsomeguy.cn", "v1alpha1", "DatabaseUser", "databaseusers"))
CRD = ObjectKey("", "databaseusers.mygroup.handsomeguy.cn")
TYPES = "src/databaseuser/api/v1alpha1/databaseuser.py"
WEBHOOK = "src/databaseuser/webhooks/databaseuser.py"
DEPLOYMENT = apps.Deployment(
    metadata=meta.ObjectMeta(name="web", namespace="default"),
    spec=apps.DeploymentSpec(
        selector=meta.LabelSelector(match_labels={"app": "web"}),
        template=core.PodTemplateSpec(
            metadata=meta.TemplateMeta(labels={"app": "web"}),
            spec=core.PodSpec(containers=[core.Container(name="web", image="web:1")]),
        ),
    ),
)
TIMEOUT_SECONDS = 60

pytestmark = pytest.mark.xdist_group("project")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a webhook that rejects ``foo: bad``."""
    root = create_project(
        tmp_path / "databaseuser", INIT, CREATE, ("create", "webhook", *KIND, "--programmatic-validation")
    )
    replace_in_file(
        root / WEBHOOK,
        "    yield from ()",
        '    if obj.spec.foo == "bad":\n        yield FieldError("spec.foo", "is bad")',
    )
    return root


@pytest.mark.timeout(300)
@pytest.mark.parametrize("api_server", [(), ("--envtest",)], ids=["memory", "envtest"])
async def test_dev_runs_reloads_and_stops(project: Path, api_server: tuple[str, ...]) -> None:
    if api_server:
        skip_without_binaries()
    command = [sys.executable, "-m", "steersman_cli", "dev", *api_server]
    with run_in_terminal(command, directory=project, environment=ours()) as terminal:
        await wait_for_text(terminal, f"export KUBECONFIG={project / 'kubeconfig'}")
        await wait_for_text(terminal, "cache synced")
        async with dev_client(project) as client:
            with pytest.raises(Invalid, match=r"spec\.foo: .*is bad"):
                await client.create(database_user("rejected", foo="bad"))
            await client.create(database_user("one", foo="good"))
            await wait_until(lambda: is_reconciled(client, "one"))
            await client.apply(DEPLOYMENT)
            await wait_until(lambda: is_available(client))

            replace_in_file(
                project / TYPES, "    foo: str | None = None", "    color: str = 'red'\n    foo: str = ''"
            )
            await wait_for_text(terminal, "restarting")
            await wait_for_text(terminal, "cache synced")
            assert "color" in await spec_fields(client)
            await client.create(database_user("two", color="green"))
            await wait_until(lambda: is_reconciled(client, "two"))
            assert "two" in await asyncio.to_thread(slow_objects, project, terminal)

            replace_in_file(project / TYPES, "from steersman import", "from nowhere import")
            await wait_for_text(terminal, "waiting for a change")
            replace_in_file(project / TYPES, "from nowhere import", "from steersman import")
            await wait_for_text(terminal, "cache synced")
        terminal.send_keys(CTRL_C)
        assert await asyncio.to_thread(terminal.wait) == 0
    assert "Stopped." in terminal.output
    with pytest.raises(URLError):
        await asyncio.to_thread(urllib.request.urlopen, load_config(project / "kubeconfig").server)


def skip_without_binaries() -> None:
    try:
        find_binaries()
    except ConfigurationError as error:
        pytest.skip(str(error))


def slow_objects(project: Path, terminal: Terminal) -> set[str]:
    """Return the names that ``steersman top`` shows."""
    (url,) = re.findall(r"Debug endpoint  (http://\S+)/debug", terminal.output)
    completed = steersman(project, "top", "--interval", "0.1", "--url", url, "-o", "json")
    (load,) = json.loads(completed.stdout)
    return {each["name"] for each in load["slow"]}


def replace_in_file(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


async def wait_for_text(terminal: Terminal, text: str) -> None:
    await asyncio.to_thread(terminal.wait_for_text, text)


@asynccontextmanager
async def dev_client(project: Path) -> AsyncGenerator[Client]:
    async with connect(load_config(project / "kubeconfig")) as transport:
        yield Client(transport)


def database_user(name: str, **spec: str) -> Unstructured:
    return DATABASE_USER.of({"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def is_reconciled(client: Client, name: str) -> bool:
    found = await client.get(DATABASE_USER, ObjectKey("default", name))
    return bool(found.to_dict().get("status"))


async def is_available(client: Client) -> bool:
    return bool((await client.get(Deployment, ObjectKey("default", "web"))).status.available_replicas)


async def spec_fields(client: Client) -> set[str]:
    definition = (await client.get(unstructured(CustomResourceDefinition.api_resource), CRD)).to_dict()
    (version,) = definition["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                if await condition():
                    return
            except ApiError:
                pass
            await asyncio.sleep(0.05)
