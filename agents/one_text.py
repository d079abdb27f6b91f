"""One text for an agent of several files: its definition, with the prompts that its sides name."""

import re
from pathlib import Path

from agents import front_matter
from agents.loader import parse_prompt, read_text
from domain.agents.side import PROMPT_NAME_PATTERN
from domain.agents.spelling import snake_case


def one_text(file: Path) -> str:
    """The definition of a file. A prompt that a side names and that is not in the definition is read from the folder
    `prompts` beside it. If it is missing there too, the check of the whole reports it."""
    text = read_text(file)
    try:
        fields, body = front_matter.split(text)
    except front_matter.FrontMatterError:
        return text
    sides = [value for name, value in fields.items() if snake_case(name) in ("side_a", "side_b")]
    named = [name for side in sides if isinstance(side, dict) and isinstance(name := side.get("prompt"), str)]
    own = fields.get("prompts", {})
    if not isinstance(own, dict):
        return text
    usable = [name for name in named if re.fullmatch(PROMPT_NAME_PATTERN, name)]
    beside = {name: file.parent / "prompts" / f"{name}.md" for name in usable}
    found = {
        name: parse_prompt(read_text(path), f"prompts/{path.name}").model_dump(mode="json", exclude_defaults=True)
        for name, path in beside.items()
        if name not in own and path.is_file()
    }
    return front_matter.join({**fields, "prompts": {**own, **found}}, body) if found else text
