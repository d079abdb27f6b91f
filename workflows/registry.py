"""The workflows of this platform: one list for workers and for replays."""

from workflows.conversation.workflow import Conversation
from workflows.notification_delivery import NotificationDelivery
from workflows.session.workflow import Session
from workflows.sweeper import Sweeper
from workflows.tick import Tick
from workflows.tool_discovery import ToolDiscovery

WORKFLOWS = [Session, Conversation, NotificationDelivery, Sweeper, Tick, ToolDiscovery]
