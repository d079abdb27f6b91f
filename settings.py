"""Settings: the only module that reads the environment, once per process. deploy/env.example lists every variable."""

import difflib
import functools
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from dotenv import dotenv_values
from pydantic import ValidationError

from domain.agents.models import KINDS, NAMED, Provider, Providers

ROOT = Path(__file__).resolve().parent  # of the code
INSTALLED = not (ROOT / "pyproject.toml").exists()  # as a package, not a checkout
MISCONFIGURED = 78  # exit code (EX_CONFIG) of a process with invalid settings: restarting it does not help


def state_folder(installed: bool, env: Mapping[str, str]) -> Path:
    """The folder for everything that is not code: the checkout, or else the user's own data folder."""
    if not installed:
        return ROOT / ".errand"
    base = env.get("XDG_DATA_HOME") or ""
    return (Path(base) if base.startswith("/") else Path("~/.local/share").expanduser()) / "errand"


STATE_FOLDER = state_folder(INSTALLED, os.environ)
SETTINGS_FOLDER = STATE_FOLDER if INSTALLED else ROOT  # of .env and errand.toml
# an upgrade replaces the folder of a package, so the user's own agents are kept elsewhere
AGENTS_FOLDER = STATE_FOLDER / "agents" if INSTALLED and (STATE_FOLDER / "agents").is_dir() else ROOT / "agents"


@dataclass(frozen=True)
class Settings:
    # addresses and folders; None: `errand up` starts an embedded server
    database_url: str | None = field(default=None, repr=False)
    # as the roles errand_api and errand_worker; None: these processes connect as the owner of the schema
    api_database_url: str | None = field(default=None, repr=False)
    worker_database_url: str | None = field(default=None, repr=False)
    temporal_address: str | None = None  # read only to see whether it is set; the SDK's envconfig reads the rest
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    azure_openai_api_key: str | None = field(default=None, repr=False)
    azure_openai_endpoint: str | None = None
    openai_api_version: str | None = None  # of Azure's older addresses
    ollama_host: str | None = None
    providers: str | None = field(default=None, repr=False)  # more of them, as JSON: the tables [providers.NAME]
    data_dir: Path | None = None  # of the embedded stack; None: see deploy/data_dir.py
    workspaces_dir: Path = STATE_FOLDER / "workspaces"
    secret_keys: tuple[str, ...] = field(default=(), repr=False)  # id:key, the first encrypts; see domain/sealing.py

    otel_exporter_otlp_endpoint: str | None = None  # receiver of traces; None: none are sent

    payload_encryption: str = "off"  # off | on: encrypt payloads in Temporal
    temporal_ui_url: str | None = None  # where the console finds the Temporal Web UI; the embedded stack sets it
    temporal_ui_origins: tuple[str, ...] = ()  # web pages that may use /codec, which decrypts for the Web UI

    # the command line
    url: str | None = None  # of the API; None: the embedded stack's
    api_key: str | None = field(default=None, repr=False)
    no_color: str | None = None  # any value: no colours; see no-color.org
    term: str | None = None
    xdg_state_home: Path | None = None  # folder of the command line's input history; None: ~/.local/state

    # the API
    host: str = "127.0.0.1"
    port: int = 8700
    max_body_bytes: int = 1_048_576
    max_input_chars: int = 200_000
    max_file_bytes: int = 20_971_520
    tenant_upload_bytes: int = 10_737_418_240  # of all uploaded files of a tenant; 0: no limit
    requests_per_minute: int = 600  # per key
    live_tasks: int = 200  # per key
    waiting_tasks: int = 200  # of all tenants, accepted and not begun by a worker; 0: no limit
    streams_per_key: int = 200  # open event streams, per key and API process
    require_keys: bool = False  # True: the account that runs the API needs a key too, even on its own machine
    local_token: str | None = field(default=None, repr=False)  # made by `errand up`; opens the API on loopback
    poll_interval_ms: int = 2_000
    variables: tuple[str, ...] = ()  # NAME=VALUE, of all threads of all tenants

    # agents and models
    agents_dir: Path = AGENTS_FOLDER
    prices_file: Path = ROOT / "agents" / "prices.yaml"
    tools_module: str | None = None  # Python module of your own with TOOLS = [Tool(...), ...]
    default_model: str = "claude-sonnet-5-5"
    max_ttl_ms: int = 30 * 24 * 3_600_000
    max_steps: int = 2_000
    max_tokens: int = 1_000_000_000  # enough for 2,000 steps with a full context of half a million
    unpriced_tokens: int = (
        5_000_000  # limit of a task with a model whose price is unknown, unless it has one of its own
    )
    max_cost_usd: float = 10_000.0
    default_cost_usd: float = 5.0  # limit of a task whose models cost money, unless it or its agent has one; 0: none
    subagent_depth: int = 1  # how deep subagents may nest, unless a definition sets it
    max_questions: int = 20  # input requests one session may make
    retention_ms: int = 30 * 24 * 3_600_000  # of content after a session has ended, unless the task sets it
    loop_warning: int = 4  # repetitions before the agent is warned
    loop_limit: int = 8  # repetitions before its session is ended
    denied_limit: int = 20  # denied calls before the session is ended; 0: no limit
    max_children: int = 50  # running subagents of one conversation; at most 500

    # notifications
    notify_private_hosts: tuple[str, ...] = ()  # private hosts that may be notified
    delivery_hours: float = 72.0  # how long a delivery is retried
    slack_url: str = "https://slack.com/api/"  # the only address to which connectors send their bot tokens
    smtp_host: str | None = None  # None: no e-mail
    smtp_port: int = 587
    smtp_tls: str = "starttls"  # starttls | tls | none
    smtp_user: str | None = None
    smtp_password: str | None = field(default=None, repr=False)
    smtp_from: str = "errand@localhost"

    # the worker
    task_queue: str = "errand"
    max_model_calls: int = 100
    max_tool_calls: int = 50  # a tenant has half of these, or less while others run some
    drain_seconds: float = 90.0
    workspace_file_bytes: int = 20_971_520  # of a file that is stored; a larger one stays on its worker only
    workspace_files: int = 20_000  # files, folders and links of one workspace that are stored
    workspace_bytes: int = 1_073_741_824  # of one workspace that are stored; 0: no limit
    tenant_workspace_bytes: int = 21_474_836_480  # of all workspaces of a tenant, with earlier versions; 0: no limit
    sandbox: str = "auto"  # auto | bwrap | sandlock | seatbelt | none
    sandbox_network: str = "off"  # off | on: commands of agents with `network: true` can reach public hosts
    sandbox_memory_bytes: int = 4 * 1024**3  # of all processes of one command together, like the next two
    sandbox_processes: int = 256  # and threads
    sandbox_disk_bytes: int = 4 * 1024**3
    sandbox_folders: tuple[str, ...] = ()  # other folders that commands and MCP programs may read
    allow_private_hosts: tuple[str, ...] = ()  # private hosts that may be reached
    allow_ports: tuple[str, ...] = ("80", "443")  # of public hosts, for fetch_url and commands
    search_url: str | None = None  # of a SearXNG, for web_search; it may be private
    brave_key: str | None = field(default=None, repr=False)  # of the Brave Search API, in its place
    search_model: str | None = None  # whose vendor searches, else; None: the default model, if its vendor does
    # Seconds between heartbeats of a running call. If the server does not push a cancel, it comes with the next one;
    # a call of a dead worker is repeated 4 s after one is overdue. Temporal Cloud bills each.
    cancel_heartbeat_seconds: float = 1.0

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "Settings":
        given = read_sources() if env is None else {name: Given(raw, "environment") for name, raw in env.items()}
        values: dict[str, object] = {}
        for name, kind in VARIABLES.items():
            raw = given[name].text.strip() if name in given else ""
            if raw:
                values[field_of(name)] = _convert(name, raw, kind)
        if "default_model" not in values and (vendor := _only_vendor(values)):
            values["default_model"] = f"{vendor}/{DEFAULT_MODELS[vendor]}"
        settings = cls(**values)  # type: ignore[arg-type]
        settings.model_providers  # noqa: B018  it is checked here
        for name, allowed in CHOICES.items():
            if (value := getattr(settings, name)) not in allowed:
                raise SettingsError(f"ERRAND_{name.upper()}: {value!r} is not one of {', '.join(allowed)}")
        for name, _, value in (one.partition("=") for one in settings.variables):
            if not name.isidentifier() or not value or value.startswith("sealed:"):  # which encrypted values do
                raise SettingsError("ERRAND_VARIABLES: must be pairs NAME=VALUE, no VALUE beginning with 'sealed:'")
        if settings.search_url and not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", settings.search_url):
            raise SettingsError("ERRAND_SEARCH_URL: must be an http:// or https:// address without a password")
        if not all(port.isdecimal() for port in settings.allow_ports):
            raise SettingsError("ERRAND_ALLOW_PORTS: must be numbers, separated by commas")
        if not 1 <= settings.max_children <= MOST_CHILDREN:
            raise SettingsError(f"ERRAND_MAX_CHILDREN: must be from 1 to {MOST_CHILDREN}")
        if not 1 <= settings.workspace_file_bytes <= MOST_FILE_BYTES:
            raise SettingsError(f"ERRAND_WORKSPACE_FILE_BYTES: must be from 1 to {MOST_FILE_BYTES}")
        if not 1 <= settings.loop_warning < settings.loop_limit:
            raise SettingsError("ERRAND_LOOP_WARNING: must be at least 1 and below ERRAND_LOOP_LIMIT")
        if not SHORTEST_BEAT <= settings.cancel_heartbeat_seconds <= LONGEST_BEAT:
            raise SettingsError(f"ERRAND_CANCEL_HEARTBEAT_SECONDS: must be from {SHORTEST_BEAT:g} to {LONGEST_BEAT:g}")
        return settings

    @functools.cached_property
    def model_providers(self) -> Providers:
        """Who answers for models: what the environment has of each vendor, then the tables."""
        found = {
            "anthropic": (self.anthropic_api_key, self.anthropic_base_url),
            "openai": (self.openai_api_key, self.openai_base_url),
            "azure": (self.azure_openai_api_key if self.azure_openai_endpoint else None, self.azure_openai_endpoint),
            "ollama": (None, _ollama_url(self.ollama_host) if self.ollama_host else None),
        }
        tables: dict[str, dict[str, str | None]] = {
            name: {"kind": name, "key": key, "base_url": url} for name, (key, url) in found.items() if key or url
        }
        if "azure" in tables:
            tables["azure"]["api_version"] = self.openai_api_version
        try:
            own = json.loads(self.providers or "{}")
            own = {name: {"kind": name, **one} if name in KINDS else one for name, one in own.items()}
            named = NAMED.validate_python(tables | own)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise SettingsError(f"providers.{where}: {first['msg']}; kinds are: {', '.join(KINDS)}") from None
        except (ValueError, TypeError, AttributeError):
            raise SettingsError("ERRAND_PROVIDERS: must be a JSON object of objects, one for each provider") from None
        default, slash, _ = self.default_model.partition("/")
        default = default if slash else "anthropic" if "anthropic" in named or not named else next(iter(named))
        if default == "anthropic":
            named.setdefault(default, Provider(kind="anthropic"))
        return Providers(default=default, named=named)

    @property
    def searching_model(self) -> str | None:
        """The model whose vendor searches for web_search; None if a service does, or nobody."""
        if self.search_url or self.brave_key:
            return None
        provider = self.model_providers.named.get(self.model_providers.default)
        return self.search_model or (self.default_model if provider and provider.searches else None)


DEFAULT_MODELS = {"openai": "gpt-5.4"}  # of a vendor whose key is the only one there is


def _only_vendor(values: Mapping[str, object]) -> str | None:
    """The vendor whose key is set, if Anthropic's is not."""
    if {"anthropic_api_key", "anthropic_base_url"} & values.keys():
        return None
    return next((kind for kind in DEFAULT_MODELS if f"{kind}_api_key" in values), None)


def _ollama_url(host: str) -> str:
    """The address in OLLAMA_HOST, which Ollama itself also reads: where to listen."""
    scheme, _, rest = host.rpartition("://")
    name, colon, port = rest.rstrip("/").rpartition(":")
    name, port = (name, port) if colon and port.isdecimal() else (rest.rstrip("/"), "11434")
    return f"{scheme or 'http'}://{'127.0.0.1' if name in ('', '0.0.0.0') else name}:{port}/v1"


MOST_CHILDREN = 500  # with more, the history of a conversation grows too fast
MOST_FILE_BYTES = 268_435_456  # a whole file is in memory while it is stored, and it is one value in the database
SHORTEST_BEAT, LONGEST_BEAT = 0.5, 15.0  # the SDK sends one anyway before four fifths of the timeout have passed
CHOICES = {
    "sandbox": ("auto", "bwrap", "sandlock", "seatbelt", "none"),
    "sandbox_network": ("off", "on"),
    "payload_encryption": ("off", "on"),
    "smtp_tls": ("starttls", "tls", "none"),
}

OF_OTHERS = frozenset(  # settings that other programs use too, so their variables have no ERRAND_
    {
        "temporal_address",
        "anthropic_api_key",
        "anthropic_base_url",
        *("openai_api_key", "openai_base_url", "azure_openai_api_key", "azure_openai_endpoint", "openai_api_version"),
        "ollama_host",
        "otel_exporter_otlp_endpoint",
        "no_color",
        "term",
        "xdg_state_home",
    }
)


def _kind(annotation: Any) -> type:
    """The type to which a text is converted: int for `int | None`, tuple for `tuple[str, ...]`."""
    kind: type = get_args(annotation)[0] if isinstance(annotation, UnionType) else get_origin(annotation) or annotation
    return kind


VARIABLES: dict[str, type] = {
    one.name.upper() if one.name in OF_OTHERS else f"ERRAND_{one.name.upper()}": _kind(one.type)
    for one in fields(Settings)
}

CLI_ONLY = frozenset(
    {"ERRAND_URL", "ERRAND_API_KEY", "NO_COLOR", "TERM", "XDG_STATE_HOME"}
)  # settings of the user's own terminal

OF_THE_TERMINAL = frozenset({"NO_COLOR", "TERM", "XDG_STATE_HOME"})  # set by other programs, never in a file
OF_SCRIPTS = frozenset({"ERRAND_VENV", "ERRAND_TEST_SEED"})  # of ./errand, scripts/ and the tests
MODEL_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ERRAND_PROVIDERS")
OF_THE_WORKER = (*MODEL_KEYS, "ERRAND_SMTP_PASSWORD", "ERRAND_BRAVE_KEY")
SECRETS = (*OF_THE_WORKER, "ERRAND_SECRET_KEYS", "ERRAND_API_KEY", "ERRAND_LOCAL_TOKEN")


class Given(NamedTuple):
    """A value as text, and its source."""

    text: str
    source: str


def read_sources(folder: Path = SETTINGS_FOLDER, env: Mapping[str, str] | None = None) -> dict[str, Given]:
    """All settings that are set: in the environment, or else in `.env`, or else in `errand.toml` of the folder.

    An empty variable of the environment counts as set, so it can clear a value of the files.
    """
    names = {field_of(name): name for name in VARIABLES if name not in OF_THE_TERMINAL}
    found = {name: Given(text, "errand.toml") for name, text in read_toml(folder / "errand.toml", names).items()}
    found |= {name: Given(text, ".env") for name, text in read_dotenv(folder / ".env", names.values()).items()}
    environment = os.environ if env is None else env
    return found | {name: Given(environment[name], "environment") for name in VARIABLES if name in environment}


def check_environment() -> None:
    """Refuse a misspelt variable. Only the command line does: in a container, other programs set such names too."""
    names = (name for name in os.environ if name.startswith("ERRAND_") and name not in OF_SCRIPTS)
    check_names("the environment", names, VARIABLES.keys() - OF_THE_TERMINAL)


def reach_loopback_directly() -> None:
    """Exempt this machine from a proxy of the environment, which the models' libraries use: it cannot reach us."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if given.strip() != "*":
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, (given, "localhost,127.0.0.1,::1")))


def field_of(variable: str) -> str:
    return variable.removeprefix("ERRAND_").lower()


def _convert(name: str, raw: str, kind: type) -> object:
    if kind is tuple:
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if kind is Path:
        return Path(raw).expanduser()
    if kind is bool:
        if raw.lower() not in ("true", "false"):
            raise SettingsError(f"{name}: {raw!r} is not one of true, false")
        return raw.lower() == "true"
    try:
        value = kind(raw)
    except ValueError:
        raise SettingsError(f"{name}: {raw!r} is not a valid {kind.__name__}") from None
    if kind in (int, float) and value < 0:
        raise SettingsError(f"{name}: {raw!r} must not be negative")
    return value


# Settings in files: `.env` with the names of variables, `errand.toml` with the names of settings.


class SettingsError(ValueError):
    """A setting has an invalid value or name; the message gives the setting and the allowed ones."""


def read_dotenv(file: Path, allowed: Collection[str]) -> dict[str, str]:
    """Names of other programs in the file are ignored, but a misspelt name of ours is an error."""
    if not file.exists():
        return {}
    try:
        with file.open(encoding="utf-8") as text:
            values = dotenv_values(stream=text, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    check_names(file, (name for name in values if name.startswith("ERRAND_")), allowed)
    return {name: text for name, text in values.items() if text is not None and name in allowed}


def read_toml(file: Path, names: Mapping[str, str]) -> dict[str, str]:
    """`names`: the variable of each setting."""
    if not file.exists():
        return {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    check_names(file, values, names)
    return {names[name]: _as_text(file, name, value) for name, value in values.items()}


def _as_text(file: Path, name: str, value: object) -> str:
    if name == "providers" and isinstance(value, dict):
        return json.dumps(value, default=str)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{file}: {name} must be a text, a number, true, false or a list of texts")


def check_names(source: object, names: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse names of settings that do not exist; `source` is where they were found."""
    known = sorted(allowed)
    if unknown := sorted(set(names) - set(known)):
        meant = [(difflib.get_close_matches(name, known, 1) or [""])[0] for name in unknown]
        listed = [name + (f" (did you mean {one}?)" if one else "") for name, one in zip(unknown, meant, strict=True)]
        raise SettingsError(f"{source}: there is no setting {', '.join(listed)}; allowed are: {', '.join(known)}")
