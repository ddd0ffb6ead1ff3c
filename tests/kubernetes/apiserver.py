"""Kubernetes' own API server with its etcd, and what an administrator has made there before anybody comes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider_slshudi.cli.demo.airflow_process import free_port
from tests.kubernetes.access import Access, Json
from tests.services import Service

_RULES: list[Json] = [
    # What docs/operating.md asks for.
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "watch"],
    },
]
_RBAC = "rbac.authorization.k8s.io"
_ROLES = f"/apis/{_RBAC}/v1/namespaces/default"
_NAME = {"metadata": {"name": "spark"}}


@dataclass(frozen=True)
class Programs:
    """The paths of what Kubernetes is here."""

    etcd: str
    apiserver: str


def programs() -> Programs | None:
    """Those that `make kubernetes` builds; None where one is missing."""
    etcd, apiserver = (Path(sys.executable).with_name(name) for name in ("etcd", "kube-apiserver"))
    return Programs(str(etcd), str(apiserver)) if etcd.exists() and apiserver.exists() else None


@contextmanager
def apiserver(found: Programs) -> Iterator[tuple[Access, Access]]:
    """How somebody asks who may do all, and how Airflow's tasks do; drivers have the account `default`."""
    with tempfile.TemporaryDirectory(prefix="slshudi-apiserver-") as directory:
        folder = Path(directory)
        store = f"http://127.0.0.1:{free_port()}"
        command = _etcd(found, folder, store)
        with Service(command, os.environ, folder / "etcd.log", lambda: _answers(Access(store), "/health")):
            access = Access(f"https://127.0.0.1:{free_port()}", folder / "apiserver.crt", token_hex())
            tasks = replace(access, token=token_hex())
            (folder / "tokens").write_text(f'{access.token},admin,1,"system:masters"\n{tasks.token},airflow,2\n')
            command = _apiserver(found, folder, store, access)
            # The namespace is what the server makes itself when it begins.
            with Service(
                command, os.environ, folder / "apiserver.log", lambda: _answers(access, "/api/v1/namespaces/default")
            ):
                _admit(access)
                yield access, tasks


def _etcd(found: Programs, folder: Path, store: str) -> list[str]:
    peers = f"http://127.0.0.1:{free_port()}"
    return [
        found.etcd,
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={store}",
        f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]


def _apiserver(found: Programs, folder: Path, store: str, access: Access) -> list[str]:
    key = folder / "accounts.pem"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(
        made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return [
        found.apiserver,
        f"--etcd-servers={store}",
        f"--cert-dir={folder}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={access.address.rpartition(':')[2]}",
        # Pods would find the server by it, and none has a network of its own.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={folder / 'tokens'}",
        "--authorization-mode=RBAC",
    ]


def _answers(access: Access, path: str) -> bool:
    try:
        return access.ask("GET", path) is not None
    except (OSError, ValueError):
        return False


def _admit(access: Access) -> None:
    """Makes the account of drivers, and lets it and Airflow's tasks do what Spark needs."""
    access.ask("POST", "serviceaccounts", {"metadata": {"name": "default"}})
    access.ask("POST", f"{_ROLES}/roles", _NAME | {"rules": _RULES})
    allow(access)


def allow(access: Access) -> None:
    """Gives drivers and Airflow's tasks their role."""
    subjects = [
        {"kind": "ServiceAccount", "name": "default", "namespace": "default"},
        {"kind": "User", "name": "airflow", "apiGroup": _RBAC},
    ]
    role = {"kind": "Role", "name": "spark", "apiGroup": _RBAC}
    access.ask("POST", f"{_ROLES}/rolebindings", _NAME | {"roleRef": role, "subjects": subjects})


def forbid(access: Access) -> None:
    """Takes it from them."""
    access.ask("DELETE", f"{_ROLES}/rolebindings/spark")
