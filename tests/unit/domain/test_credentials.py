"""Credentials: the hosts that get them, the header, and requests that one that may only read refuses."""

import pytest
from pydantic import ValidationError

from domain.credentials import Access, Credential, CredentialRules, CredentialSpec, is_bound


def make(**rules: object) -> Credential:
    return Credential(name="c", rules=CredentialRules.model_validate(rules), secret="token-0123456789")


@pytest.mark.parametrize(
    ("host", "url", "bound"),
    [
        ("git.example.org", "https://git.example.org/a.git", True),
        ("git.example.org", "http://git.example.org/a", False),
        ("git.example.org", "https://git.example.org:8443/a", False),
        ("git.example.org", "https://git.example.org.evil.org/a", False),
        ("git.example.org:8443", "https://git.example.org:8443/a", True),
        ("[::1]:8443", "https://[::1]:8443/a", True),
    ],
)
def test_a_credential_is_bound_to_scheme_host_and_port(host: str, url: str, bound: bool) -> None:
    assert is_bound(CredentialRules(hosts=[host]), url) is bound


@pytest.mark.parametrize(
    ("method", "path", "refused"),
    [
        ("POST", "/a.git/git-upload-pack", False),
        ("GET", "/a.git/info/refs?service=git-receive-pack", True),
        ("POST", "/a.git/git-receive-pack", True),
        ("GET", "/repos/a/pulls?state=open", False),
        ("POST", "/repos/a/pulls?x=/git-upload-pack", True),
    ],
)
def test_reading_is_what_changes_nothing(method: str, path: str, refused: bool) -> None:
    assert make().refuses(method, path) is refused
    assert not make(access="write").refuses(method, path)


def test_a_credential_does_not_show_its_secret() -> None:
    assert "0123456789" not in f"{make()!r}{make()}" and make().rules.access is Access.READ
    assert len(set(make().texts)) == 2
    assert make().header("/repos/a?x=1") == "Bearer token-0123456789"
    assert make().header("/a.git/info/refs?service=git-upload-pack").startswith("Basic ")


@pytest.mark.parametrize("host", ["a.org/path", "user@a.org", "[::z]", "a b"])
def test_a_host_that_cannot_be_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="this is not a host"):
        CredentialSpec(secret="token-0123456789", hosts=[host])
