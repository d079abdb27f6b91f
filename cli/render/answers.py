"""A response as a command prints it: as JSON in the form in which the server sent it, or read with its model for
people."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from cli.api import Api, parse, segment
from cli.errors import NotFoundError
from cli.render.output import PROGRAM, emit, note, table

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)


class Listing(Protocol[Item]):
    @property
    def items(self) -> Sequence[Item]: ...


def print_answer(answer: Any, as_json: bool, model: type[T], show: Callable[[T], object]) -> None:
    emit(answer) if as_json else show(parse(model, answer))


def print_done(answer: Any, as_json: bool, said: str) -> None:
    """What a command has done: the answer as JSON, or a remark."""
    emit(answer) if as_json else note(said)


def print_list(
    answer: Any,
    as_json: bool,
    model: type[Listing[T]],
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    empty: str = "",
    more: str = "",
) -> None:
    """`more`: the command that prints the next page, without its cursor."""
    if as_json:
        emit(answer)
        return
    found = parse(model, answer).items
    if not found and empty:
        note(empty)
        return
    table(columns, [row(one) for one in found])
    if more and answer["next_cursor"]:
        note(f"more: {PROGRAM} {more} --cursor {answer['next_cursor']}")


def find_named(api: Api, path: str, name: str, page: type[Listing[T]], model: type[T]) -> T:
    """The newest entry of a list with this name, or the one with this id."""
    if named := parse(page, api.get(path, name=name)).items:
        return named[0]
    try:
        return parse(model, api.get(f"{path}/{segment(name)}"))
    except NotFoundError:
        raise NotFoundError(f"there is no {path.strip('/').removesuffix('s')} {name}") from None
