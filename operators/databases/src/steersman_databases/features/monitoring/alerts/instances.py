"""Alerts about instances of both engines: the exporter, volumes and certificates."""

from __future__ import annotations

from .model import Alert

_POD = "{{ $labels.namespace }}/{{ $labels.pod }}"

ALERTS = (
    Alert(
        name="DatabaseInstanceDown",
        group="instances",
        expression="steersman_postgresql_up == 0 or steersman_mysql_up == 0",
        minutes=2,
        severity="warning",
        summary=f"The database server of {_POD} does not respond.",
        action=(
            "Read the logs of the container server: kubectl logs POD -c server.",
            "Read the conditions of the cluster: kubectl steersman status CLUSTER.",
        ),
    ),
    Alert(
        name="DatabaseMetricsMissing",
        group="instances",
        expression='up{dbcluster!=""} == 0',
        minutes=5,
        severity="warning",
        summary=f"Prometheus cannot scrape {_POD}.",
        action=(
            "Read the logs of the container agent: kubectl logs POD -c agent.",
            "Check the error of the target in Prometheus. A NetworkPolicy of your own must admit port 9187.",
        ),
    ),
    Alert(
        name="DatabaseCollectorFails",
        group="instances",
        expression="""
            steersman_exporter_collector_success == 0
            unless on (namespace, pod) (steersman_postgresql_up == 0 or steersman_mysql_up == 0)
        """,
        minutes=10,
        severity="info",
        summary=f"Metrics of the collector {{{{ $labels.collector }}}} of {_POD} are out of date.",
        action=(
            "Read the logs of the container agent, which have the error: kubectl logs POD -c agent.",
            "Alerts that need these metrics do not fire meanwhile.",
        ),
    ),
    Alert(
        name="DatabaseSeriesDropped",
        group="instances",
        expression="steersman_exporter_dropped_series > 0",
        minutes=30,
        severity="info",
        summary=f"{{{{ $value }}}} series of {_POD} are not served, because there are too many.",
        action=("Only the largest databases and tables have metrics. Split the cluster, or read the rest by SQL.",),
    ),
    Alert(
        name="VolumeFillsUp",
        group="instances",
        expression="""
            predict_linear(steersman_volume_available_bytes[6h], 3 * 86400) < 0
            and steersman_volume_available_bytes / steersman_volume_size_bytes < 0.5
        """,
        minutes=60,
        severity="warning",
        summary=f"Volume {{{{ $labels.volume }}}} of {_POD} is full within three days at the present rate.",
        action=(
            "Increase spec.storage.size, or spec.walStorage.size for the volume wal.",
            "If WAL or binary logs grow, find what retains them: a slot, a replica, or the archive.",
        ),
    ),
    Alert(
        name="VolumeAlmostFull",
        group="instances",
        expression="steersman_volume_available_bytes / steersman_volume_size_bytes < 0.1",
        minutes=5,
        severity="warning",
        summary=f"{{{{ $value | humanizePercentage }}}} of volume {{{{ $labels.volume }}}} of {_POD} is left.",
        action=("Increase spec.storage.size, or spec.walStorage.size for the volume wal.",),
    ),
    Alert(
        name="VolumeFull",
        group="instances",
        expression="steersman_volume_available_bytes / steersman_volume_size_bytes < 0.03",
        minutes=1,
        severity="critical",
        summary=f"Volume {{{{ $labels.volume }}}} of {_POD} is full. Writes fail.",
        action=(
            "Increase spec.storage.size, or spec.walStorage.size for the volume wal.",
            "If the storage class cannot expand volumes, drop or truncate tables, or replace the replicas.",
        ),
    ),
    Alert(
        name="CertificateExpires",
        group="instances",
        expression="steersman_certificate_not_after_timestamp_seconds - time() < 7 * 86400",
        minutes=60,
        severity="warning",
        summary=f"Certificate {{{{ $labels.certificate }}}} of {_POD} ends in {{{{ $value | humanizeDuration }}}}.",
        action=(
            "Renew the Secret of spec.tls.serverSecret, if there is one.",
            "The operator renews its own certificates: check that it runs, and read the condition CertificatesValid.",
        ),
    ),
)
