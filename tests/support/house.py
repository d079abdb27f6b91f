"""What a reader wants to know of the house before and after a change: `scripts/house`.

The walk needs a running stack, whose addresses it takes from the environment like a worker (`ERRAND_DATABASE_URL`,
`TEMPORAL_ADDRESS`, `ANTHROPIC_BASE_URL`); without them it is left out. Everything else is read from the source.
"""

import ast
import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from settings import ROOT, Settings
from tests.support.layering import Module, imported, modules

# An entry of a registry has one importer by nature.
REGISTRIES = ("/builtin/", "cli/commands/", "api/routes/", "connectors/", "offline/scripts/")
ALIKE = 0.7  # of the fields of the smaller model
FEWEST_FIELDS = 4


@dataclass(frozen=True)
class House:
    files: int
    lines: dict[str, int]
    thin: list[str]  # modules with one importer, outside registries
    widest: list[tuple[int, str]]  # own imports of a file
    alike: list[tuple[str, str, int]]


def survey() -> House:
    found = [module for module in modules(ROOT) if not module.path.startswith("bench/")]
    names = {module.name for module in found}
    own = {module.path: set(_own_imports(module, names)) for module in found}
    importers = Counter(name for imports in own.values() for name in imports)
    lines: Counter[str] = Counter()
    for module in found:
        lines[module.path.split("/")[0]] += len(module.text.splitlines())
    thin = [
        module.path
        for module in found
        if importers[module.name] == 1 and not any(part in module.path for part in REGISTRIES)
    ]
    return House(
        files=len(found),
        lines=dict(lines),
        thin=sorted(thin),
        widest=sorted(((len(imports), path) for path, imports in own.items()), reverse=True),
        alike=sorted(_alike(found), key=lambda pair: -pair[2]),
    )


def _own_imports(module: Module, names: set[str]) -> Iterator[str]:
    for _, name in imported(module):
        for candidate in (name, name.rpartition(".")[0]):
            if candidate in names:
                yield candidate
                break


def _alike(found: Iterable[Module]) -> Iterator[tuple[str, str, int]]:
    """Pairs of models in different files that share most of their fields."""
    models = [
        (f"{module.path}:{node.name}", fields)
        for module in found
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and len(fields := _fields(node)) >= FEWEST_FIELDS
    ]
    for index, (name, fields) in enumerate(models):
        for other, others in models[index + 1 :]:
            if name.split(":")[0] != other.split(":")[0]:
                shared = len(fields & others)
                if shared >= ALIKE * min(len(fields), len(others)) and shared >= FEWEST_FIELDS:
                    yield name, other, shared


def _fields(node: ast.ClassDef) -> set[str]:
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


@click.command()
@click.option("--all", "whole", is_flag=True, help="List every module and pair, not just the first twenty.")
def main(whole: bool) -> None:
    """Print the walk of a task, thin modules, imports a file, models that share fields, and lines by package."""
    house = survey()
    most = None if whole else 20
    total = sum(house.lines.values())
    click.echo(f"{house.files} files (aim 400), {total:,} lines of Python (aim 60,000)")
    for package, count in sorted(house.lines.items(), key=lambda one: -one[1]):
        click.echo(f"  {count:>6}  {package}")
    if "ERRAND_DATABASE_URL" in os.environ:
        from tests.support.files_run import walk, walk_line  # imports the worker, which takes a second

        files = asyncio.run(walk(Settings.from_env()))
        click.echo(walk_line(files.before_temporal, files.after))
        for name in [*files.before_temporal, "-- Temporal --", *files.after] if whole else []:
            click.echo(f"  {name}")
    click.echo(f"modules with one importer, outside registries: {len(house.thin)} (aim 40)")
    for path in house.thin[:most]:
        click.echo(f"  {path}")
    click.echo("own imports a file, the most:")
    for count, path in house.widest[:10]:
        click.echo(f"  {count:>3}  {path}")
    click.echo(f"pairs of models in two files that share {ALIKE:.0%} of their fields: {len(house.alike)}")
    for name, other, shared in house.alike[:most]:
        click.echo(f"  {shared:>3}  {name}  {other}")


if __name__ == "__main__":
    main()
