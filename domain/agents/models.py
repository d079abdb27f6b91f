"""Models: their names, the providers that answer for them, and what they cost. An unknown price is unknown, never
guessed.

A name is `provider/model`; a bare one is of the default provider. Prices come from a file that people edit, else from
pydantic's list (`genai-prices`), whose data is in its package.
"""

import contextlib
import functools
import hashlib
import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter

from domain.frozen import Closed, Frozen

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PriceList

Kind = Literal["anthropic", "bedrock", "vertex", "foundry", "openai", "azure", "ollama"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
ANTHROPIC, OPENAI, OLLAMA = "https://api.anthropic.com", "https://api.openai.com/v1", "http://127.0.0.1:11434/v1"
ADDRESSES: dict[Kind, str] = {"anthropic": ANTHROPIC, "openai": OPENAI, "ollama": OLLAMA}  # the others': the SDK's
# whose prices a provider has that the list does not find by its address; Azure's Claude costs what Anthropic's does
PRICE_LISTS: dict[Kind, str] = {
    **{"anthropic": "anthropic", "foundry": "anthropic"},
    **{"bedrock": "aws", "vertex": "google", "azure": "azure"},
}
STAND_IN = "offline"  # the model of the offline stand-in, which costs nothing
_DATE_SUFFIX = re.compile(r"-\d{8}$")


class Provider(Closed):
    """An endpoint that answers for models, as the operator configured it."""

    kind: Kind
    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+\S*$")
    key: str | None = Field(default=None, repr=False)
    api_version: str | None = None  # of Azure's older addresses
    prices: str | None = None  # whose price list, if its address does not say it

    @property
    def address(self) -> str | None:
        """None: the SDK finds it, from a region or a resource."""
        return self.base_url or ADDRESSES.get(self.kind)

    @property
    def of_openai(self) -> bool:
        return urlsplit(self.address or "").hostname == "api.openai.com"

    @property
    def lists_all(self) -> bool:
        """Whether its list has every model that it answers for."""
        return self.kind == "ollama" or self.of_openai

    @property
    def searches(self) -> bool:
        """Whether the vendor itself searches the web."""
        return self.kind in ("anthropic", "foundry") or self.of_openai


class ProviderReport(BaseModel):
    """A provider of models as a worker reaches it."""

    provider: str
    kind: Kind
    endpoint: str
    default: bool  # bare names are of it
    problem: str | None = None  # why its models cannot be called
    models: list[str] | None = None  # all of them, if it has a complete list


class UnknownProvider(ValueError):
    """A model's name begins with a provider that is not configured."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"There is no provider {name!r}; there are {', '.join(known)}.")
        self.known = known


class Providers(Frozen):
    default: str = "anthropic"
    named: dict[ProviderName, Provider] = Field(default_factory=lambda: {"anthropic": Provider(kind="anthropic")})

    def split(self, model: str) -> tuple[str, str]:
        """The provider of a model, and its name there."""
        first, slash, rest = model.partition("/")
        name, own = (first, rest) if slash else (self.default, model)
        if name not in self.named:
            raise UnknownProvider(name, sorted(self.named))
        return name, own

    def without_keys(self) -> "Providers":
        bare = {name: one.model_copy(update={"key": None}) for name, one in self.named.items()}
        return self.model_copy(update={"named": bare})

    def as_json(self) -> str:
        return NAMED.dump_json(self.named, exclude_none=True).decode()


NAMED = TypeAdapter(dict[ProviderName, Provider])


class Price(Closed):
    """USD per million tokens, and how many tokens the model can take in."""

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cache_read: float = Field(ge=0, allow_inf_nan=False)
    cache_write: float = Field(ge=0, allow_inf_nan=False)
    search: float = Field(default=0, ge=0, allow_inf_nan=False)  # USD for each search by the vendor
    context_window: int | None = Field(default=None, ge=1)

    def cost(self, input: int, output: int, cache_read: int, cache_write: int, searches: int) -> float:
        tokens = input * self.input + output * self.output
        tokens += cache_read * self.cache_read + cache_write * self.cache_write
        return tokens / 1_000_000 + searches * self.search


class ListPrice:
    """A price of the list. Some depend on the length of the prompt, or on the day."""

    def __init__(self, provider: "PriceList", model: "ModelInfo") -> None:
        self._provider = provider
        self._model = model
        self.context_window = model.context_window

    def cost(self, input: int, output: int, cache_read: int, cache_write: int, searches: int) -> float:
        from genai_prices import Usage  # half a second

        tokens = Usage(
            input_tokens=input + cache_read + cache_write,
            output_tokens=output,
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write,
            web_searches=searches,
        )
        return float(self._model.calc_price(tokens, self._provider).total_price)


FREE = Price(input=0, output=0, cache_read=0, cache_write=0, context_window=200_000)


class PriceTable(Closed):
    """The prices of the file, then those of the list."""

    models: dict[str, Price] = Field(default_factory=dict)
    providers: Providers = Field(default_factory=Providers, exclude=True)

    def price(self, model: str) -> Price | ListPrice | None:
        """Look up the exact name, else the name without its date suffix; anything else would be a guess."""
        if own := self.models.get(model) or self.models.get(_DATE_SUFFIX.sub("", model)):
            return own
        if model.rpartition("/")[2] == STAND_IN:
            return FREE
        try:
            name, there = self.providers.split(model)
        except UnknownProvider:
            return None
        seller = self.seller(name)
        return _listed(seller, there) if seller else None

    def cost(
        self, model: str, input: int, output: int, cache_read: int = 0, cache_write: int = 0, searches: int = 0
    ) -> float | None:
        """The cost in USD (`input` excludes the cached tokens), or None if the price is unknown."""
        price = self.price(model)
        return None if price is None else price.cost(input, output, cache_read, cache_write, searches)

    def seller(self, provider: str) -> str | None:
        """Whose prices in the list a provider's models have; None if they are unknown."""
        given = self.providers.named.get(provider)
        if given is None:
            return None
        return _seller(given.prices or PRICE_LISTS.get(given.kind), given.address, provider)

    def list_priced(self) -> list[str]:
        """Models with a price, for a refusal: of the file, and of the default provider."""
        from genai_prices.data_snapshot import get_snapshot  # half a second

        seller = self.seller(self.providers.default)
        listed = [model.id for one in get_snapshot().providers if one.id == seller for model in one.models]
        return [*sorted(self.models), *listed][:100]

    def is_free(self, model: str) -> bool:
        return self.cost(model, 1_000_000, 1_000_000) == 0

    def context_window(self, model: str) -> int | None:
        price = self.price(model)
        return price.context_window if price else None

    @functools.cached_property
    def version(self) -> str:
        """Which list a session was priced with: the package's version, and a digest of the file's own prices."""
        own = hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8] if self.models else None
        return f"genai-prices {version('genai-prices')}" + (f" and own prices {own}" if own else "")


@functools.lru_cache(maxsize=100)
def _seller(prices: str | None, address: str | None, name: str) -> str | None:
    """The seller's name in the list: as configured, else the one at this address or with this name. Nothing is fetched:
    the list is updated with its package."""
    if prices is None and (address is None or _is_local(address)):
        return None
    from genai_prices.data_snapshot import get_snapshot  # half a second

    known = get_snapshot()
    if prices is None:
        with contextlib.suppress(LookupError):
            return known.find_provider(None, None, address).id
    return next((one.id for one in known.providers if one.id == (prices or name)), None)


@functools.lru_cache(maxsize=1_000)
def _listed(seller: str, model: str) -> ListPrice | None:
    from genai_prices.data_snapshot import get_snapshot

    with contextlib.suppress(LookupError):
        return ListPrice(*get_snapshot().find_provider_model(model, None, seller, None))
    return None


def _is_local(address: str) -> bool:
    """A server on this machine serves open models, at a price that only its operator knows."""
    return (urlsplit(address).hostname or "") in ("localhost", "127.0.0.1", "::1")
