"""The addresses of the accepted connection decide whether a request needs a key."""

import pytest

from api.http.auth import MOST_ADDRESSES, MOST_FAILURES, MOST_KEYS, FailedKeys, check_same_site, is_local, local_caller
from api.http.problems import Unauthenticated
from domain.errors import NotAllowed, Refusal, TooMany
from settings import Settings

LOCAL = ("127.0.0.1", 8700)
HOST = "127.0.0.1:8700"
OTHER = ("192.0.2.7", 40_000)


@pytest.mark.parametrize(
    ("server", "client", "settings", "local"),
    [
        (LOCAL, ("127.0.0.1", 40_000), Settings(), True),
        (("::1", 8700), ("::1", 40_000), Settings(), True),
        # `--host 0.0.0.0` without ERRAND_HOST: the settings still say 127.0.0.1
        (("192.0.2.1", 8700), OTHER, Settings(), False),
        (("192.0.2.1", 8700), ("192.0.2.1", 40_000), Settings(), False),
        (LOCAL, OTHER, Settings(), False),
        (None, None, Settings(), False),
        (LOCAL, None, Settings(), False),
        (LOCAL, ("127.0.0.1", 40_000), Settings(require_keys=True), False),
        (LOCAL, ("127.0.0.1", 40_000), Settings(host="0.0.0.0"), False),
    ],
)
def test_both_ends_of_the_connection_decide(
    server: tuple[str, int] | None, client: tuple[str, int] | None, settings: Settings, local: bool
) -> None:
    assert is_local({"server": server, "client": client}, settings) is local


def test_connection_whose_owner_is_unknown_needs_a_key() -> None:
    """No process owns this connection, perhaps because its sender has closed it, so its owner is unknown."""
    scope = {"server": LOCAL, "client": ("127.0.0.1", 1)}
    headers = {"host": ["127.0.0.1:8700"]}
    with pytest.raises(Unauthenticated):
        local_caller(scope, headers, token=False)
    local_caller(scope, headers, token=True)


@pytest.mark.parametrize(
    "header",
    ["via", "forwarded", "x-forwarded-for", "x-original-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip"]
    + ["x-cluster-client-ip", "fastly-client-ip", "fly-client-ip", "cf-connecting-ip", "x-appengine-user-ip"]
    + ["x-proxyuser-ip", "x-envoy-external-address", "x-original-host"],
)
def test_headers_of_proxies_need_a_key(header: str) -> None:
    scope = {"server": LOCAL, "client": ("127.0.0.1", 1), "http_version": "1.1"}
    headers = {"host": ["127.0.0.1:8700"], "user-agent": ["x"], "accept": ["x"]}
    local_caller(scope, headers, token=True)
    with pytest.raises(Unauthenticated, match="proxy"):
        local_caller(scope, {**headers, header: ["127.0.0.1"]}, token=True)


@pytest.mark.parametrize(
    ("host", "origin"), [("[1.2.3.4]", None), ("[:::]", None), ("[", None), (HOST, "http://["), (HOST, "http://[::")]
)
def test_malformed_host_or_origin_is_refused(host: str, origin: str | None) -> None:
    scope = {"server": LOCAL, "client": ("127.0.0.1", 1), "http_version": "1.1"}
    headers = {"host": [host], "origin": [origin] if origin else []}
    with pytest.raises(Refusal):
        local_caller(scope, headers, token=True)
    with pytest.raises(NotAllowed):
        check_same_site("POST", headers)


def test_http_1_0_needs_a_key() -> None:
    """HTTP/1.0 indicates a proxy that adds no header, such as nginx with its default configuration."""
    scope = {"server": LOCAL, "client": ("127.0.0.1", 1), "http_version": "1.0"}
    with pytest.raises(Unauthenticated, match="proxy"):
        local_caller(scope, {"host": ["127.0.0.1:8700"]}, token=True)


def test_invalid_keys_are_limited_per_address_and_known_keys_pass() -> None:
    failed = FailedKeys()
    failed.note_success("known")
    for _ in range(MOST_FAILURES):
        failed.check("a", "wrong")
        failed.note_failure("a")
    with pytest.raises(TooMany):
        failed.check("a", "wrong")
    failed.check("a", "known")
    failed.check("b", "wrong")


def test_memory_for_failed_keys_is_bounded() -> None:
    failed = FailedKeys()
    for number in range(max(MOST_ADDRESSES, MOST_KEYS) + 100):
        failed.note_failure(str(number))
        failed.note_success(str(number))
    assert len(failed._failures) == MOST_ADDRESSES and len(failed._valid) == MOST_KEYS
