"""/codec: a codec server that decrypts our payloads for Temporal's Web UI and command line."""

import json

from fastapi import APIRouter, Request, Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payloads

from api.http import body
from api.http.auth import Admin, Call, services_of
from api.openapi import BODY, problems, request_body
from domain.errors import Conflict, Invalid
from domain.json_object import JsonObject
from domain.sealing import SealingError
from workflows.codec import EncryptingCodec

router = APIRouter(prefix="/codec", tags=["operations"])

_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"payloads": {"type": "array", "items": {"type": "object"}}},
    "example": {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "ImhpIg=="}]},
}
_ROUTE: JsonObject = {
    "response_class": Response,
    "responses": {**problems(409, *BODY), 200: {"content": {"application/json": {"schema": _SCHEMA}}}},
    "openapi_extra": request_body({"application/json": {"schema": _SCHEMA}}),
}


@router.post("/decode", summary="Decrypt payloads of Temporal's history", **_ROUTE)
async def decode_payloads(request: Request, call: Admin) -> Response:
    payloads = await _payloads(request, call)
    try:
        found = await EncryptingCodec(call.services.keys, encrypts=False).decode(payloads.payloads)
    except SealingError as error:
        raise Invalid(f"These payloads cannot be decrypted: {error}.") from None
    return _answer(request, Payloads(payloads=found))


@router.post("/encode", summary="Encrypt payloads as the platform does", **_ROUTE)
async def encode_payloads(request: Request, call: Admin) -> Response:
    payloads = await _payloads(request, call)
    if not call.services.keys:
        raise Conflict("There is no key: set ERRAND_SECRET_KEYS.", type="no-secret-key")
    return _answer(
        request, Payloads(payloads=await EncryptingCodec(call.services.keys, encrypts=True).encode(payloads.payloads))
    )


@router.options("/decode", include_in_schema=False)
@router.options("/encode", include_in_schema=False)
async def preflight(request: Request) -> Response:
    return Response(status_code=204, headers=_shared(request))


async def _payloads(request: Request, call: Call) -> Payloads:
    value, _ = await body.read_json(request, call.settings.max_body_bytes)
    try:
        return ParseDict(value, Payloads())
    # the parser raises the last two for JSON of an unexpected shape
    except (ParseError, TypeError, AttributeError):
        raise Invalid("The body is not a list of payloads.") from None


def _answer(request: Request, payloads: Payloads) -> Response:
    content = json.dumps(MessageToDict(payloads))
    return Response(content, headers=_shared(request), media_type="application/json")


def _shared(request: Request) -> dict[str, str]:
    """CORS headers for the pages of a configured Web UI; the browser refuses all others."""
    origin = request.headers.get("origin")
    if origin is None or origin not in services_of(request).settings.temporal_ui_origins:
        # also without the other headers: a cache must not give this response to a page that is allowed
        return {"Vary": "Origin"}
    return {
        "Vary": "Origin",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "authorization, content-type, x-namespace",
        "Access-Control-Max-Age": "600",
    }
