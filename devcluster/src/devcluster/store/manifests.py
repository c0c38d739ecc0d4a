"""Manifests of an object store for the database operator."""

import yaml

from devcluster.store.object_store import ObjectStore

CREDENTIALS_SECRET = "store-credentials"  # noqa: S105 - a name
CA_SECRET = "store-ca"  # noqa: S105 - a name
STORE = "store"


def render(store: ObjectStore, namespace: str) -> str:
    """Return a `BackupStore` and its Secrets as YAML.

    The Secrets have the credentials and the CA.
    """
    credentials = {
        "ACCESS_KEY_ID": store.credentials.access_key_id,
        "SECRET_ACCESS_KEY": store.credentials.secret_access_key,
    }
    objects: list[dict[str, object]] = [
        _secret(CREDENTIALS_SECRET, namespace, credentials),
        _secret(CA_SECRET, namespace, {"ca.crt": store.ca_file.read_text()}),
        {
            "apiVersion": "databases.steersman.dev/v1alpha1",
            "kind": "BackupStore",
            "metadata": {"name": STORE, "namespace": namespace},
            "spec": {
                "s3": {
                    "bucket": store.bucket,
                    "endpoint": store.endpoint,
                    "region": store.region,
                    "addressing": "Path",
                    "caSecretRef": {"name": CA_SECRET},
                },
                "credentials": {"secretRef": {"name": CREDENTIALS_SECRET}},
            },
        },
    ]
    return yaml.safe_dump_all(objects, sort_keys=False)


def _secret(name: str, namespace: str, content: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": content,
    }
