"""`errand environments`: the repositories that tasks may name."""

import json
from pathlib import Path
from typing import IO

import click
from errand.models import Environment, EnvironmentPage, GitSource

from cli.api import Api, segment
from cli.options import ListGroup, add_remove, add_show, below, remote
from cli.render.answers import print_answer, print_list
from cli.render.output import facts, one_line
from domain.json_object import JsonObject


@click.group(cls=ListGroup)
def environments() -> None:
    """List, define and remove environments: a repository, and what prepares its tree for a task.

    \b
    Examples:
      ./errand environments
      ./errand environments set shop https://git.example.org/shop.git --setup "make deps"
      ./errand environments set both web=https://git.example.org/web.git api=https://git.example.org/api.git
      ./errand environments show shop
      ./errand environments remove shop
    """


@environments.command("list")
@remote
def list_environments(api: Api, as_json: bool) -> None:
    """List the environments."""
    columns = ["ENVIRONMENT", "REPOSITORY", "REF", "SETUP"]
    print_list(api.get("/environments"), as_json, EnvironmentPage, columns, _row, empty="there is no environment")


def _row(one: Environment) -> list[str]:
    sources = list(_sources(one).values())
    refs = [source.ref or "(default branch)" for source in sources]
    urls = one_line(", ".join(source.url for source in sources), 80)
    return [one.name, urls, ", ".join(dict.fromkeys(refs)), one_line(one.setup or "", 40)]


def _sources(one: Environment) -> dict[str, GitSource]:
    return {"": one.git} if one.git is not None else one.repositories


@environments.command("set")
@click.argument("name")
@click.argument("addresses", metavar="URL | FOLDER=URL ...", nargs=-1, required=True)
@click.option("--ref", help="Branch, tag or commit.  [default: the default branch]")
@click.option("--depth", type=click.IntRange(min=0), help="Commits of its history; 0: all.  [default: 50]")
@click.option("--setup", help="Shell script that runs once in the fresh tree.")
@click.option(
    "--setup-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The same from a file."
)
@click.option("--setup-host", "hosts", multiple=True, help="A host that the script may reach; * is any. Repeatable.")
@click.option("--credential", help="With which the repository is read and written.")
@click.option("--forge", type=click.Choice(["github", "gitea", "gitlab"]), help="Whose REST API makes pull requests.")
@click.option("--more", type=click.File(), help="A JSON file with further fields, as in PUT /environments/{name}.")
@remote
def set_environment(
    api: Api,
    name: str,
    addresses: tuple[str, ...],
    ref: str | None,
    depth: int | None,
    setup: str | None,
    setup_file: Path | None,
    hosts: tuple[str, ...],
    credential: str | None,
    forge: str | None,
    more: IO[str] | None,
    as_json: bool,
) -> None:
    """Define the environment NAME, or replace it; tasks that have begun keep their commit.

    Several repositories are checked out in a folder each; the options are then for all of them.
    """
    if setup_file is not None:
        setup = setup_file.read_text()
    body: JsonObject = _read(more) if more is not None else {}
    options = {"ref": ref, "depth": depth, "credential": credential, "forge": forge}
    given = {key: value for key, value in options.items() if value is not None}
    for folder, url in map(_split, addresses):
        if folder:
            sources = body["repositories"] = _part(body, "repositories")
            sources[folder] = {**_part(sources, folder), "url": url, **given}
        elif len(addresses) > 1:
            raise click.UsageError("several repositories need a folder each: FOLDER=URL")
        else:
            body["git"] = {**_part(body, "git"), "url": url, **given}
    body |= {"setup": setup} if setup else {}
    body |= {"setup_hosts": list(hosts)} if hosts else {}
    print_answer(api.ask("PUT", f"/environments/{segment(name)}", json=body), as_json, Environment, _show)


def _split(address: str) -> tuple[str, str]:
    folder, equals, url = address.partition("=")
    return (folder, url) if equals and "/" not in folder else ("", address)


def _part(body: JsonObject, name: str) -> JsonObject:
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise click.UsageError(f"--more: {name} is not a JSON object")
    return found


def _read(file: IO[str]) -> JsonObject:
    try:
        found = json.load(file)
    except ValueError as error:
        raise click.UsageError(f"--more: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError("--more: this is not a JSON object")
    return found


def _show(one: Environment) -> None:
    credentials = [*(git.credential for git in _sources(one).values()), *one.credentials]
    lines = [("environment", one.name)]
    for folder, git in _sources(one).items():
        lines += [
            (f"repository {folder}".strip(), one_line(git.url)),
            ("ref", git.ref or "the default branch"),
            ("commits", "all" if git.depth == 0 else str(git.depth)),
        ]
    facts(
        [
            *lines,
            ("setup", one_line(one.setup, 200) if one.setup else "none"),
            ("setup reaches", ", ".join(one.setup_hosts) or "no host"),
            ("commands reach", ", ".join(one.hosts) or ("any host" if one.network == "open" else "no host")),
            ("credentials", ", ".join(dict.fromkeys(filter(None, credentials))) or "none"),
        ]
    )


add_show(environments, below("/environments"), Environment, _show, "Show one environment.")
add_remove(environments, below("/environments"), "Remove an environment; tasks that have begun with it continue.")
