"""Approval rules: a person who changes the arguments of a call stays within the rules that bind it."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.policy.rules import Rule, RuleVerdict, verdict
from domain.policy.subjects import subjects_of
from domain.policy.traits import ToolTraits


class ApprovalRules(BaseModel):
    """Kept with the request, because the rules of a line are those of several agents and of the task."""

    model_config = ConfigDict(frozen=True)

    tool: ToolTraits
    layers: list[list[Rule]]

    def verdict(self, arguments: Mapping[str, Any]) -> RuleVerdict:
        return verdict(self.layers, self.tool, subjects_of(self.tool.subject, arguments))
