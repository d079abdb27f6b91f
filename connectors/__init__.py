"""The connectors, one file each. To add one: a file, a line here and a member of `ConnectorKind`.

Read connector.py (the two methods), then webhook.py. The API receives with it, and an activity sends; it imports only
domain/.
"""

from connectors.connector import Connector
from connectors.email import EmailConnector
from connectors.slack import SlackConnector
from connectors.webhook import WebhookConnector
from domain.channels import ConnectorKind

CONNECTORS: dict[ConnectorKind, Connector] = {
    ConnectorKind.WEBHOOK: WebhookConnector(),
    ConnectorKind.SLACK: SlackConnector(),
    ConnectorKind.EMAIL: EmailConnector(),
}
