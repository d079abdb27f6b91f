"""Ports: a busy default is replaced, a busy configured port is refused."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import Ports, make_plan
from deploy.state import StackError
from settings import Settings


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def ports(logged: list[str]) -> Iterator[Ports]:
    with Ports(logged.append) as ports:
        yield ports


def test_free_port_is_chosen_unchanged(ports: Ports, logged: list[str], unused_port: int) -> None:
    assert ports.choose("the API", unused_port) == unused_port
    assert logged == []


def test_busy_default_port_is_replaced_and_logged(ports: Ports, logged: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        wanted = busy.getsockname()[1]
        chosen = ports.choose("the API", wanted)
    assert chosen > wanted
    assert logged == [f"port {wanted} is in use; the API takes {chosen}"]


def test_port_is_never_chosen_twice(ports: Ports, unused_port: int) -> None:
    assert ports.choose("one", unused_port) != ports.choose("two", unused_port)


@pytest.mark.skipif(sys.platform != "linux", reason="the claim is Linux's")
def test_stacks_that_start_together_choose_different_ports(ports: Ports, unused_port: int) -> None:
    with Ports(lambda text: None) as others:
        assert others.choose("theirs", unused_port) == unused_port
        assert ports.choose("ours", unused_port) > unused_port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_busy_configured_port_is_refused(ports: Ports, host: str) -> None:
    with socket.create_server((host, 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(StackError, match=rf"ERRAND_PORT: cannot listen on {host}:{port}: Address already in use"):
            make_plan(Settings(host=host, port=port), ports)


def test_impossible_port_is_refused(ports: Ports) -> None:
    with pytest.raises(StackError, match="ERRAND_PORT: cannot listen on 127.0.0.1:99999"):
        make_plan(Settings(port=99_999), ports)


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


def test_offline_model_has_no_cost_limit(ports: Ports) -> None:
    addresses: dict[str, str] = {"database_url": "postgresql://db/errand", "temporal_address": "temporal:7233"}
    assert make_plan(Settings(port=0, **addresses), ports).settings.default_cost_usd == 0  # type: ignore[arg-type]
    real = Settings(port=0, anthropic_api_key="key", **addresses)  # type: ignore[arg-type]
    assert make_plan(real, ports).settings.default_cost_usd == Settings.default_cost_usd > 0
