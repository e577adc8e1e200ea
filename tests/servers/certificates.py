"""Certificates for one test run, in PEM files: an authority, a server on loopback, and a client that the server accepts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """The files of one authority. A key store holds the private key, then the certificate, as Java wants it."""

    authority: Path
    server_store: Path
    client_store: Path
    client_certificate: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("authority", authority_key, "authority", authority_key, for_others=True)
    made = Certificates(
        folder / "ca.pem",
        folder / "server.pem",
        folder / "client-store.pem",
        folder / "client.pem",
        folder / "client.key",
    )
    made.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    server_key, client_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    server = _pem(_certificate("localhost", server_key, "authority", authority_key))
    client = _pem(_certificate("ann", client_key, "authority", authority_key))
    made.server_store.write_bytes(_private(server_key) + server)
    made.client_store.write_bytes(_private(client_key) + client)
    made.client_key.write_bytes(_private(client_key))
    made.client_certificate.write_bytes(client)
    return made


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    for_others: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=for_others, path_length=None), critical=True)
    )
    return (made if for_others else made.add_extension(hosts, critical=False)).sign(signer, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
