"""The parts of the stack: their environment, account, ports, certificates, and the guard of the Web UI."""

import http.server
import json
import os
import re
import socket
import socketserver
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx2
import jwt
import pytest
from cryptography import x509
from jwt import PyJWK

from deploy import state
from deploy.certificates import CERTIFICATES, PERMISSIONS, make
from deploy.stack import Ports, make_plan, variables
from deploy.state import StackError, command_of
from deploy.ui_guard import refusal
from settings import Settings, SettingsError, reach_loopback_directly


def test_settings_survive_conversion_to_environment_variables() -> None:
    changed = {
        "database_url": "postgresql://db/errand",
        "anthropic_api_key": "key",
        "data_dir": Path("/data"),
        "port": 9000,
        "max_cost_usd": 1.5,
        "sandbox": "bwrap",
        "allow_private_hosts": ("intranet", "10.0.0.7"),
    }
    assert changed.keys() <= {field.name for field in fields(Settings)}
    settings = Settings(**changed)  # type: ignore[arg-type]
    assert Settings.from_env(variables(settings)) == settings
    assert Settings.from_env(variables(Settings())) == Settings()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ERRAND_LOOP_WARNING": "8", "ERRAND_LOOP_LIMIT": "8"}, "ERRAND_LOOP_WARNING"),
        ({"ERRAND_CANCEL_HEARTBEAT_SECONDS": "16"}, "from 0.5 to 15"),
        ({"ERRAND_CANCEL_HEARTBEAT_SECONDS": "nan"}, "ERRAND_CANCEL_HEARTBEAT_SECONDS"),
        ({"ERRAND_VARIABLES": "REGION=north,TOWN"}, "NAME=VALUE"),
        ({"ERRAND_VARIABLES": "TOWN=sealed:x"}, "NAME=VALUE"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.from_env(wrong)


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def ports(logged: list[str]) -> Iterator[Ports]:
    with Ports(logged.append) as ports:
        yield ports


def test_busy_default_port_is_replaced_and_logged(ports: Ports, logged: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        wanted = busy.getsockname()[1]
        chosen = ports.choose("the API", wanted)
    assert chosen > wanted
    by = f"pid {os.getpid()} ({' '.join(command_of(os.getpid()).split())[:80]})"
    assert logged == [f"port {wanted} is taken by {by}; the API takes {chosen}, also from now on"]


@pytest.mark.skipif(sys.platform != "linux", reason="the claim is Linux's")
def test_port_of_the_last_start_is_taken_again_and_another_stack_is_named(
    logged: list[str], unused_port: int, tmp_path: Path
) -> None:
    default = unused_port
    with state.lock(tmp_path), Ports(logged.append) as strangers:
        strangers.choose("the API", default)
        with Ports(logged.append, tmp_path / "ports.json") as first:
            chosen = first.choose("the API", default)
            first.keep()
    by = f"another Errand stack, whose data is in {tmp_path} (pid {os.getpid()})"
    assert logged == [f"port {default} is taken by {by}; the API takes {chosen}, also from now on"]
    with Ports(logged.append, tmp_path / "ports.json") as second:
        assert second.choose("the API", default) == chosen and len(logged) == 1  # although the default is free again
    (tmp_path / "ports.json").write_text("{")
    with Ports(logged.append, tmp_path / "ports.json") as third:
        assert third.choose("the API", default) == default


@pytest.mark.skipif(sys.platform != "linux", reason="the claim is Linux's")
def test_stacks_that_start_together_choose_different_ports(ports: Ports, unused_port: int) -> None:
    with Ports(lambda text: None) as others:
        assert others.choose("theirs", unused_port) == unused_port
        assert ports.choose("ours", unused_port) > unused_port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_busy_configured_port_is_refused(ports: Ports, host: str) -> None:
    with socket.create_server((host, 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(
            StackError,
            match=rf"ERRAND_PORT: cannot listen on {host}:{port}: Address already in use, by pid {os.getpid()} ",
        ):
            make_plan(Settings(host=host, port=port), ports)


def test_parts_with_configured_addresses_are_not_planned(ports: Ports) -> None:
    given = Settings(
        port=0,
        database_url="postgresql://db/errand",
        temporal_address="temporal:7233",
        anthropic_base_url="http://model",
    )
    plan = make_plan(given, ports)
    assert (plan.postgres_port, plan.temporal_port, plan.temporal_ui_port, plan.offline_port) == (None,) * 4
    assert plan.temporal_address == "temporal:7233"
    assert plan.settings.anthropic_base_url == "http://model" and plan.settings.anthropic_api_key is None
    assert plan.settings.port != 0


def test_temporal_profile_configures_the_address(ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.prod]\naddress = "cluster:7233"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    monkeypatch.setenv("TEMPORAL_PROFILE", "prod")
    plan = make_plan(Settings(port=0, database_url="postgresql://db/errand"), ports)
    assert (plan.temporal_port, plan.temporal_address) == (None, "cluster:7233")
    monkeypatch.setenv("TEMPORAL_PROFILE", "missing")
    with pytest.raises(StackError, match="(?i)profile 'missing' not found"):
        make_plan(Settings(port=0), ports)


@pytest.mark.parametrize(
    ("host", "origin", "passes"),
    [
        ("127.0.0.1:8233", None, True),
        ("[::1]:8233", None, True),
        ("", None, False),
        ("rebound.example:8233", None, False),
        ("127.0.0.1.nip.io:8233", None, False),
        ("127.0.0.1:8233", "https://evil.example", False),
        ("127.0.0.1:8233", "http://127.0.0.1:3000", False),
    ],
)
def test_host_and_origin_decide(host: str, origin: str | None, passes: bool) -> None:
    assert (refusal(host, origin) is None) is passes


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
        key = next(PyJWK(one).key for one in jwks["keys"] if one["kid"] == jwt.get_unverified_header(token)["kid"])
        found = jwt.decode(token, key, ["RS256"])
        assert found["permissions"] == permissions and found["exp"] > time.time() + 300 * 86_400
        assert (tmp_path / f"{name}.env").read_text() == f"TEMPORAL_API_KEY={token}\n"


def test_existing_files_are_reused_unless_renewed(tmp_path: Path) -> None:
    assert "ca.pem" in make(tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert make(tmp_path) == []
    renewed = set(make(tmp_path, renew=True))
    assert not renewed & {"ca.pem", "ca.key"} and {"server.pem", "errand.jwt", "public/jwks.json"} <= renewed
    for path, content in before.items():
        assert (path.read_text() == content) == path.name.startswith("ca."), path


def test_providers_are_found_where_people_set_them() -> None:
    env = {
        "OPENAI_API_KEY": "sk-1",
        "AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com",
        "AZURE_OPENAI_API_KEY": "k",
        "OLLAMA_HOST": "0.0.0.0",
        "ERRAND_PROVIDERS": '{"groq": {"kind": "openai", "base_url": "https://api.groq.com/openai/v1"}, "bedrock": {}}',
    }
    settings = Settings.from_env(env)
    providers = settings.model_providers
    assert settings.default_model.startswith("openai/") and providers.default == "openai"
    assert {name: one.kind for name, one in providers.named.items()} == {
        **{"openai": "openai", "azure": "azure", "ollama": "ollama", "groq": "openai", "bedrock": "bedrock"}
    }
    assert providers.named["ollama"].base_url == "http://127.0.0.1:11434/v1"
    assert Settings.from_env({}).model_providers.default == "anthropic"
    both = Settings.from_env({**env, "ANTHROPIC_API_KEY": "k"})
    assert both.model_providers.default == "anthropic" and both.default_model == Settings.default_model


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[1]", "must be a JSON object of objects"),
        ('{"x": {"kind": "gpt"}}', "kinds are: anthropic, bedrock, vertex, foundry, openai, azure, ollama"),
        ('{"x": {"kind": "openai", "base_url": "ftp://x"}}', "providers.x.base_url"),
    ],
)
def test_a_provider_that_cannot_be_read_is_refused_with_what_is_allowed(given: str, said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        Settings.from_env({"ERRAND_PROVIDERS": given})


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_proxy_of_the_environment_is_not_asked_for_servers_of_this_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "")  # restored afterwards
    monkeypatch.setenv("NO_PROXY", "corp.example")
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    with socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}/README.md"
        with pytest.raises(httpx2.ConnectError), httpx2.Client() as through_proxy:
            through_proxy.get(here)
        reach_loopback_directly()
        with httpx2.Client() as direct:
            assert direct.get(here).status_code == 200
        server.shutdown()
    assert os.environ["no_proxy"].split(",")[0] == "corp.example"
