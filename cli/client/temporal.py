"""Temporal for the commands that read histories: the configured address, else the running stack's."""

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
from deploy import local
from domain.sealing import KeyRing
from workflows.client import connect

P = ParamSpec("P")


def exits_at_once(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """End the process with the command's exit code as soon as it returns.

    The SDK's own threads can crash an interpreter that shuts down while they run.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)))  # it would log to our standard output
        try:
            code = command(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    return run


def key_ring() -> KeyRing:
    """The keys that decrypt payloads: those of the settings, else of the embedded stack."""
    return KeyRing.parse(local.secret_keys(settings()))


async def temporal() -> Client:
    known = settings()
    address = known.temporal_address
    if address is None and (running := local.status(known)) is not None:
        address = running.temporal_address
    try:
        return await connect(address=address, keys=key_ring())
    except RuntimeError:
        raise Unreachable(f"Temporal cannot be reached at {address or 'its default address'}") from None
