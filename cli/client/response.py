"""The base of all response models of the command line, which read only the fields that it prints."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.errors import Refused

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], answer: Any) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise Refused(f"the server sent a response that cannot be read ({field}: {first['msg']})") from None


class ResponseModel(BaseModel):
    model_config = ConfigDict(frozen=True)
