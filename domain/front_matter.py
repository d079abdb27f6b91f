"""Markdown with YAML front matter, parsed strictly: JSON types only, no repeated keys, no aliases."""

import re
from typing import Any

import yaml

from domain.json_object import JsonObject

MAX_VALUES = 20_000  # keys and values: what a body of JSON may have; each takes 15 microseconds
_FENCED = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)(.*)\Z", re.DOTALL | re.MULTILINE)
_LINE_SEPARATORS = re.compile("[\x85\u2028\u2029\ufeff]")


class FrontMatterError(ValueError):
    """The file does not begin with a valid block of YAML between two lines of ---."""


class _StrictLoader(yaml.SafeLoader):
    # Aliases let a small file expand into a huge one, and JSON has no dates.
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise yaml.YAMLError(f"there may be {MAX_VALUES:,} keys and values")
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        seen = set[str]()
        for key in keys:
            if not isinstance(key, str):
                raise yaml.YAMLError(f"the key {key!r} must be text")
            if key in seen:
                raise yaml.YAMLError(f"the key {key!r} is repeated")
            seen.add(key)
        return super().construct_mapping(node, deep)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Other styles write these unescaped, and the parser would read them as line ends.
        style = '"' if _LINE_SEPARATORS.search(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_PlainDumper.add_representer(str, _PlainDumper.represent_str)


def load_yaml(text: str) -> JsonObject:
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FrontMatterError(f"not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise FrontMatterError("not valid: a block of `field: value` lines is expected")
    return data


def split(text: str) -> tuple[JsonObject, str]:
    """The fields, and the exact text after them without one leading blank line and the last line end."""
    match = _FENCED.match(text)
    if match is None:
        raise FrontMatterError("the file must begin with a block of YAML between two lines of ---")
    body = re.sub(r"\A\r?\n", "", match[2])
    return load_yaml(match[1]), re.sub(r"\r?\n\Z", "", body)


def join(fields: JsonObject, body: str) -> str:
    header = yaml.dump(fields, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{header}---\n\n{body}\n"
