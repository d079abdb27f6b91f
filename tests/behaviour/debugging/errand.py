"""Runs the command `errand` against the stack."""

import asyncio

from click.testing import CliRunner, Result

from cli.main import errand
from tests.support.stack import Stack


async def cli(stack: Stack, *args: str) -> Result:
    env = {"ERRAND_URL": stack.url, "ERRAND_API_KEY": "", "ERRAND_DATA_DIR": str(stack.root)}
    return await asyncio.to_thread(
        lambda: CliRunner().invoke(errand, list(args), env=env, prog_name="./errand", color=False)
    )
