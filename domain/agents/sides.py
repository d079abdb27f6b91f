"""The two sides of a session's agent, as the session's loop needs them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from domain.agents.side import Side
from domain.sessions.session import SideName

if TYPE_CHECKING:
    from domain.agents.definition import AgentDefinition


class Sides(BaseModel):
    """Who takes the turns, which rules end them, and how many turns there may be. A plain agent, with a model on side
    A, people on side B and no rules, has no `Sides`."""

    model_config = ConfigDict(frozen=True)

    a: Side
    b: Side
    models: dict[SideName, list[str]]  # per side that is not human: the model, then its fallbacks
    max_session_turns: int | None = None
    # sides whose prompt starts subagents before the first model step
    immediate: list[SideName] = Field(default_factory=list, exclude_if=lambda sides: not sides)
    hooked: list[SideName] = Field(default_factory=list, exclude_if=lambda sides: not sides)  # those with hooks

    def of(self, name: SideName) -> Side:
        return self.a if name == "a" else self.b

    @property
    def first(self) -> SideName:
        return "b" if self.a.human else "a"

    def speaker(self, name: SideName) -> str | None:
        """The label of a side for watchers; None if it is the only side that is not human."""
        return self.of(name).label or f"side {name.upper()}" if self.dual else None

    @property
    def plain(self) -> bool:
        """Whether the side has no stop rules, so that it works like an agent without sides."""
        return self.b.human and self.a.model_copy(update={"prompt": None, "label": None}) == Side()

    @property
    def inline(self) -> bool:
        """Whether the agent can run as an inline line of another session: a model on side A, people on side B."""
        return self.b.human and not self.a.human and self.a.handler is None

    @property
    def dual(self) -> bool:
        return not (self.a.human or self.b.human)


def other_side(name: SideName) -> SideName:
    return "b" if name == "a" else "a"


def all_models(models: list[str], sides: Sides | None) -> list[str]:
    """Every model that a session may call."""
    return list(dict.fromkeys([*models, *(name for own in (sides.models if sides else {}).values() for name in own)]))


def session_sides(definition: "AgentDefinition", models: "Callable[[AgentDefinition], list[str]]") -> Sides | None:
    """The sides of a new session of this agent; `models` chooses the models of one side from its view of the
    definition. None if the agent uses the short form."""
    names: tuple[SideName, SideName] = ("a", "b")
    views = {name: definition.for_side(name) for name in names if not definition.side(name).human}
    immediate = [name for name, view in views.items() if any(tool.immediate for tool in view.subagent_tools)]
    hooked = [name for name, view in views.items() if view.hooks]
    if definition.side_a is None and definition.side_b is None and not immediate and not hooked:
        return None
    return Sides(
        a=definition.side("a"),
        b=definition.side("b"),
        models={name: models(view) for name, view in views.items()},
        max_session_turns=definition.max_session_turns,
        immediate=immediate,
        hooked=hooked,
    )
