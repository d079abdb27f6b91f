"""Temporal for commands that read histories: at the configured address, else that of the running stack."""

import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import click
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig

from cli.errors import Unreachable
from cli.options import settings
from cli.render.output import PROGRAM
from deploy import local, state
from deploy.data_dir import locate_data_dir
from deploy.stack import find_temporal_address
from deploy.state import StackError
from domain.sealing import KeyRing
from workflows.client import connect

P = ParamSpec("P")


def exits_at_once(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """End the process with the command's exit code as soon as it returns.

    The SDK's own threads can crash an interpreter that shuts down while they run.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        # the SDK would log to our standard output
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)))
        try:
            code = command(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        # os._exit does not flush what Python has buffered
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    return run


def key_ring() -> KeyRing:
    """The keys that decrypt payloads: from the settings, else from the embedded stack."""
    return KeyRing.parse(local.secret_keys(settings()))


async def temporal(url: str | None = None) -> Client:
    """`url`: the address of the API whose tasks are wanted, if one was named."""
    try:
        address = _address(url or settings().url)
        return await connect(address=address, keys=key_ring())
    except StackError as error:
        raise Unreachable(str(error)) from None
    except RuntimeError:
        raise Unreachable(f"Temporal cannot be reached at {address}") from None


def _address(url: str | None) -> str:
    """The address. No default is tried, because a stranger's Temporal may answer there."""
    if address := find_temporal_address(settings()):
        return address
    home = locate_data_dir(settings())
    running = state.running(home)
    if url and (running is None or running.api_url != url.rstrip("/")):
        raise Unreachable(f"histories are in Temporal; set TEMPORAL_ADDRESS to that of the server behind {url}")
    if running is None:
        raise Unreachable(
            f"no stack is running on {home}. `{PROGRAM} up` starts it; for a Temporal elsewhere set TEMPORAL_ADDRESS"
        )
    return running.temporal_address
