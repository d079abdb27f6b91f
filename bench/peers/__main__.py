"""`python -m bench.peers`: the scripted loop on each peer and on Errand, then one table."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from bench.lab import open_lab
from bench.peers.contest import Result, compete, home_team, visitors
from bench.peers.peer import PEERS, Peer, install_peers
from bench.peers.report import as_table
from deploy.state import StackError

LENGTHS = (10, 50)
LONG = 200


async def run(
    peers: Sequence[Peer], lengths: Sequence[int], rounds: int, say: Callable[[str], None], *, streamed: bool = False
) -> list[Result]:
    python = await install_peers()
    say("starting a separate stack")
    with tempfile.TemporaryDirectory(prefix="errand-peers-") as folder:
        async with open_lab() as lab, visitors(lab, python, peers, Path(folder), streamed=streamed) as guests:
            return await compete(lab, [*home_team(lab), *guests], lengths, rounds, say)


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Interleaved rounds.")
@click.option("--long", "long_wanted", is_flag=True, help=f"Also {LONG} steps, where some peers reach a limit.")
@click.option("--peer", "names", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only these.")
@click.option(
    "--streamed", is_flag=True, help="LangGraph and OpenAI Agents stream the model's answer too, as Errand does."
)
def main(rounds: int, long_wanted: bool, names: tuple[str, ...], streamed: bool) -> None:
    """Errand and its peers on the same scripted loop, in the same run on the same servers."""
    peers = [peer for peer in PEERS if not names or peer.name in names]
    lengths = (*LENGTHS, LONG) if long_wanted else LENGTHS
    try:
        results = asyncio.run(run(peers, lengths, rounds, lambda text: click.echo(text, err=True), streamed=streamed))
    except StackError as error:
        raise click.ClickException(str(error)) from None
    click.echo(as_table(results, rounds))


if __name__ == "__main__":
    main()
