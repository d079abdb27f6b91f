"""Certificates and tokens for Temporal: each is valid for one purpose only, and existing ones are kept."""

import base64
import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from deploy.certificates import CERTIFICATES, PERMISSIONS, make


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def number(text: str) -> int:
    return int.from_bytes(decoded(text), "big")


def claims(token: str, jwks: dict[str, Any]) -> dict[str, Any]:
    """The claims of a token, as a verifier of RFC 7519 reads them."""
    head, body, signature = token.split(".")
    kept = next(key for key in jwks["keys"] if key["kid"] == json.loads(decoded(head))["kid"])
    public = rsa.RSAPublicNumbers(number(kept["e"]), number(kept["n"])).public_key()
    public.verify(decoded(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    found: dict[str, Any] = json.loads(decoded(body))
    return found


def test_authority_signs_every_certificate(tmp_path: Path) -> None:
    make(tmp_path)
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    for name in CERTIFICATES:
        x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes()).verify_directly_issued_by(authority)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700, "others must not reach the keys"


def test_tokens_are_signed_and_say_what_each_may_do(tmp_path: Path) -> None:
    make(tmp_path)
    jwks = json.loads((tmp_path / "public" / "jwks.json").read_text())
    for name, permissions in PERMISSIONS.items():
        token = (tmp_path / f"{name}.jwt").read_text()
        found = claims(token, jwks)
        assert found["permissions"] == permissions and found["exp"] > time.time() + 300 * 86_400
        assert (tmp_path / f"{name}.env").read_text() == f"TEMPORAL_API_KEY={token}\n"
        with pytest.raises(InvalidSignature):
            head, _, signature = token.split(".")
            claims(f"{head}.{base64.urlsafe_b64encode(b'{}').decode()}.{signature}", jwks)


def test_existing_files_are_reused_unless_renewed(tmp_path: Path) -> None:
    assert "ca.pem" in make(tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert make(tmp_path) == []
    renewed = set(make(tmp_path, renew=True))
    assert not renewed & {"ca.pem", "ca.key"} and {"server.pem", "errand.jwt", "public/jwks.json"} <= renewed
    for path, content in before.items():
        assert (path.read_text() == content) == path.name.startswith("ca."), path
