"""Cron expressions of five fields: checked here, computed by Temporal."""

import re
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:(\*)|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]{1,2}))?")


class CronError(ValueError):
    """The expression is not valid; the message says what to change."""


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0  # the value of the first name

    def values(self, text: str) -> frozenset[int]:
        found: set[int] = set()
        for part in text.upper().split(","):
            match = _PART.fullmatch(part)
            if match is None or (match[4] and match[2] and not match[3]):
                raise CronError(f"{self.name}: use *, a value, a range a-b, a step */n or a-b/n, or a list of those")
            low, high = (
                (self.low, self.high) if match[1] else (self._value(match[2]), self._value(match[3] or match[2]))
            )
            step = int(match[4] or 1)
            if low > high or step == 0:
                raise CronError(f"{self.name}: a range runs from the lower value to the higher, a step is at least 1")
            found |= set(range(low, high + 1, step))
        return frozenset(found)

    def _value(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.first
        if not text.isdecimal() or not self.low <= int(text) <= self.high:
            raise CronError(f"{self.name}: must be between {self.low} and {self.high}")
        return int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 7, _DAYS),
)


def check_cron(text: str) -> None:
    """Raise CronError if the text is not a cron expression of five fields, or never comes due."""
    fields = _split(text)
    _, _, days, months, _ = (field.values(given) for field, given in zip(_FIELDS, fields, strict=True))
    if fields[4] == "*" and min(days) > max(_MONTH_LENGTHS[month - 1] for month in months):
        raise CronError("day of month: no month of the expression has this day")


def per_day(text: str) -> int:
    """The most often that it can come due in one day."""
    minutes, hours = (field.values(given) for field, given in zip(_FIELDS[:2], _split(text)[:2], strict=True))
    return len(minutes) * len(hours)


def expressions(text: str) -> list[str]:
    """The expressions for Temporal. By cron's rule a day matches if its day of the month or its day of the week does.
    Temporal requires both, so an expression that restricts both becomes two."""
    minute, hour, day, month, weekday = _split(text)
    if day.startswith("*") or weekday.startswith("*"):
        return [" ".join((minute, hour, day, month, weekday))]
    return [f"{minute} {hour} {day} {month} *", f"{minute} {hour} * {month} {weekday}"]


def _split(text: str) -> list[str]:
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise CronError("five fields are needed: minute, hour, day of month, month, day of week")
    return fields
