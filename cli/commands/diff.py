"""`errand diff`: where two runs part, and what each cost."""

from dataclasses import asdict
from typing import Any

import click

from cli.client.api import Api
from cli.client.errors import Exit
from cli.commands.trace import WIDE, read_trace, spent
from cli.options import remote
from cli.render.compare import Parting, figures, parting
from cli.render.output import dim, duration, emit, one_line, status_word
from domain.sessions.trace import Trace

WORDS = {
    "text": "said something else",
    "tool_call": "called something else",
    "tool_result": "saw another result",
    "length": "one of them ended",
    "ending": "ended differently",
}


@click.command()
@click.argument("a")
@click.argument("b")
@remote
def diff(api: Api, a: str, b: str, as_json: bool) -> None:
    """Show the first step, call, result or word in which task B differs from task A, and what each cost.

    A rerun is compared with its original from the step on at which it began. The exit code is 0 if they are the same,
    1 if not.

    \b
    Examples:
      ./errand diff A B
      ./errand diff A B --json | jq .parted.what
    """
    one, other = read_trace(api, a, WIDE), read_trace(api, b, WIDE)
    found = parting(one, other)
    if as_json:
        parted = asdict(found) if found else None
        emit({"same": found is None, "parted": parted, "a": figures(one), "b": figures(other)})
    else:
        for name, trace in (("A", one), ("B", other)):
            _run(name, figures(trace), spent(trace.usage))
        for name, trace, source in (("A", one, other), ("B", other, one)):
            _origin(name, trace, source)
        _show(found)
    raise SystemExit(int(Exit.FAILED if found else Exit.OK))


def _run(name: str, known: dict[str, Any], cost: str) -> None:
    took = "" if known["duration_ms"] is None else f", {duration(known['duration_ms'] / 1_000)}"
    reason = f" ({known['reason']})" if known["reason"] else ""
    click.echo(
        f"{name}  {known['task_id']}  {status_word(known['status'])}{reason}  "
        + dim(f"{known['steps']} steps, {cost}{took}")
    )


def _origin(name: str, trace: Trace, source: Trace) -> None:
    """What a rerun began with is not a difference in what the two did, but the reason for it."""
    origin = trace.rerun_of
    if origin is not None and origin.session_id == source.session_id:
        changed = f", with other {', '.join(origin.changed)}" if origin.changed else ""
        click.echo(dim(f"{name} repeats the other from step {origin.from_step} on{changed}"))


def _show(found: Parting | None) -> None:
    if found is None:
        click.echo("They are the same.")
        return
    place = "" if found.step_a is None and found.step_b is None else f" at step {_step(found.step_a, found.step_b)}"
    tool = f" of {one_line(found.tool)}" if found.tool else ""
    click.echo(f"They part{place}: {WORDS[found.what]}{tool}")
    click.echo(click.style(f"- {one_line(found.a, 500)}", fg="red"))
    click.echo(click.style(f"+ {one_line(found.b, 500)}", fg="green"))


def _step(a: int | None, b: int | None) -> str:
    if a == b or a is None or b is None:
        return str(a if a is not None else b)
    return f"{a} of A, {b} of B"
