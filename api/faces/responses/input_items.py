"""The input of a response as a list of items, page by page."""

import json

from api.faces.responses.errors import BadParameter
from api.faces.responses.objects import Shown
from api.faces.responses.view import FoundResponse
from domain.ids import derive_id
from domain.json_object import JsonObject


class ItemPage(Shown):
    object: str = "list"
    data: list[JsonObject]
    first_id: str
    last_id: str
    has_more: bool


def input_items(found: FoundResponse, part: int, *, after: str | None, limit: int, ascending: bool) -> ItemPage:
    listed = [_item(found.session.id, part, place, item) for place, item in enumerate(_given(found, part))]
    if not ascending:
        listed.reverse()
    begin = 0
    if after is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise BadParameter("after", "The response has no input item of this id.")
        begin = places[0] + 1
    page = listed[begin : begin + limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return ItemPage(data=page, first_id=first, last_id=last, has_more=len(listed) > begin + limit)


def _given(found: FoundResponse, part: int) -> list[JsonObject]:
    row = found.rows.get(part)
    given: str | list[JsonObject] = found.request(part).input
    if row is None or row.request == "{}":  # another face started it or sent the answers
        own = found.session.task.input if part == 1 else None
        given = own if isinstance(own, str) else json.dumps(own) if own is not None else []
    return given if isinstance(given, list) else [{"type": "message", "role": "user", "content": given}]


def _item(session_id: str, part: int, place: int, item: JsonObject) -> JsonObject:
    """An item in the form that clients expect: with an id, a type, and content in parts."""
    known = {"type": "message" if "role" in item else None, **item}
    prefix = {"message": "msg", "function_call_output": "fco"}.get(str(known["type"]), "in")
    # derived and not random, because `after` of the next page names it
    known.setdefault("id", f"{prefix}_{derive_id(session_id, 'input', part, place)}")
    known.setdefault("status", "completed")
    content = known.get("content")
    if isinstance(content, str):
        text: JsonObject = {"type": "input_text", "text": content}
        if known.get("role") == "assistant":
            text = {"type": "output_text", "text": content, "annotations": []}
        known["content"] = [text]
    return known
