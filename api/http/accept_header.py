"""Content negotiation: the Accept header against the media types that a route offers."""

import re

from fastapi import Request

from api.http.problems import Unreadable

_WEIGHT = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


def chosen(request: Request, *offers: str) -> str:
    """The offer that the caller prefers, or the first if it has no preference. 406 if it accepts none of them."""
    header = request.headers.get("accept", "").strip() or "*/*"
    ranges = [_range(part) for part in header.split(",") if part.strip()]
    weighed = [(_weight(ranges, offer), offer) for offer in offers]
    best = max(weight for weight, _ in weighed)
    if best <= 0:
        raise Unreadable(
            406, "not-acceptable", "The response is available in other media types only.", allowed=list(offers)
        )
    return next(offer for weight, offer in weighed if weight == best)


async def accepts_json(request: Request) -> None:
    chosen(request, "application/json")


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    weight = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            # an invalid weight counts as zero, so that such a range never wins by accident
            weight = float(parameter[2:]) if _WEIGHT.fullmatch(parameter[2:]) else 0.0
    return kind, weight


def _weight(ranges: list[tuple[str, float]], offer: str) -> float:
    """The most specific range that matches decides."""
    for wanted in (offer, offer.split("/")[0] + "/*", "*/*"):
        weights = [weight for kind, weight in ranges if kind == wanted]
        if weights:
            return max(weights)
    return 0.0
