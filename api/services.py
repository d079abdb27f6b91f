"""What a process of the API is made of, and how a route gets at it."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.control.retry_queue import Later
from api.http.metrics import Metrics
from api.streams.feeds import Pages
from api.streams.listener import Wake
from domain.agents.prices import PriceTable
from settings import Settings
from store.database import Pool
from workflows.client import Door


@dataclass(frozen=True)
class Parts:
    settings: Settings
    pool: Pool
    door: Door
    later: Later
    wake: Wake
    pages: Pages
    prices: PriceTable
    metrics: Metrics


def parts_of(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


PartsDep = Annotated[Parts, Depends(parts_of)]
