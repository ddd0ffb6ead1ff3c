"""The jars that drivers load, each by its size and SHA-256.

A repository's own checksums come from the same place as its jars, so they do not tell a jar that was exchanged there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_slshudi.exceptions import RuntimeMissing

HUDI_PACKAGE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
S3_PACKAGE = "org.apache.hadoop:hadoop-aws:3.3.4"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Pin:
    """What a jar is known by: its size in bytes, and its SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


PINS: Mapping[str, Mapping[str, Pin]] = {
    HUDI_PACKAGE: {
        "org.apache.hudi_hudi-spark3.5-bundle_2.12-1.2.0.jar": Pin(
            80_667_825, "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676"
        ),
    },
    S3_PACKAGE: {
        "com.amazonaws_aws-java-sdk-bundle-1.12.262.jar": Pin(
            280_645_251, "873fe7cf495126619997bec21c44de5d992544aea7e632fdc77adb1a0915bae5"
        ),
        "org.apache.hadoop_hadoop-aws-3.3.4.jar": Pin(
            962_685, "53f9ae03c681a30a50aa17524bd9790ab596b28481858e54efd989a826ed3a4a"
        ),
        "org.wildfly.openssl_wildfly-openssl-1.0.7.Final.jar": Pin(
            424_076, "9f7058778978ec2ad90c7224401a4b0013d93e0dd3fa0f72b25244ffa3507ca8"
        ),
    },
}
"""The jars of each package, as the tests ran with them."""


def require_whole(coordinate: str, folder: Path) -> None:
    """Compares the names and sizes of a package's jars with the pinned ones, which reads none of them.

    Raises:
        RuntimeMissing: a jar is missing, cut off, or of no pin.
    """
    _require(coordinate, folder, digests=False)


def require_genuine(coordinate: str, folder: Path) -> None:
    """Compares the names, sizes and SHA-256 of a package's jars with the pinned ones.

    Raises:
        RuntimeMissing: a jar is missing, of no pin, or has other bytes.
    """
    _require(coordinate, folder, digests=True)


def _require(coordinate: str, folder: Path, digests: bool) -> None:
    pins = PINS.get(coordinate)
    if pins is None:
        return
    jars = {jar.name: jar for jar in folder.glob("*.jar")}
    faults = [f"{name} is missing" for name in sorted(pins.keys() - jars.keys())]
    faults += [f"{name} is no jar of this package" for name in sorted(jars.keys() - pins.keys())]
    for name in sorted(jars.keys() & pins.keys()):
        size = jars[name].stat().st_size
        if size != pins[name].size:
            faults.append(f"{name} has {size} bytes, expected {pins[name].size}")
        elif digests and (digest := _sha256(jars[name])) != pins[name].sha256:
            faults.append(f"{name} has SHA-256 {digest}, expected {pins[name].sha256}")
    if faults:
        raise RuntimeMissing(
            f"The jars of {coordinate} in {folder} are not those that this package was tested with: "
            f"{'; '.join(faults)}. Nothing loads them. Delete that folder if it is there, and fetch them from a "
            "repository, or a mirror, that has the released jars"
        )


def _sha256(jar: Path) -> str:
    digest = hashlib.sha256()
    with jar.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
