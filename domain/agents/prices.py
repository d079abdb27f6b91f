"""Model prices: a table that people edit. An unknown price is unknown, never guessed."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

_DATE_SUFFIX = re.compile(r"-\d{8}$")


class Price(BaseModel):
    """USD per million tokens, and how many tokens the model can take in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cache_read: float = Field(ge=0, allow_inf_nan=False)
    cache_write: float = Field(ge=0, allow_inf_nan=False)
    context_window: int | None = Field(default=None, ge=1)
    thinking: Literal["adaptive", "budget"] = "adaptive"  # how the model is asked to think


class PriceTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    models: dict[str, Price] = Field(default_factory=dict)

    def price(self, model: str) -> Price | None:
        """Look up the exact name, else the name without its date suffix; anything else would be a guess."""
        return self.models.get(model) or self.models.get(_DATE_SUFFIX.sub("", model))

    def cost(self, model: str, input: int, output: int, cache_read: int = 0, cache_write: int = 0) -> float | None:
        """The cost of these tokens in USD (`input` excludes the cached ones), or None if the price is unknown."""
        price = self.price(model)
        if price is None:
            return None
        return (
            input * price.input
            + output * price.output
            + cache_read * price.cache_read
            + cache_write * price.cache_write
        ) / 1_000_000

    def thinks_by_budget(self, model: str) -> bool:
        """Whether the model must be given a token budget for its thinking; newer models decide that themselves."""
        price = self.price(model)
        return price is not None and price.thinking == "budget"

    def context_window(self, model: str) -> int | None:
        price = self.price(model)
        return price.context_window if price else None
