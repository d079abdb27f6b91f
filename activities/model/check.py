"""Whether a model can be called at all: asked before a subagent gets an id, so that none is born dead."""

import time

import anthropic

FRESH_SECONDS = 60.0


class ModelCheck:
    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client.with_options(max_retries=0, timeout=5.0)
        self._good: dict[str, float] = {}

    async def problem(self, model: str) -> str | None:
        """Why calls to this model are sure to fail; None if they are not, or if that cannot be known now."""
        if time.monotonic() - self._good.get(model, -FRESH_SECONDS) < FRESH_SECONDS:
            return None
        try:
            await self._client.models.retrieve(model)
        except anthropic.NotFoundError:
            return f"The model {model!r} does not exist or is not available to this key."
        except (anthropic.AuthenticationError, anthropic.PermissionDeniedError):
            return "The model API does not accept the credentials."
        except anthropic.APIError:
            return None  # away or overloaded: the session's own retries deal with that
        self._good[model] = time.monotonic()
        return None
