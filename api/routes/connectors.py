"""/connectors: the services that reach agents. Changes need the right supervise."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.http.auth import Call, Reader, needs
from api.http.body import accepts_json, json_body
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from api.schemas.channels import ConnectorBody, ConnectorPage, ConnectorRecord, CreatedConnector
from api.schemas.subscriptions import check_target
from api.submission import rules
from connectors import CONNECTORS
from domain.channels import CONNECTOR_NAME, ConnectorConfig, ConnectorKind, ConnectorRules, ConnectorSecrets
from domain.errors import Conflict, Invalid, NotFound
from domain.notifications import ChannelName, new_secret, shown_target
from store import connectors
from store.connectors import Hook
from store.keys import Right

router = APIRouter(tags=["channels"], dependencies=[Depends(accepts_json)])

Supervisor = Annotated[Call, needs(Right.SUPERVISE)]
MOST = 100  # per tenant
_EXAMPLE = {"kind": "webhook", "agent": "assistant", "target": "https://chat.example.org/errand"}
_NAME = re.compile(CONNECTOR_NAME)


@router.put(
    "/connectors/{connector}",
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(ConnectorBody), "example": _EXAMPLE}}),
    summary="Make a connector, or change it",
)
async def put_connector(
    call: Supervisor, connector: str, body: Annotated[ConnectorBody, json_body(ConnectorBody)]
) -> CreatedConnector:
    """Omitted secrets stay as they are."""
    if not _NAME.fullmatch(connector):
        raise _invalid("/connector", "string_pattern_mismatch", f"a name is {CONNECTOR_NAME}")
    await rules.agent(call, body.agent)
    known = await connectors.find(call.pool, call.tenant, connector, call.services.keys)
    if known is not None and known.connector.kind is not body.kind:
        raise Conflict("The connector has another kind; remove it first.")
    if known is None and len(await connectors.listing(call.pool, call.tenant)) >= MOST:
        raise Conflict(f"There may be at most {MOST} connectors.")
    _check(call, body)
    secrets, shown = _secrets(body, known)
    given = ConnectorRules(
        kind=body.kind,
        agent=body.agent,
        # only the host: the address may contain a token, and is stored among the secrets
        target=shown_target(ChannelName.WEBHOOK, body.target) if body.target else "",
        debounce_ms=body.debounce_ms,
        merge=body.merge,
    )
    by, keys = call.caller.created_by, call.services.keys
    made = await connectors.put(call.pool, call.tenant, connector, given, secrets, by, keys)
    return CreatedConnector(**_record(made).model_dump(), secret=shown)


@router.get("/connectors", responses=problems(), summary="List the connectors")
async def list_connectors(call: Reader) -> ConnectorPage:
    return ConnectorPage(items=[_record(one) for one in await connectors.listing(call.pool, call.tenant)])


@router.get("/connectors/{connector}", responses=problems(404), summary="Show a connector")
async def show_connector(call: Reader, connector: str) -> ConnectorRecord:
    return _record((await connector_of(call, connector)).connector)


@router.delete("/connectors/{connector}", status_code=204, responses=problems(403, 404), summary="Remove a connector")
async def remove_connector(call: Supervisor, connector: str) -> Response:
    """Its conversations stay; undelivered answers end as failed."""
    await connector_of(call, connector)
    await connectors.remove(call.pool, call.tenant, connector, call.caller.created_by)
    return Response(status_code=204)


async def connector_of(call: Call, name: str) -> Hook:
    found = None
    if _NAME.fullmatch(name):
        found = await connectors.find(call.pool, call.tenant, name, call.services.keys)
    if found is None:
        raise NotFound("There is no such connector.")
    return found


def _check(call: Call, body: ConnectorBody) -> None:
    if body.kind not in CONNECTORS:
        raise _invalid("/kind", "not_available", "there is no such connector here")
    if body.kind is ConnectorKind.EMAIL and not call.settings.smtp_host:
        raise _invalid("/kind", "not_available", "no mail server is set")
    if body.kind is not ConnectorKind.WEBHOOK and body.target:
        raise _invalid(
            "/target",
            "excluded",
            "only a webhook has one: Slack is where the operator says, and e-mail goes to the user id of the channel",
        )
    if body.target:
        check_target(ChannelName.WEBHOOK, body.target, call.settings)
    if body.kind is not ConnectorKind.SLACK and (body.signing_secret or body.token):
        raise _invalid("/signing_secret", "excluded", "only Slack has its own secrets")


def _secrets(body: ConnectorBody, known: Hook | None) -> tuple[ConnectorSecrets, str | None]:
    """The secrets to store, and the one to show."""
    before = known.secrets if known else ConnectorSecrets()
    if body.kind is ConnectorKind.WEBHOOK:
        # kept on a change, because the service at the other end signs with it
        made = ConnectorSecrets(target=body.target, signing=before.signing or new_secret())
        return made, made.signing if known is None else None
    given = ConnectorSecrets(signing=body.signing_secret or before.signing, token=body.token or before.token)
    if body.kind is ConnectorKind.SLACK and not (given.signing and given.token):
        raise _invalid("/signing_secret", "missing", "Slack needs its signing secret and a bot token")
    return given, None


def _record(one: ConnectorConfig) -> ConnectorRecord:
    return ConnectorRecord(**one.model_dump(), hook=f"/hooks/{one.id}")


def _invalid(pointer: str, code: str, message: str) -> Invalid:
    return Invalid("The connector is not valid.", errors=[finding(pointer, code, message)])
