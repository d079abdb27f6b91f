"""A module of a user's own tools, some of which cannot be used."""

from pydantic import BaseModel

from activities.tools.tool import Tool
from domain.sessions.session import Effect


def tool(name: str) -> Tool:
    return Tool(name=name, description="Does nothing.", input=BaseModel, effect=Effect.READ)


TOOLS = [tool("good_one"), tool("No Name"), print]
