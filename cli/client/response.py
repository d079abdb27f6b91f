"""The base of all response models of the command line, which read only the fields that it prints."""

from typing import Any, NoReturn, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from cli.errors import Refused

Model = TypeVar("Model", bound=BaseModel)


class Answer(dict[str, Any]):
    """An object in a response. Another program may listen there, or an API of another version: what is missing is no
    fault of the command that reads it."""

    def __missing__(self, name: str) -> NoReturn:
        raise _unknown(f"{name!r} is missing")


def decoded(response: httpx2.Response) -> Answer:
    try:
        answer = response.json(object_hook=Answer)
    # a deeply nested answer exhausts the parser's stack; only another program would send one
    except (ValueError, RecursionError):
        raise _unknown("its answer is no JSON") from None
    if not isinstance(answer, Answer) or not isinstance(answer.get("items", []), list):
        raise _unknown("its answer has another form")
    return answer


def _unknown(reason: str) -> Refused:
    return Refused(f"the server answers, but not as this version of Errand does ({reason})")


def parse(model: type[Model], answer: Any) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise _unknown(f"{field}: {first['msg']}") from None


class ResponseModel(BaseModel):
    model_config = ConfigDict(frozen=True)
