"""Certificates and tokens for Temporal with mutual TLS and its JWT authorizer (`python -m deploy.certificates FOLDER`).

One authority signs the certificates of the server, of our processes and of the Web UI. One key signs the tokens; the
server checks them with its public half, `public/jwks.json`. Existing files are kept; with --renew everything but the
authority is made again.
"""

import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import click
import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from jwt.algorithms import RSAAlgorithm

from deploy.temporal import NAMESPACE

PrivateKey = ec.EllipticCurvePrivateKey
AUTHORITY_DAYS, DAYS = 3_650, 365
SERVER_NAMES = ("temporal", "localhost", "127.0.0.1")
CERTIFICATES = {"server": SERVER_NAMES, "errand": ("errand",), "ui": ("temporal-ui",)}
# in the form of Temporal's default claim mapper: namespace and role; `temporal-system` means all namespaces
PERMISSIONS = {
    "errand": [f"{NAMESPACE}:write"],  # the API and the workers
    "setup": [f"{NAMESPACE}:admin"],  # makes the namespace and its search attributes
    "ui": [f"{NAMESPACE}:read", "temporal-system:read"],
}


def make(folder: Path, *, renew: bool = False) -> list[str]:
    """Returns the names of the files that were written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only the owner can enter the folder. The files in it are readable, because a container mounts single files and
    # runs as another user.
    folder.chmod(0o700)
    (folder / "public").mkdir(exist_ok=True)
    written: list[str] = []

    def write(name: str, content: str) -> None:
        (folder / name).write_text(content)
        (folder / name).chmod(0o644)
        written.append(name)

    if not (folder / "ca.pem").exists():
        key = ec.generate_private_key(ec.SECP256R1())
        write("ca.key", _pem(key))
        write("ca.pem", _authority(key))
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, PrivateKey)
    for name, hosts in CERTIFICATES.items():
        if renew or not (folder / f"{name}.pem").exists():
            key = ec.generate_private_key(ec.SECP256R1())
            write(f"{name}.key", _pem(key))
            write(f"{name}.pem", _certificate(key, hosts, authority, signer))
    if renew or not all((folder / f"{name}.jwt").exists() for name in PERMISSIONS):
        _write_tokens(write)
    if renew or not (folder / "ui.access").exists():
        write("ui.access", secrets.token_urlsafe(32))  # in the link to the Web UI
    return written


def _write_tokens(write: Callable[[str, str], None]) -> None:
    """Make the tokens with a key that is not stored: to change one, all are made again."""
    key, key_id = rsa.generate_private_key(65_537, 2_048), secrets.token_hex(8)
    public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    write("public/jwks.json", json.dumps({"keys": [public | {"use": "sig", "alg": "RS256", "kid": key_id}]}))
    for name, permissions in PERMISSIONS.items():
        now = int(time.time())
        claims = {"sub": name, "iat": now, "exp": now + DAYS * 86_400, "permissions": permissions}
        token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": key_id})
        write(f"{name}.jwt", token)
        write(f"{name}.env", f"TEMPORAL_API_KEY={token}\n")  # for env_file of compose.yaml


def _authority(key: PrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Errand's Temporal")])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _certificate(
    key: PrivateKey,
    hosts: tuple[str, ...],
    authority: x509.Certificate,
    signer: PrivateKey,
) -> str:
    """A certificate for both ends of a connection, because the parts of the server call each other."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        _builder(name, authority.subject, key, DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(both, critical=False)
    )
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: PrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--renew", is_flag=True, help="Make new certificates and tokens; the authority stays.")
def main(folder: Path, renew: bool) -> None:
    for name in make(folder, renew=renew):
        click.echo(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
