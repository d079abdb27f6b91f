"""`errand models`: the providers of models, as the workers reach them, and what models cost."""

import click

from agents.loader import load_prices
from cli.database import with_database
from cli.errors import CliError, Unreachable
from cli.options import json_option, settings
from cli.render.output import dim, emit, table
from domain.agents.models import PriceTable
from store import workers


@click.command()
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@json_option
def models(names: tuple[str, ...], as_json: bool) -> None:
    """Show who answers for models: the providers, whether the workers reach them, and whose prices they have.

    With names of models, show what a million tokens of each cost. A model is named provider/model; a bare name is of
    the default provider. docs/agents.md has the settings.

    \b
    Examples:
      ./errand models
      ./errand models openai/gpt-5.4 claude-sonnet-5-5
    """
    prices = load_prices(settings().prices_file, settings().model_providers)
    if names:
        _show_prices(names, prices, as_json)
        return
    reports = with_database(workers.models, seconds=5)
    if not reports:
        raise Unreachable("no worker is running, so nobody has tried the providers")
    reports.sort(key=lambda one: (not one.default, one.provider))
    sellers = {one.provider: prices.seller(one.provider) for one in reports}
    if as_json:
        emit({"items": [{**one.model_dump(), "prices": sellers[one.provider]} for one in reports]})
        return
    rows = [
        [
            one.provider + (" (default)" if one.default else ""),
            one.kind,
            one.endpoint,
            "no" if one.problem else "yes",
            sellers[one.provider] or "unknown",
        ]
        for one in reports
    ]
    table(["PROVIDER", "KIND", "ENDPOINT", "REACHED", "PRICES"], rows)
    for one in reports:
        if one.problem:
            click.echo(click.style(f"{one.provider}: {one.problem}", fg="yellow"))
        if one.models:
            click.echo(f"{one.provider} has {', '.join(one.models[:50])}")
    click.echo(dim(f"default model: {settings().default_model}; prices: {prices.version}"))


def _show_prices(names: tuple[str, ...], prices: PriceTable, as_json: bool) -> None:
    found = []
    for name in names:
        provider = name.partition("/")[0]
        if "/" in name and provider not in prices.providers.named:
            raise CliError(f"there is no provider {provider!r}; there are {', '.join(sorted(prices.providers.named))}")
        costs = (prices.cost(name, 1_000_000, 0), prices.cost(name, 0, 1_000_000))
        found.append((name, *costs, prices.context_window(name)))
    if as_json:
        keys = ("model", "input_usd", "output_usd", "context_window")
        emit({"items": [dict(zip(keys, one, strict=True)) for one in found], "prices": prices.version})
        return
    rows = [
        [name, *("unknown" if usd is None else f"${usd:g}" for usd in (given, made)), str(window or "unknown")]
        for name, given, made, window in found
    ]
    table(["MODEL", "INPUT", "OUTPUT", "CONTEXT"], rows)
