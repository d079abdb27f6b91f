"""E-mail, outgoing only: the user id of the channel is the recipient of the answer."""

from connectors.connector import Outgoing, Received, SenderPorts, SignedRequest
from domain.channels import ConnectorSecrets
from domain.errors import NotFound


class EmailConnector:
    def receive(self, request: SignedRequest, secrets: ConnectorSecrets) -> Received:
        raise NotFound("This connector receives nothing: pass mail on with POST /channels/….", type="not-found")

    async def send(self, outgoing: Outgoing, ports: SenderPorts) -> None:
        data = outgoing.reply.data
        await ports.mail(outgoing.id, data.user_id, data.thread or "Your message", data.text)
