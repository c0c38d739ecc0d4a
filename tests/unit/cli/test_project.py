"""``steersman init`` and ``create``: what they write, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from projects import CREATE, INIT, KIND, made, ours, steersman

WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
OTHER = ("--group", "g", "--version", "v1", "--kind", "Other")
LONG = ("--group", "mygroup", "--version", "v1", "--kind", "LongNamedKindOfRegionalPolicy")


def text(root: Path, name: str) -> str:
    return (root / name).read_text()


def test_the_workflow_of_the_articles(pristine: Path) -> None:
    noted = yaml.safe_load(text(pristine, "PROJECT"))
    assert (noted["domain"], noted["repo"]) == ("handsomeguy.cn", "handsomeguy.cn/databaseuser")
    (entry,) = noted["resources"]
    assert entry["api"] == {"crdVersion": "v1", "namespaced": True}
    crd = yaml.safe_load(text(pristine, "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"))
    assert crd["metadata"]["name"] == "databaseusers.mygroup.handsomeguy.cn"
    sample = yaml.safe_load(text(pristine, "config/samples/mygroup_v1alpha1_databaseuser.yaml"))
    assert sample["apiVersion"] == "mygroup.handsomeguy.cn/v1alpha1"


def test_a_project_of_every_feature_is_clean(tmp_path: Path) -> None:
    root = made(
        tmp_path / "shop-operator",
        ("init", "--domain", "example.com", "--owner", "Jane Doe"),
        CREATE,
        WEBHOOK,
        ("create", "api", *LONG, "--namespaced=false"),
        ("create", "api", "--group", "mygroup", "--version", "v1", "--kind", "Class", "--controller=false"),
        ("create", "api", "--group", "apps", "--version", "v1", "--kind", "Deployment", "--resource=false"),
        ("create", "webhook", "--group", "", "--version", "v1", "--kind", "Pod", "--programmatic-validation"),
        ("manifests", "--check"),
    )
    assert "# Copyright 20" in text(root, "src/shop_operator/main.py")
    for check in (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("pytest", "-q", "tests/unit")):
        ended = subprocess.run(
            [sys.executable, "-m", *check],
            cwd=root,
            env=ours(root / "src"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_its_types_are_strict(project: Path) -> None:
    made(project, WEBHOOK)
    ended = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
        cwd=project,
        env=ours(project / "src"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def test_nothing_is_written_over(project: Path) -> None:
    controller = project / "src/databaseuser/controllers/databaseuser.py"
    controller.write_text("mine = 1\n")
    ended = steersman(project, *CREATE)
    assert ended.returncode == 2
    assert "src/databaseuser/controllers/databaseuser.py" in ended.stderr
    assert controller.read_text() == "mine = 1\n"
    made(project, (*CREATE, "--force"))
    assert "DatabaseUserReconciler" in controller.read_text()
    # What is entered at the comments is entered once.
    assert text(project, "src/databaseuser/main.py").count("setup_with_manager") == 1


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    ended = steersman(tmp_path, *INIT, "--dry-run")
    assert ended.returncode == 0
    assert "would write src/databaseuser/main.py" in ended.stdout
    assert not list(tmp_path.iterdir())


def test_a_comment_that_is_gone_is_told(project: Path) -> None:
    main = project / "src/databaseuser/main.py"
    main.write_text(main.read_text().replace("    # +steersman:scaffold:setup\n", ""))
    ended = steersman(project, *WEBHOOK)
    assert ended.returncode == 0
    assert "has no comment `# +steersman:scaffold:setup`" in ended.stderr
    assert "setup_databaseuser_webhook_with_manager(manager)" in ended.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("create", "api", "--group", "g", "--version", "v1"), "--kind is missing"),
        (("create", "api", "--group", "g", "--version", "v1", "--kind", "small"), "--kind 'small'"),
        (("create", "api", "--group", "g", "--version", "1", "--kind", "Big"), "--version '1'"),
        (("create", "api", "--group", "G", "--version", "v1", "--kind", "Big"), "--group 'G'"),
        (("create", "api", *KIND, "--resource=false", "--controller=false"), "nothing to write"),
        (("create", "api", *KIND, "--crd-version", "v2"), "v2 is none of v1, v1beta1"),
        (
            ("create", "api", "--group", "g", "--version", "v1", "--kind", "No", "--resource=false"),
            "has no No of g/v1",
        ),
        (("create", "webhook", *KIND), "say what it does"),
        (INIT, "this is a project already"),
    ],
)
def test_what_is_refused(pristine: Path, command: tuple[str, ...], message: str) -> None:
    ended = steersman(pristine, *command)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_outside_of_a_project(tmp_path: Path) -> None:
    for command in (CREATE, ("manifests",), ("install",), ("run",)):
        ended = steersman(tmp_path, *command)
        assert ended.returncode == 2
        assert "no PROJECT file here or above" in ended.stderr


def test_a_second_version_is_not_stored(project: Path) -> None:
    second = (*CREATE, "--version", "v1beta1", "--controller=false")
    made(project, second, ("manifests", "--check"))
    crd = yaml.safe_load(text(project, "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"))
    assert {v["name"]: v["storage"] for v in crd["spec"]["versions"]} == {"v1alpha1": True, "v1beta1": False}
