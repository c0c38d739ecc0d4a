"""Creation of the bucket."""

from devcluster.process import run
from devcluster.store.object_store import BUCKET, ObjectStore
from devcluster.store.programs import Programs


def ensure(programs: Programs, store: ObjectStore, *, object_lock: bool) -> None:
    """Create the bucket, unless it exists. Raises CommandFailed with versitygw's output."""
    if store.has_bucket():
        return
    root = store.directory.root_credentials()
    options = ["--object-lock-enabled-for-bucket"] if object_lock else []
    run(
        [
            str(programs.versitygw),
            "admin",
            f"--endpoint-url={store.host_endpoint}",
            "create-bucket",
            f"--bucket={BUCKET}",
            f"--owner={root.access_key_id}",
            *options,
        ],
        extra={
            "ADMIN_ACCESS_KEY_ID": root.access_key_id,
            "ADMIN_SECRET_ACCESS_KEY": root.secret_access_key,
            "SSL_CERT_FILE": str(store.ca_file),
        },
    )
