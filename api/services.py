"""What a process of the API is made of, and how a route gets at it."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.control.retry_queue import RetryQueue
from api.http.metrics import Metrics
from api.streams.feeds import Pages
from api.streams.listener import EventListener
from domain.agents.prices import PriceTable
from settings import Settings
from store.database import Pool
from workflows.client import WorkflowClient


@dataclass(frozen=True)
class Services:
    settings: Settings
    pool: Pool
    door: WorkflowClient
    later: RetryQueue
    wake: EventListener
    pages: Pages
    prices: PriceTable
    metrics: Metrics


def services_of(request: Request) -> Services:
    parts: Services = request.app.state.parts
    return parts


ServicesDep = Annotated[Services, Depends(services_of)]
