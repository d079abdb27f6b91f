"""The plan of one start: the processes to start, and their ports."""

from dataclasses import dataclass, replace

from deploy.ports import Ports
from deploy.state import StackError
from settings import Settings

OFFLINE_PORT, POSTGRES_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT = 8701, 5433, 7233, 8233
OFFLINE_KEY = "offline"  # the SDK requires one; the offline model accepts any
OFFLINE_MODEL = "offline"  # its price is zero


@dataclass(frozen=True)
class StackPlan:
    """Ports of the processes to start. None: the address was configured, so that server is not ours."""

    settings: Settings  # with every address filled in, except that of a database that does not exist yet
    postgres_port: int | None
    temporal_port: int | None
    temporal_ui_port: int | None
    offline_port: int | None

    @property
    def temporal_address(self) -> str:
        return self.settings.temporal_address or ""


def make_plan(settings: Settings, ports: Ports) -> StackPlan:
    configured = settings.port not in (0, Settings.port)
    port = ports.choose("the API", settings.port, host=settings.host, variable="ERRAND_PORT" if configured else None)
    temporal_port = ui_port = postgres_port = offline_port = None
    temporal_address = configured_temporal(settings)
    if temporal_address is None:
        temporal_port = ports.choose("Temporal", TEMPORAL_PORT)
        ui_port = ports.choose("the Temporal Web UI", TEMPORAL_UI_PORT)
        temporal_address = f"127.0.0.1:{temporal_port}"
    if settings.database_url is None:
        postgres_port = ports.choose("PostgreSQL", POSTGRES_PORT)
    ui_url = f"http://127.0.0.1:{ui_port}" if ui_port else settings.temporal_ui_url
    filled = replace(settings, port=port, temporal_address=temporal_address, temporal_ui_url=ui_url)
    if settings.anthropic_api_key is None and settings.anthropic_base_url is None:
        offline_port = ports.choose("the offline model", OFFLINE_PORT)
        model = f"http://127.0.0.1:{offline_port}"
        # the offline model is free, whatever model name it is asked for
        filled = replace(filled, anthropic_base_url=model, anthropic_api_key=OFFLINE_KEY, default_cost_usd=0)
        if settings.default_model == Settings.default_model:
            filled = replace(filled, default_model=OFFLINE_MODEL)
    return StackPlan(filled, postgres_port, temporal_port, ui_port, offline_port)


def configured_temporal(settings: Settings) -> str | None:
    """An address from TEMPORAL_ADDRESS, or from a profile of the SDK's own configuration file."""
    if settings.temporal_address:
        return settings.temporal_address
    from temporalio.envconfig import ClientConfigProfile  # takes half a second to import

    try:
        return ClientConfigProfile.load().address
    except Exception as error:  # the SDK's bridge raises an error class that it does not export
        raise StackError(f"Temporal's configuration cannot be used: {error}") from None
