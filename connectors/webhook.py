"""The generic connector: Standard Webhooks in both directions, signed with the same secret."""

import json

from pydantic import ValidationError

from connectors.connector import Outgoing, Received, SenderPorts, SignedRequest
from domain.channels import ConnectorSecrets, IncomingAnswer, IncomingMessage
from domain.errors import Invalid
from domain.notifications import signed_headers
from domain.signatures import check_standard_webhook


class WebhookConnector:
    def receive(self, request: SignedRequest, secrets: ConnectorSecrets) -> Received:
        """The body is one IncomingMessage, or an IncomingAnswer if it has a request_id. Without a message_id the
        webhook's own id identifies the message."""
        message_id = check_standard_webhook([secrets.signing], request.headers, request.body, request.now)
        try:
            body = json.loads(request.body)
            if not isinstance(body, dict):
                raise Invalid("The body is not a JSON object.")
            if "request_id" in body:
                return Received(answers=[IncomingAnswer.model_validate(body)])
            message = IncomingMessage.model_validate(body)
        except ValidationError as error:
            raise unreadable(error) from None
        except (ValueError, RecursionError):
            raise Invalid("The body is not JSON.") from None
        return Received([message.model_copy(update={"message_id": message.message_id or message_id})])

    async def send(self, outgoing: Outgoing, ports: SenderPorts) -> None:
        headers = signed_headers([outgoing.secrets.signing], outgoing.id, outgoing.body)
        await ports.post(outgoing.secrets.target, headers, outgoing.body)


def unreadable(error: ValidationError) -> Invalid:
    """The refusal of a body, with its faults by field; the values that were sent are never repeated."""
    found = [
        {"pointer": "".join(f"/{place}" for place in one["loc"]), "code": one["type"], "message": one["msg"]}
        for one in error.errors(include_input=False, include_url=False)
    ]
    return Invalid("The message does not fit.", errors=found[:20])
