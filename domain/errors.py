"""Refusals and failures, by who has to react to them. Each docstring is the default sentence of its class.

ErrandError
├── Refusal                  the caller's mistake: an RFC 9457 problem
│   ├── NotFound             404
│   ├── Invalid              422  (with errors: field, code, allowed values)
│   ├── Conflict             409
│   ├── Gone                 410
│   ├── NotAllowed           403
│   └── TooMany              429  (with Retry-After)
└── Unavailable              503  a dependency is unreachable; try again
"""

from typing import Any


class ErrandError(Exception):
    """Something went wrong."""

    status = 500
    type = "internal"

    def __init__(self, detail: str | None = None, *, type: str | None = None, **extra: Any) -> None:
        self.detail = detail or (self.__doc__ or "").strip()
        self.type = type or self.type
        self.extra = extra
        super().__init__(self.detail)


class Refusal(ErrandError):
    """The request was refused and nothing was changed."""

    status = 400
    type = "bad-request"


class NotFound(Refusal):
    """There is nothing by that id."""

    status = 404
    type = "not-found"


class Invalid(Refusal):
    """The request is well-formed but not valid."""

    status = 422
    type = "validation"


class Conflict(Refusal):
    """The state does not allow this now."""

    status = 409
    type = "conflict"


class Gone(Refusal):
    """It was removed when it had been kept long enough."""

    status = 410
    type = "content-removed"


class NotAllowed(Refusal):
    """This key does not have the right for that."""

    status = 403
    type = "insufficient-scope"


class TooMany(Refusal):
    """Too many requests; try again later."""

    status = 429
    type = "rate-limited"


class Unavailable(ErrandError):
    """A part of the platform that this request needs is unreachable; try again shortly."""

    status = 503
    type = "dependency-unavailable"


class ForModel(Exception):
    """A call of a tool cannot be done; the text tells its model why."""
