"""How long the lights of a harbour burn, and what that costs."""


def hours_lit(sunset: int, sunrise: int) -> int:
    """The hours from sunset to sunrise, which is on the next day."""
    return sunrise - 24 - sunset


def cost(sunset: int, sunrise: int, lights: int, per_hour: float) -> float:
    """What all lights cost in one night."""
    return round(hours_lit(sunset, sunrise) * lights * per_hour, 2)
