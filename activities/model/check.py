"""Whether a model can be called at all; checked when a worker starts, and before a subagent gets an id."""

import time
from dataclasses import replace

import anthropic
import httpx2

from activities.model.errors import BAD_KEY, ModelFailure, classify

FRESH_SECONDS = 60.0


class ModelCheck:
    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client.with_options(max_retries=0, timeout=5.0)
        self._good: dict[str, float] = {}

    async def problem(self, model: str) -> str | None:
        """Why calls to this model are certain to fail; None if they are not, or if that cannot be known now."""
        if time.monotonic() - self._good.get(model, -FRESH_SECONDS) < FRESH_SECONDS:
            return None
        try:
            await self._client.models.retrieve(model)
        except anthropic.NotFoundError:
            return f"The model {model!r} does not exist or is not available to this key."
        except (anthropic.AuthenticationError, anthropic.PermissionDeniedError):
            return "The model API does not accept the credentials."
        except anthropic.APIError:
            return None  # unreachable or overloaded: the session's own retries handle that
        self._good[model] = time.monotonic()
        return None

    async def trial(self, model: str) -> str | None:
        """Why a call to this model would fail now, and what to do about it; None if it would succeed."""
        try:
            await self._client.models.retrieve(model)
        except (anthropic.APIError, httpx2.TransportError) as error:
            return classify(error, model).message
        return None

    async def failure(self, error: BaseException, model: str) -> ModelFailure:
        """Classify a failed call. A refused key can be replaced, so the call waits for that."""
        failure = classify(error, model)
        if failure.type != BAD_KEY or failure.retryable or not await self._refuses_key(model):
            return failure
        return replace(failure, message=f"{failure.message} The task waits for it.", retryable=True, any_model=True)

    async def _refuses_key(self, model: str) -> bool:
        try:
            await self._client.models.retrieve(model)
        except anthropic.AuthenticationError:
            return True
        except (anthropic.APIError, httpx2.TransportError):
            return False
        return False
