"""The tables of routes and rights in docs/api.md, and the routes of the application that it must name."""

import re
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.routing import Route

from api.app import ROUTERS
from settings import ROOT
from store.keys import Right

_REQUEST = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`")


@dataclass(frozen=True)
class Rule:
    """The rights that one request needs: one of `any_of`, or all of `all_of`. If both are empty, any key is enough."""

    any_of: frozenset[Right] = frozenset()
    all_of: frozenset[Right] = frozenset()

    def allows(self, rights: frozenset[Right]) -> bool:
        if Right.ADMIN in rights or not (self.any_of or self.all_of):
            return True
        return bool(self.any_of & rights) or bool(self.all_of) and self.all_of <= rights


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    own: Rule
    foreign: Rule | None  # None: the request concerns nothing that already exists


def documented() -> dict[tuple[str, str], Row]:
    section = (ROOT / "docs" / "api.md").read_text().split("\n## Every route\n")[1]
    rows: dict[tuple[str, str], Row] = {}
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        requests, own, foreign = (cell.strip() for cell in line.strip("|").split("|"))
        for method, path in _REQUEST.findall(requests):
            assert (method, path) not in rows, f"{method} {path} is in the table twice"
            rows[method, path] = Row(method, path, _rule(own), _rule(foreign) if foreign else None)
    return rows


def _rule(cell: str) -> Rule:
    named = frozenset(Right(name) for name in re.findall(r"`(\w+)`", cell))
    if not named:
        assert cell in ("no key", "any key"), cell
        return Rule()
    return Rule(all_of=named) if " and " in cell else Rule(any_of=named)


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """Every method and path that the application answers, except the static files of its documentation."""
    routes = [*app.routes, *(route for router in ROUTERS for route in router.routes)]
    return {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)  # not the mounted files, and not the WebSocket, which is another form of a feed
        for method in route.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
