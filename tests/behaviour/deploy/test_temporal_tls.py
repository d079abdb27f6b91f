"""Temporal with mutual TLS and certificates of deploy/certificates.py: only our own processes can connect.

The development server, the only one that runs here, supports neither TLS nor an authorizer, so a TLS proxy is put in
front of it. The server of compose.yaml with its settings is not tested here.
"""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from deploy import certificates
from deploy.postgres import API_ROLE, WORKER_ROLE
from deploy.stack import make_app_parts, make_model_part, variables
from deploy.state import StackInfo
from settings import ROOT, Settings
from store.migrate import migrate
from tests.support.launch import as_role, connected, empty_database, free_port, running
from tests.support.own_worker import temporal_server
from tests.support.stack import Stack
from tests.support.tls_front import tls_front


def tls(folder: Path, address: str, name: str = "errand", authority: Path | None = None) -> dict[str, str]:
    return {
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": "default",
        "TEMPORAL_CONFIG_FILE": "/dev/null",
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_SERVER_NAME": "temporal",
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str((authority or folder) / "ca.pem"),
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(folder / f"{name}.pem"),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(folder / f"{name}.key"),
        "TEMPORAL_API_KEY": (folder / "setup.jwt").read_text(),
    }


async def prepared(env: dict[str, str]) -> tuple[int, str]:
    """Run `python -m deploy.temporal`, which creates the namespace."""
    run = asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "deploy.temporal"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    done = await run
    return done.returncode, done.stderr


async def test_our_processes_work_through_mutual_tls_and_others_do_not(stack: Stack, tmp_path: Path) -> None:
    ours, foreign = tmp_path / "ours", tmp_path / "foreign"
    for folder in (ours, foreign):
        certificates.make(folder)
    with temporal_server(tmp_path, {}) as plain:
        async with tls_front(plain, ours) as address, empty_database(stack.database_url) as url:
            code, errors = await prepared(tls(ours, address))
            assert code == 0, errors
            stranger = tls(ours, address) | tls(foreign, address, authority=ours)
            nobody = {**tls(ours, address), "TEMPORAL_TLS_CLIENT_CERT_PATH": "", "TEMPORAL_TLS_CLIENT_KEY_PATH": ""}
            await migrate(url)
            refused = (prepared(stranger), prepared(nobody))  # each of them tries for some seconds
            *codes, _ = await asyncio.gather(*refused, _run_task(stack, tmp_path, plain, tls(ours, address), url))
            assert all(code != 0 for code, _ in codes)


async def _run_task(stack: Stack, folder: Path, plain: str, env: dict[str, str], url: str) -> None:
    """Start a worker and an API that know only the TLS proxy, each with its own database role."""
    settings = replace(
        stack.settings,
        database_url=url,
        temporal_address=env["TEMPORAL_ADDRESS"],
        workspaces_dir=folder / "workspaces",
        port=free_port(),
        drain_seconds=1.0,
    )
    api_url = f"http://127.0.0.1:{settings.port}"
    info = StackInfo(
        pid=0, started=None, api_url=api_url, docs_url="", temporal_address=plain, temporal_ui_url=None,
        database_url=url, data_dir=folder, offline_model=False,
    )  # fmt: skip
    env = {**variables(settings), **env}
    worker = env | {"ERRAND_DATABASE_URL": as_role(stack, url, WORKER_ROLE)}
    api = env | {"ERRAND_DATABASE_URL": as_role(stack, url, API_ROLE)}
    async with (
        running([sys.executable, "worker.py"], folder / "worker.log", worker),
        running([sys.executable, "-m", "api"], folder / "api.log", api),
        connected(settings, info) as own,
    ):
        record = await own.run("[[script:say text=through-tls]]")
        assert record["status"] == "completed", record
        ready = await own.http.get("/readyz")
        assert ready.status_code == 200, ready.text


def test_each_process_gets_its_own_secrets_only() -> None:
    secrets = {
        "anthropic_api_key": "model-secret",
        "smtp_password": "mail-secret",
        "local_token": "token-secret",
        "secret_keys": ("a:key-secret",),
        "database_url": "postgresql://errand:owner-secret@db/errand",
        "api_database_url": "postgresql://errand_api:api-role-secret@db/errand",
        "worker_database_url": "postgresql://errand_worker:worker-role-secret@db/errand",
    }
    settings = Settings(**secrets)  # type: ignore[arg-type]
    app = make_app_parts(settings, {})
    expected = {
        "model": set(),
        "migrate": {"owner", "api-role", "worker-role"},
        "worker": {"model", "mail", "key", "worker-role"},
        "api": {"token", "key", "api-role"},
    }
    names = set().union(*expected.values())
    for part in (make_model_part(settings, 8701), *app.parts, app.migrate):
        seen = {name for name in names if f"{name}-secret" in str(part.env)}
        assert seen == expected[part.name], part.name
        assert part.env["ANTHROPIC_API_KEY"] == (
            "model-secret" if part.name == "worker" else ""
        )  # and it inherits none
