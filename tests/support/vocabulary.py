"""Retired words: names and phrases of an earlier, private dialect that product, tests and documents no longer use."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import re2

from tests.support.layering import Module, modules, parsed

# forbidden as a part of any identifier: `wish`, `request_words`, `ApprovalWords`, `_tell`
RETIRED_PARTS = frozenset(
    (
        *("deed", "deeds", "door", "doors", "hear", "heard", "hears", "stands", "tell", "telling", "tells", "told"),
        *("whoever", "wish", "wishes", "words"),
    )
)
# forbidden as adjacent parts of any identifier
RETIRED_PAIRS = frozenset((("at", "work"), ("goes", "on")))
# forbidden as a whole identifier or a module's name
PRODUCT_ONLY = frozenset(("Gate", "Later", "Once", "Parts", "Running", "Wake"))  # a test may have such a class
RETIRED_NAMES = PRODUCT_ONLY | {"AWAY", "Door", "MailRoom", "PartsDep", "Story", "accepting", "declared", "story"}
# the name of a test needs a subject: `test_it_is_sent` is not clear in a report
TEST_WITHOUT_SUBJECT = re.compile(r"test_(?:it|its|nobody|that|they|this|what|whatever|who|whoever)(?:_|$)")
# this check and its tests contain the words that they search for
_EXEMPT = frozenset(("tests/support/vocabulary.py", "tests/unit/test_house_rules.py"))
# forbidden in docstrings, comments and texts
RETIRED_PHRASES = re.compile(
    r"\b(?:a word of|all else|amid|anew|as ever|at work|by (?:itself|themselves)|comes? to|doors?|for (?:ever|good)"
    r"|giv(?:es|en) back|(?:go(?:es|ing|ne)?|went) on|heard|hears?|h[eo]lds? up|how-manieth|in its turn"
    r"|(?:is|are|was|were) (?:away|given up)|likewise|on the spot|(?:sends?|sent) off|speaks? against|stands?(?!-)"
    r"|stood|tak(?:es?|en) back|what be(?:comes|came) of|whoever|wish(?:es)?|without a word)\b"
    r"|(?:[a-z]['’]s|\b(?:first|its|last|own|their)) words\b"
    # `a session of its own`: its own session, or a separate one
    r"|\b(?:activit(?:y|ies)|(?:block|conversation|database|network|process|session|stack|thread|workflow)(?:e?s)?)"
    r" of (?:its|our|their) own(?=[^\w\s]|\s*$|\s+(?:and|as|because|in|instead|so|that|to|which|with)\b)",
    re.IGNORECASE | re.MULTILINE,
)
# forbidden in docstrings and comments only: a text may address its reader
RETIRED_PROSE = re.compile(r"\b(?:deeds?|tells?|told)\b", re.IGNORECASE)
# finds at least what the two find, many times faster: re2 has no lookaround
_WITHOUT_LOOKAHEADS = RETIRED_PHRASES.pattern.replace("(?!-)", "").partition("(?=")[0]
_ANY_PROSE = re2.compile(f"(?i){_WITHOUT_LOOKAHEADS}|{RETIRED_PROSE.pattern}")

# since Python 3.12 the text of an f-string is a separate token
_TEXT_TOKENS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_COMMENT = {".sql": re.compile(r"--.*"), ".js": re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def retired_uses(root: Path) -> list[str]:
    found: list[str] = []
    for module in modules(root):
        found += [*_retired_names(module), *_retired_prose(module)]
    for file in sorted((root / "tests").rglob("*.py")):
        if str(file.relative_to(root)) not in _EXEMPT:
            module = parsed(root, file)
            # texts of a test are input of callers or models
            found += [use for use in _retired_names(module) if use.split()[-1] not in PRODUCT_ONLY]
            found += _retired_prose(module, with_texts=False)
    # an applied migration is identified by its digest and cannot change
    scripts = [*(root / "store/functions").rglob("*.sql"), *(root / "api").rglob("*.js")]
    documents = [*root.glob("*.md"), *root.glob("tests/*.md"), *(root / "docs").rglob("*.md")]
    for file in sorted([*scripts, *documents, *(root / "agents").rglob("*.md")]):
        text = file.read_text()
        comment = _COMMENT.get(file.suffix)
        # code in a document is an example: what a caller may type and what the platform answers
        prose = "\n".join(comment.findall(text)) if comment else _CODE.sub("", text)
        patterns = [RETIRED_PHRASES] if file.is_relative_to(root / "agents") else [RETIRED_PHRASES, RETIRED_PROSE]
        found += [f"{file.relative_to(root)}: {use[0]}" for pattern in patterns for use in pattern.finditer(prose)]
    return found


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Class names that exist more than once in the product, with the files.

    The client is a separate package: its classes describe the same things from outside, and have the same names.
    """
    files: dict[str, list[str]] = {}
    for module in (module for module in modules(root) if not module.path.startswith("client/")):
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(module.path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


@functools.cache
def _is_retired(name: str) -> bool:
    parts = [part.lower() for part in _WORD.findall(name)]
    pairs = zip(parts, parts[1:], strict=False)
    return (
        name.strip("_") in RETIRED_NAMES or not RETIRED_PARTS.isdisjoint(parts) or not RETIRED_PAIRS.isdisjoint(pairs)
    )


def _retired_names(module: Module) -> Iterator[str]:
    if _is_retired(module.name.rpartition(".")[2]):
        yield f"{module.path}:1: {module.name}"
    for node in module.nodes:
        name = _defined_name(node) or ""
        if _is_retired(name) or TEST_WITHOUT_SUBJECT.match(name):
            yield f"{module.path}:{getattr(node, 'lineno', 1)}: {name}"


def _defined_name(node: ast.AST) -> str | None:
    """The name that a node defines; where a name is only used, its definition is reported instead."""
    if isinstance(node, ast.Name | ast.Attribute):
        stored = isinstance(node.ctx, ast.Store)
        return (node.id if isinstance(node, ast.Name) else node.attr) if stored else None
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    return node.asname if isinstance(node, ast.alias) else None


def _retired_prose(module: Module, *, with_texts: bool = True) -> Iterator[str]:
    if not _ANY_PROSE.search(module.text):
        return  # searching the source is much faster than tokenizing it
    docstrings = {
        node.value.lineno
        for node in module.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type != tokenize.COMMENT and token.type not in _TEXT_TOKENS:
            continue
        prose = token.type == tokenize.COMMENT or token.start[0] in docstrings
        if not prose and not with_texts:
            continue
        patterns = [RETIRED_PHRASES, RETIRED_PROSE] if prose else [RETIRED_PHRASES]
        for pattern in patterns:
            for match in pattern.finditer(token.string):
                line = token.start[0] + token.string.count("\n", 0, match.start())
                yield f"{module.path}:{line}: {match[0]}"
