"""Agent Skills, the open format of agentskills.io: a folder with a SKILL.md, whose front matter has a name and a
description and whose text is read when the skill is needed; other files may lie beside it."""

import re
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from domain import front_matter
from domain.frozen import Closed

SKILL_FILE = "SKILL.md"
LOAD_SKILL = "load_skill"  # the tool with which a model reads one
MOST_SKILLS = 50  # of an agent, or named from one workspace
MOST_FILES = 50  # beside the SKILL.md of an agent's own skill
MOST_FILE_CHARS = 64_000
MOST_AGENT_CHARS = 250_000  # of all skills of one agent
_MOST_HEADER = 4_000
_HEADER_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"

SkillName = Annotated[str, StringConstraints(pattern=_NAME, max_length=64)]
# relative and plain, so that it stays below the folder of its skill
SkillPath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}$", max_length=200)
]


class SkillError(ValueError):
    """A skill cannot be used; the message says why."""


class Skill(Closed):
    description: str = Field(min_length=1, max_length=1_024)
    text: str = Field(min_length=1, max_length=MOST_FILE_CHARS)
    files: dict[SkillPath, Annotated[str, Field(max_length=MOST_FILE_CHARS)]] = Field(
        default_factory=dict, max_length=MOST_FILES, exclude_if=lambda value: not value
    )

    @property
    def size(self) -> int:
        return len(self.description) + len(self.text) + sum(map(len, self.files.values()))


class _Header(BaseModel, strict=True):
    """What we read of the front matter; the format has more fields, and clients add theirs."""

    name: SkillName
    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_024)]


def is_skill_name(name: str) -> bool:
    return len(name) <= 64 and re.fullmatch(_NAME, name) is not None


def parse_skill(text: str, folder: str) -> Skill:
    """The skill of a SKILL.md in a folder of this name. Raises SkillError."""
    if not is_skill_name(folder):
        raise SkillError(f"{folder[:64]!r} is not a name of a skill (a-z, 0-9 and single hyphens, at most 64)")
    if len(text) > MOST_FILE_CHARS:
        raise SkillError(f"{SKILL_FILE} has more than {MOST_FILE_CHARS:,} characters; move parts to files beside it")
    end = _HEADER_END.search(text, 3)
    if end is None or end.start() > _MOST_HEADER:
        raise SkillError(
            f"{SKILL_FILE} must begin with at most {_MOST_HEADER:,} characters of YAML between lines of ---"
        )
    try:
        fields, body = front_matter.split(text)
        header = _Header.model_validate(fields)
    except front_matter.FrontMatterError as error:
        raise SkillError(str(error)[:300]) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise SkillError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if header.name != folder:
        raise SkillError(f"its name {header.name!r} differs from its folder {folder!r}")
    if not body.strip():
        raise SkillError("there is no text below the front matter")
    return Skill(description=" ".join(header.description.split()), text=body.strip())
