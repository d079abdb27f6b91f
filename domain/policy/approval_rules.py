"""Approval rules: a person who changes the arguments of a call must stay within the rules that bind the call."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.policy.rules import Rule, RuleVerdict, verdict
from domain.policy.subjects import subjects_of
from domain.policy.traits import ToolTraits


class ApprovalRules(BaseModel):
    """The rules of one call. They are stored with the request, because they come from several agents and from the
    task."""

    model_config = ConfigDict(frozen=True)

    tool: ToolTraits
    layers: list[list[Rule]]

    def verdict(self, arguments: Mapping[str, Any]) -> RuleVerdict:
        return verdict(self.layers, self.tool, subjects_of(self.tool.subject, arguments))
