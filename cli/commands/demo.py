"""`errand demo`: small tasks that show what the platform does, with the stand-in for the model or a real one."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from cli.commands.run import run
from cli.render.output import PROGRAM, dim, emit, note, table
from cli.repository import make_sample_repository

SAMPLE = Path(__file__).parent.parent / "sample"
REPOSITORY = SAMPLE.with_name("repository_sample")
_SLOW = (
    "Keep the log book of a lighthouse for twelve hours, one file per hour in log/, slowly. [[script:slow seconds=90]]"
)


@dataclass(frozen=True)
class Demo:
    shows: str
    agent: str
    text: str
    options: tuple[str, ...] = ()
    repository: bool = False  # it works in a git repository of its own

    def arguments(self) -> list[str]:
        return [self.agent, self.text, *self.options]


DEMOS = {
    "look": Demo(
        "an agent plans, reads a small project, measures it and reports",
        "assistant",
        "Look around the workspace and write a short report",
        ("--dir", str(SAMPLE)),
    ),
    "slow": Demo(
        "90 seconds of work: kill what you like, and it still finishes",
        "assistant",
        _SLOW,
        ("--title", "A slow log book"),
    ),
    "ask": Demo(
        "an agent asks you a question; answer it, or come back tomorrow",
        "assistant",
        "Compute some primes, and ask me how many",
    ),
    "approve": Demo(
        "a command waits for your approval: yes, no, edit it, or always",
        "assistant",
        "Compute the first 7 primes",
        ("--permission", "bash=ask"),
    ),
    "fan-out": Demo(
        "an orchestrator hands files to subagents and joins their reports",
        "orchestrator",
        "What do these files say about the lighthouse?",
        ("--dir", str(SAMPLE)),
    ),
    "research": Demo(
        "a plan that you approve or edit, a web search, and a report with sources",
        "researcher",
        "How did the lights of lighthouses become brighter?",
        ("--approve-plan",),
    ),
    "fix": Demo(
        "an agent mends a failing test in a git repository and leaves a patch",
        "coder",
        "A test of this project fails. Find the cause and mend it.",
        repository=True,
    ),
    "trouble": Demo(
        "the model is overloaded, then its stream breaks: both are retried",
        "assistant",
        "Compute the first 7 primes [[fault:529 at=2]] [[fault:drop at=3]]",
        ("--title", "Primes in spite of trouble"),
    ),
}


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in DEMOS if name.startswith(incomplete)]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[NAME] [OPTIONS]...", shell_complete=_names)
@click.pass_context
def demo(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a demo, or list them all. OPTIONS are those of `run`, such as --detach; the list takes --json.

    Texts in double square brackets are markers for the offline stand-in; docs/agents.md explains them.

    \b
    Examples:
      ./errand demo
      ./errand demo look
      ./errand demo slow --detach
    """
    name = next((one for one in arguments if one in DEMOS), None)  # options may come first
    if name is None and arguments == ("--json",):
        emit({"items": [{"name": one, "shows": about.shows} for one, about in DEMOS.items()]})
        return
    if name is None and arguments:
        raise click.UsageError(f"{arguments[0]!r} is not one of {', '.join(DEMOS)}")
    if name is None:
        table(["DEMO", "SHOWS"], [[one, about.shows] for one, about in DEMOS.items()])
        click.echo(dim(f"`{PROGRAM} demo NAME` runs one, and shows the command behind it."))
        return
    options = list(arguments)
    options.remove(name)
    whole = [*DEMOS[name].arguments(), *options]
    folder = make_sample_repository(REPOSITORY) if DEMOS[name].repository else None
    if folder is not None:
        whole += ["--repo", str(folder)]
    note(f"{PROGRAM} run {shlex.join(whole)}")
    try:
        with run.make_context("run", whole, parent=ctx) as inner:
            run.invoke(inner)
    finally:
        if folder is not None:
            note(f"The change: {PROGRAM} diff last\nTo apply it: {PROGRAM} apply last {shlex.quote(str(folder))}")
