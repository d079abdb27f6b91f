"""The services of an API process; `api.app` makes them when it starts, and `api.http.auth` passes them to a route."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.http.metrics import Metrics
from api.http.transfers import Transfers
from api.streams.feeds import EventListener, StreamSlots
from domain.agents.models import PriceTable
from domain.sealing import KeyRing
from settings import Settings
from store.database import Pool
from store.variables import SharedVariables
from workflows.client import WorkflowClient
from workflows.schedules import ScheduleClient

if TYPE_CHECKING:
    from api.faces.mcp.routes import McpHost  # which needs these services, like all of these
    from api.submission.submit import Starts, WaitingBound


@dataclass(frozen=True)
class Services:
    settings: Settings
    pool: Pool
    workflows: WorkflowClient
    schedules: ScheduleClient
    starts: "Starts"
    waiting_bound: "WaitingBound"
    listener: EventListener
    prices: PriceTable
    keys: KeyRing  # encrypt secrets before they are stored
    shared_variables: SharedVariables
    metrics: Metrics
    slots: StreamSlots
    transfers: Transfers
    mcp: "McpHost"
