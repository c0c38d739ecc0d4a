"""The real kubectl reads written YAML with the same types."""

from __future__ import annotations

import json
import subprocess

from framework_support.yaml_strings import TYPED_BY_READERS
from steersman_manifests.yaml_codec import dump_yaml
from steersman_testing.envtest.binaries import find_binaries


def test_kubectl_reads_written_strings_as_strings() -> None:
    # kubectl decodes a typed ConfigMap without a server, and fails for values that are not strings.
    data = {text: text for text in TYPED_BY_READERS}
    manifest = dump_yaml({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "texts"}, "data": data})
    command = [str(find_binaries() / "kubectl"), "annotate", "--local", "-f", "-", "read=yes", "-o", "json"]
    output = subprocess.run(command, input=manifest, text=True, capture_output=True, timeout=60, check=True).stdout
    assert json.loads(output)["data"] == data
