"""Strings keep their type when Go reads the written YAML."""

from __future__ import annotations

import pytest
import yaml

from framework_support.yaml_strings import TYPED_BY_READERS
from steersman_manifests.yaml_codec import dump_yaml, load_yaml


@pytest.mark.parametrize("text", TYPED_BY_READERS)
def test_dump_quotes_strings_that_readers_type(text: str) -> None:
    document = {text: [text]}
    assert yaml.safe_load(dump_yaml(document)) == document
    assert load_yaml(dump_yaml(document)) == document
    assert f"- '{text}'\n" in dump_yaml(document)


@pytest.mark.parametrize("text", ["a", "1.2.3", "10Gi", "10.0.0.1", "2026-13-45x", "yes!", "x_1", "0-1"])
def test_dump_writes_other_strings_plain(text: str) -> None:
    assert dump_yaml({"name": text}) == f"name: {text}\n"
