"""Digests of image inputs, and replacements for images that cannot be built."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from rich.console import Console

from devcluster import images, rootfs
from devcluster.errors import CommandFailed, Unsupported
from devcluster.images import Image, Recipe
from devcluster.progress import Progress
from devcluster.rootfs import Base

BASE = Base(images.TRIXIE, Path("base.tar"), "first")
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "steersman"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Containerfile").write_text("FROM debian:trixie-slim\n")
    (context / "entrypoint.sh").write_text("true\n")
    return Recipe("example.com/name:tag", images.TRIXIE, context / "Containerfile", context)


def _progress(output: io.StringIO | None = None) -> Progress:
    return Progress(Console(file=output or io.StringIO(), width=200))


def _base(cache: Path) -> None:
    directory = cache / "rootfs"
    directory.mkdir(parents=True)
    (directory / "archive.tar").write_bytes(b"")
    described = {"archive": "archive.tar", "identity": BASE.digest, "recipe": "1"}
    (directory / "debian-trixie-slim.json").write_text(json.dumps(described))


def _archive(path: Path) -> None:
    index = json.dumps({"manifests": [{"digest": DIGEST}]}).encode()
    entry = tarfile.TarInfo("index.json")
    entry.size = len(index)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        file.addfile(entry, io.BytesIO(index))


def test_recipe_key_changes_with_every_input(recipe: Recipe) -> None:
    keys = [recipe.key(BASE)]
    assert recipe.key(BASE) == keys[0]
    keys.append(recipe.key(Base(BASE.reference, BASE.archive, "second")))
    keys.append(Recipe("a/b:c", recipe.base, recipe.containerfile, recipe.context).key(BASE))
    keys.append(Recipe(recipe.reference, recipe.base, recipe.containerfile, recipe.context, {"A": "b"}).key(BASE))
    (recipe.context / "entrypoint.sh").chmod(0o755)
    keys.append(recipe.key(BASE))
    (recipe.context / "entrypoint.sh").write_text("false\n")
    keys.append(recipe.key(BASE))
    (recipe.context / "entrypoint.sh").rename(recipe.context / "other.sh")
    keys.append(recipe.key(BASE))
    assert len(set(keys)) == len(keys)


def test_an_image_in_the_cache_needs_no_tool(recipe: Recipe, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert images.cached(recipe) is None, "without its base"
    _base(cache)
    assert images.cached(recipe) is None
    archive = cache / "images" / f"name-tag-{recipe.key(BASE)}.oci.tar"
    _archive(archive)
    assert images.ensure(recipe, _progress()) == Image(recipe.reference, archive, DIGEST)
    (recipe.context / "entrypoint.sh").write_text("changed\n")
    assert images.cached(recipe) is None


def test_a_damaged_archive_is_named(recipe: Recipe, cache: Path) -> None:
    _base(cache)
    archive = cache / "images" / f"name-tag-{recipe.key(BASE)}.oci.tar"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"not an archive")
    with pytest.raises(CommandFailed, match=r"name-tag-.*damaged"):
        images.cached(recipe)


def test_base_of_other_recipe_version_is_not_reused(cache: Path) -> None:
    _base(cache)
    assert rootfs.cached(images.TRIXIE) is not None
    description = cache / "rootfs" / "debian-trixie-slim.json"
    description.write_text(description.read_text().replace('"recipe": "1"', '"recipe": "0"'))
    assert rootfs.cached(images.TRIXIE) is None
    description.write_text("{")
    assert rootfs.cached(images.TRIXIE) is None


def test_build_of_unknown_base_raises(recipe: Recipe, tmp_path: Path) -> None:
    recipe.containerfile.write_text("FROM alpine:3\n")
    with pytest.raises(Unsupported, match=r"must be FROM .*debian:trixie-slim"):
        images.build(recipe.containerfile, "a/b:c", tmp_path, {}, _progress())


def test_a_base_may_be_an_argument(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_recipes: list[str] = []

    def ensure(recipe: Recipe, progress: Progress) -> Image:
        built_recipes.append(recipe.base)
        return Image(recipe.reference, Path("archive"), DIGEST)

    monkeypatch.setattr(images, "ensure", ensure)
    recipe.containerfile.write_text("ARG BASE=python:3.13-slim\nFROM ${BASE}\n")
    images.build(recipe.containerfile, "a/b:c", tmp_path, {}, _progress())
    images.build(recipe.containerfile, "a/b:c", tmp_path, {"BASE": "debian:sid-slim"}, _progress())
    assert built_recipes == [images.PYTHON, images.SID]
    with pytest.raises(Unsupported):
        images.build(recipe.containerfile, "a/b:c", tmp_path, {"BASE": "alpine:3"}, _progress())


def test_ensure_images_without_mysql_builds_others(monkeypatch: pytest.MonkeyPatch) -> None:
    built_recipes: list[str] = []

    def ensure(recipe: Recipe, progress: Progress) -> Image:
        built_recipes.append(recipe.name)
        if recipe is images.MYSQL:
            raise CommandFailed("mmdebstrap ended with 1; all of it is in /a/log\nand more")
        return Image(recipe.reference, Path("archive"), DIGEST)

    def nothing(_: object) -> None:
        return None

    for name, played in {"ensure": ensure, "cached": nothing, "_ensure_build_tools": nothing}.items():
        monkeypatch.setattr(images, name, played)
    output = io.StringIO()
    for _ in range(2):
        ensured = images.ensure_images(_progress(output))
        assert [image.reference for image in ensured] == [images.POSTGRESQL.reference, images.OPERATOR.reference]
    assert "clusters of it do not start" in output.getvalue()
    assert "/a/log" in output.getvalue()
    assert built_recipes.count("mysql-9.7") == 1, "sid is not tried again at once"


def test_prune_archives_keeps_newest(recipe: Recipe, cache: Path) -> None:
    archives = [cache / "images" / f"name-tag-{number}.oci.tar" for number in range(4)]
    for age, archive in enumerate(archives):
        _archive(archive)
        os.utime(archive, (1000 + age, 1000 + age))
    images.prune_archives(recipe, archives[3])
    assert [path.exists() for path in archives] == [False, False, True, True]


def test_prune_archives_of_one_checkout_keeps_those_of_another(cache: Path) -> None:
    recipes = [*images.recipes_of(images.CHECKOUT), *images.recipes_of(images.CHECKOUT, "-previous")]
    archives = [cache / "images" / f"{each.name}-{number}.oci.tar" for each in recipes for number in range(2)]
    for archive in archives:
        _archive(archive)
    for each in recipes:
        images.prune_archives(each, cache / "images" / f"{each.name}-1.oci.tar")
    assert all(archive.exists() for archive in archives)
