"""Redaction of known secret values wherever a tool or an error repeats them, also in the usual encodings."""

import base64
import json
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

from domain.redaction import REDACTED

Model = TypeVar("Model", bound=BaseModel)
SHORTEST = 4  # characters; shorter values would match everywhere
LONG_LINE = 12  # a single line of a multi-line key is a secret too


class Redactor:
    """Replaces values in texts. Without values it changes nothing. Its repr shows none."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: list[str] = []
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        known = [value for value in values if len(value) >= SHORTEST]
        known += [line for value in known for line in value.splitlines() if len(line) >= LONG_LINE and line != value]
        # longest first, because one value may contain another
        self._forms = sorted(
            {*self._forms, *(form for value in known for form in _forms(value))}, key=len, reverse=True
        )

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text

    def json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.json(one) for name, one in value.items()}
        return [self.json(one) for one in value] if isinstance(value, list) else value

    def model(self, model: Model) -> Model:
        return type(model).model_validate(self.json(model.model_dump(mode="json"))) if self else model


def _forms(value: str) -> set[str]:
    data = value.encode()
    encoded = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()}
    quoted = {quote(value, safe=""), quote_plus(value), quote(value)}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return {value, *quoted, *escaped, *(one.rstrip("=") for one in encoded)}
