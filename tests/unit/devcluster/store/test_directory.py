"""The directory of an object store keeps its secrets private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography import x509

from devcluster.store.directory import Credentials, StoreDirectory


@pytest.fixture
def directory(tmp_path: Path) -> StoreDirectory:
    created = StoreDirectory(tmp_path / "store")
    created.create(["localhost", "127.0.0.1"])
    return created


def accounts(directory: StoreDirectory) -> dict[str, str]:
    """Return the secret of each access key that versitygw accepts."""
    content = json.loads((directory.accounts / "users.json").read_text())
    return {name: account["secret"] for name, account in content["accessAccounts"].items()}


def test_directory_created_again_is_unchanged(directory: StoreDirectory) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}

    before = contents()
    directory.create(["example.com"])
    assert contents() == before


def test_certificate_has_all_names(directory: StoreDirectory) -> None:
    certificate = x509.load_pem_x509_certificate(directory.server_pair.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1"]
    authority = x509.load_pem_x509_certificate(directory.ca_certificate.read_bytes())
    certificate.verify_directly_issued_by(authority)


def test_saved_credentials_replace_all_others(directory: StoreDirectory) -> None:
    first, second, third = directory.credentials(), Credentials.generate(), Credentials.generate()
    directory.save_credentials(second, first)
    assert directory.credentials() == second
    assert accounts(directory) == {each.access_key_id: each.secret_access_key for each in (first, second)}
    directory.save_credentials(third)
    assert accounts(directory) == {third.access_key_id: third.secret_access_key}


def test_client_credentials_are_not_the_root_account(directory: StoreDirectory) -> None:
    assert directory.root_credentials().access_key_id not in accounts(directory)


def test_secrets_are_private(directory: StoreDirectory) -> None:
    credentials = directory.credentials()
    assert credentials.secret_access_key not in repr(credentials)
    secrets = (credentials.secret_access_key, directory.root_credentials().secret_access_key)
    for path in directory.path.rglob("*"):
        if path.is_file() and (any(secret in path.read_text() for secret in secrets) or path.suffix == ".key"):
            assert path.stat().st_mode & 0o077 == 0, path
