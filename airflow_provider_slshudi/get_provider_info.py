"""The description of this provider for Airflow.

https://airflow.apache.org/docs/apache-airflow-providers/howto/create-custom-providers.html
"""

from __future__ import annotations

from typing import Any

from airflow_provider_slshudi import __version__

_TEXT = {"type": ["string", "null"]}

_SLS = {
    "connection-type": "sls",
    "hook-class-name": "airflow_provider_slshudi.hooks.sls.SlsHook",
    "hook-name": "Alibaba Cloud SLS",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "relabeling": {"host": "Endpoint", "login": "AccessKey ID", "password": "AccessKey secret"},
        "placeholders": {"host": "https://cn-hangzhou.log.aliyuncs.com"},
    },
    "conn-fields": {
        "region": {
            "label": "Region",
            "schema": _TEXT,
            "description": "For example cn-hangzhou, where the endpoint does not name it; signature v4 needs it",
        },
        "auth_version": {
            "label": "Signature",
            "schema": {"type": "string", "enum": ["v1", "v4"], "default": "v4"},
        },
        "security_token": {
            "label": "Security token",
            "schema": {**_TEXT, "format": "password"},
            "description": "Of temporary (STS) credentials",
        },
        "credentials": {
            "label": "Credentials",
            "schema": _TEXT,
            "description": "Instead of key and secret: file:/path of a JSON file that is renewed, ecs:ROLE, or rrsa",
        },
        "assume_role": {
            "label": "Assume role",
            "schema": _TEXT,
            "description": "The ARN of a RAM role, of another account too, that these credentials assume",
        },
        "project": {
            "label": "Project to test",
            "schema": _TEXT,
            "description": "With the logstore below: the test button asks it what a pipeline would, and `slshudi init` "
            "offers it. Pipelines name their own",
        },
        "logstore": {"label": "Logstore to test", "schema": _TEXT},
    },
}
_LEDGER = {
    "connection-type": "slshudi_ledger",
    "hook-class-name": "airflow_provider_slshudi.hooks.ledger.LedgerHook",
    "hook-name": "SLS to Hudi ledger",
    "ui-field-behaviour": {
        "hidden-fields": [],
        "relabeling": {"schema": "Database (SQLite: path of the file)"},
        "placeholders": {"schema": "/var/lib/slshudi/ledger.db"},
    },
    "conn-fields": {
        "dialect": {
            "label": "Database system",
            "schema": {"type": "string", "enum": ["sqlite", "postgresql", "mysql"], "default": "sqlite"},
            "description": "SQLite serves one machine alone",
        },
    },
}
_ICEBERG = {
    "connection-type": "slshudi_iceberg",
    "hook-class-name": "airflow_provider_slshudi.hooks.iceberg.IcebergHook",
    "hook-name": "Iceberg catalog of SLS to Hudi",
    "ui-field-behaviour": {
        "hidden-fields": ["schema", "port"],
        "relabeling": {"host": "Address", "login": "User or client", "password": "Password, secret or token"},
        "placeholders": {"host": "https://catalog:8181, thrift://metastore:9083 or postgresql://server/catalog"},
    },
    "conn-fields": {
        "type": {
            "label": "Kind of catalog",
            "schema": {"type": "string", "enum": ["rest", "sql", "hive", "glue"], "default": "rest"},
        },
        "warehouse": {"label": "Warehouse", "schema": _TEXT, "description": "Where a REST catalog asks for one"},
        "name": {
            "label": "Name",
            "schema": _TEXT,
            "description": "By which a SQL catalog tells its tables from others'; the connection's id by default",
        },
    },
}


_INTEGRATION = "SLS to Hudi"
_MODULES = {
    "operators": ("backfill", "batch", "consumers", "fleet", "maintenance", "repair", "watch"),
    "sensors": ("ledger_sensors", "settle"),
    "triggers": ("ledger",),
    "hooks": ("consumer_changes", "iceberg", "ledger", "sls"),
}
"""The modules that have classes for DAG files, by the kind of class."""


def _modules(kind: str) -> list[dict[str, Any]]:
    modules = [f"{__name__.rpartition('.')[0]}.{kind}.{name}" for name in _MODULES[kind]]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


def get_provider_info() -> dict[str, Any]:
    """The provider's description, in Airflow's schema."""
    return {
        "package-name": "airflow-provider-slshudi",
        "name": _INTEGRATION,
        "description": "Alibaba Cloud SLS logs into an Apache Hudi table, exactly once",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://www.alibabacloud.com/help/en/sls/",
                "tags": ["service"],
            }
        ],
        **{kind: _modules(kind) for kind in _MODULES},
        "connection-types": [_SLS, _LEDGER, _ICEBERG],
        "extra-links": [
            f"airflow_provider_slshudi.plugins.links.{link}"
            for link in ("TransactionLink", "PipelineLink", "SparkLink")
        ],
        "asset-uris": [{"schemes": ["hudi"], "handler": None}],
        "config": {
            "slshudi": {
                "description": "Options of the provider airflow-provider-slshudi.",
                "options": {
                    "ledger_conn_id": {
                        "description": "The connection (type slshudi_ledger) of the ledger's database.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "slshudi_ledger",
                    },
                    "more_ledgers": {
                        "description": "Connections of further ledgers, separated by commas. Pages, `slshudi status` "
                        "and `slshudi metrics` show their pipelines, too.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "ledger_of_team_a,ledger_of_team_b",
                        "default": None,
                    },
                    "pipelines_folder": {
                        "description": "The one folder where pipeline files are looked for by name. "
                        "If it is not set, they lie beside the DAG files that name them.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/opt/airflow/pipelines",
                        "default": None,
                    },
                    "watched_by": {
                        "description": "What watches all pipelines outside of Airflow, Prometheus say. Without it, "
                        "pages, `slshudi status` and `slshudi doctor` say of each pipeline whose DAGs name no "
                        "notifier that Airflow tells no person of failures.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "Prometheus",
                        "default": None,
                    },
                },
            }
        },
    }
