"""The certificate of a server that speaks TLS, issued by an authority of its own that clients are told to trust."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = ("localhost", "127.0.0.1", "sls.local", "cn-local.log.aliyuncs.com")
"""The hosts that the certificate is for; for each name also every PROJECT.NAME."""

_VALID = timedelta(days=365)
_RENEW = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files: `authority` is what clients trust (REQUESTS_CA_BUNDLE), `chain` and `key` are the server's."""

    authority: Path
    chain: Path
    key: Path

    @classmethod
    def of(cls, directory: Path, names: Sequence[str] = NAMES) -> Certificate:
        """The certificate in `directory`; makes a new one if there is none, or if it soon expires."""
        certificate = cls(directory / "ca.pem", directory / "server.pem", directory / "server.key")
        if not certificate._good():
            directory.mkdir(parents=True, exist_ok=True)
            certificate._make(names)
        return certificate

    def _good(self) -> bool:
        if not (self.authority.exists() and self.key.exists() and self.chain.exists()):
            return False
        until = x509.load_pem_x509_certificate(self.chain.read_bytes()).not_valid_after_utc
        return until > datetime.now(timezone.utc) + _RENEW

    def _make(self, names: Sequence[str]) -> None:
        root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        root_name = _name("slshudi local authority")
        root = (
            _builder(root_name, root_name, root_key.public_key(), root_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(root_key, hashes.SHA256())
        )
        leaf = (
            _builder(_name("slshudi local SLS"), root_name, key.public_key(), root_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(_hosts(names)), critical=False)
            .sign(root_key, hashes.SHA256())
        )
        # The authority's key is forgotten here: nothing else can be issued in its name.
        self.chain.unlink(missing_ok=True)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with os.fdopen(os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(private)
        self.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
        self.chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    begin = datetime.now(timezone.utc) - timedelta(hours=1)  # for clocks that are a little late
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, begin + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(issued_by, critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hosts(names: Sequence[str]) -> list[x509.GeneralName]:
    hosts: list[x509.GeneralName] = []
    for name in names:
        try:
            hosts.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            hosts += [x509.DNSName(name), x509.DNSName(f"*.{name}")]
    return hosts
