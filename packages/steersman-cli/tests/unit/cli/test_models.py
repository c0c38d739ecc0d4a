"""Command line of ``steersman models``."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from framework_support.crd_twins import v1
from steersman_cli import app, models
from steersman_manifests.crd import definition

CRDS = yaml.safe_dump_all([definition(v1.Task), definition(v1.Fixed), {"kind": "Namespace", "apiVersion": "v1"}])


def run_models(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["models", *arguments], prog_name="steersman", input=stdin)


def written_files(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return Path(next(f for f in result.stdout.split() if f.endswith("v1.py") and "apply" not in f)).read_text()


def test_models_writes_package_from_file(tmp_path: Path) -> None:
    file, out = tmp_path / "crds.yaml", tmp_path / "shop" / "foreign"
    file.write_text(CRDS)
    result = run_models(str(file), "--output", str(out))
    names = ["__init__.py", "apply/__init__.py", "twins_example_com_v1.py", "apply/twins_example_com_v1.py"]
    assert result.stdout.split() == [str(out / name) for name in names]
    assert "class Task(Object):" in written_files(result)
    (out / "__init__.py").write_text('"""Ours."""\n')
    assert str(out / "__init__.py") not in run_models(str(file), "--output", str(out)).stdout.split()
    assert (out / "__init__.py").read_text() == '"""Ours."""\n'


def test_models_add_noqa_only_for_unbreakable_lines(tmp_path: Path) -> None:
    noqa_comment = "# ruff: noqa: E501, RUF100"
    assert noqa_comment not in written_files(
        run_models("-", "--kind", "Fixed", "-o", str(tmp_path), "--line-length", "300", stdin=CRDS)
    )
    assert noqa_comment in written_files(
        run_models("-", "--kind", "Task", "-o", str(tmp_path), "--line-length", "40", stdin=CRDS)
    )


def test_models_from_stdin_selects_kinds(tmp_path: Path) -> None:
    text = written_files(run_models("-", "--kind", "Fixed", "-o", str(tmp_path), stdin=CRDS))
    assert "class Fixed(Object):" in text and "class Task(Object):" not in text
    nothing = run_models("-", "--group", "other.example.com", "-o", str(tmp_path), stdin=CRDS)
    assert (nothing.exit_code, "no CustomResourceDefinition matches" in nothing.stderr) == (1, True)


def test_models_downloads_from_https_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def fake_urlopen(url: str, timeout: float) -> io.BytesIO:
        requested.append(url)
        return io.BytesIO(CRDS.encode())

    monkeypatch.setattr(models, "urlopen", fake_urlopen)
    assert "class Task" in written_files(run_models("https://example.com/crds.yaml", "-o", str(tmp_path)))
    assert requested == ["https://example.com/crds.yaml"]
    refused = run_models("http://example.com/crds.yaml", "-o", str(tmp_path))
    assert refused.exit_code == 1 and "give an https URL" in refused.stderr


def test_models_read_yaml_with_go_semantics(tmp_path: Path) -> None:
    manifest = definition(v1.Task)
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["op"] = {"type": "string", "enum": ["MARK"]}
    text = yaml.safe_dump(manifest).replace("MARK", "=")
    assert 'Literal["="]' in written_files(run_models("-", "-o", str(tmp_path), stdin=text))
