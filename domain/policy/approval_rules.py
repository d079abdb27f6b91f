"""The gate before a call that people approve: whoever changes its arguments stays within the rules that bind it."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from domain.policy.rules import Rule, RuleVerdict, verdict
from domain.policy.subjects import Subject, subjects_of


class ApprovalRules(BaseModel):
    """Kept with the request, because the rules of a line are those of several agents and of the task."""

    model_config = ConfigDict(frozen=True)

    subject: Subject | None = None
    layers: list[list[Rule]]

    def verdict(self, tool: str, arguments: Mapping[str, Any]) -> RuleVerdict:
        return verdict(self.layers, tool, subjects_of(self.subject, arguments))
