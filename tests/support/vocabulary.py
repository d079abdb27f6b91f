"""Retired words: names and phrases of an earlier, private dialect that product, tests and documents no longer use."""

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
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
RETIRED_NAMES = frozenset(
    (
        *("AWAY", "Door", "Gate", "Later", "MailRoom", "Once", "Parts", "PartsDep", "Running", "Story", "Wake"),
        *("accepting", "declared", "story"),
    )
)
# removed classes of the product; a test may have a class of that name
PRODUCT_ONLY = frozenset(("Gate", "Later", "Once", "Parts", "Running", "Wake"))
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
# in a script of the console: a comment, a text, or a defined name
_SCRIPT = re.compile(
    r"(?P<prose>/\*.*?\*/|(?<!:)//[^\n]*|`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|\b(?:const|let|var|function\*?|class)\s+(?P<name>[\w$]+)",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class RetiredUse:
    path: str
    line: int
    text: str

    @property
    def package(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def retired_uses(root: Path) -> list[RetiredUse]:
    found: list[RetiredUse] = []
    for module in modules(root):
        found += _retired_names(module)
        found += _retired_prose(module)
    for file in sorted((root / "store").rglob("*.sql")):
        if _is_retired(file.stem):
            found.append(RetiredUse(str(file.relative_to(root)), 1, file.stem))
        if file.parent.name != "migrations":  # an applied migration is identified by its digest and cannot change
            found += _retired_in_sql(str(file.relative_to(root)), file.read_text())
    for file in sorted((root / "agents").rglob("*.md")):  # a prompt may tell a model something
        found += _retired_in_document(str(file.relative_to(root)), file.read_text(), (RETIRED_PHRASES,))
    for file in sorted((root / "tests").rglob("*.py")):
        if str(file.relative_to(root)) not in _EXEMPT:
            found += _retired_in_test(parsed(root, file))
    for file in sorted((root / "api").rglob("*.js")):
        found += _retired_in_script(str(file.relative_to(root)), file.read_text())
    for file in [*root.glob("*.md"), *root.glob("tests/*.md"), *sorted((root / "docs").rglob("*.md"))]:
        found += _retired_in_document(str(file.relative_to(root)), file.read_text())
    return found


def _retired_in_test(module: Module) -> Iterator[RetiredUse]:
    """Check names, comments and docstrings of a test; its texts are input of callers or models."""
    yield from (use for use in _retired_names(module) if use.text not in PRODUCT_ONLY)
    yield from _retired_prose(module, with_texts=False)
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and TEST_WITHOUT_SUBJECT.match(node.name):
            yield RetiredUse(module.path, node.lineno, node.name)


def _retired_in_script(path: str, text: str) -> Iterator[RetiredUse]:
    """Names, comments and texts of a script of the console."""
    for match in _SCRIPT.finditer(text):
        line = 1 + text.count("\n", 0, match.start())
        if match["name"] and _is_retired(match["name"]):
            yield RetiredUse(path, line, match["name"])
        patterns = [RETIRED_PHRASES, RETIRED_PROSE] if match[0].startswith("/") else [RETIRED_PHRASES]
        for pattern in patterns if match["prose"] else []:
            for use in pattern.finditer(match[0]):
                yield RetiredUse(path, line + match[0].count("\n", 0, use.start()), use[0])


def _retired_in_sql(path: str, text: str) -> Iterator[RetiredUse]:
    """The comments of a SQL file."""
    for number, line in enumerate(text.split("\n"), 1):
        comment = line.partition("--")[2]
        for pattern in (RETIRED_PHRASES, RETIRED_PROSE):
            for match in pattern.finditer(comment):
                yield RetiredUse(path, number, match[0])


def _retired_in_document(
    path: str, text: str, patterns: tuple[re.Pattern[str], ...] = (RETIRED_PHRASES, RETIRED_PROSE)
) -> Iterator[RetiredUse]:
    """The prose of a document. Code in it is an example: what a caller may type and what the platform answers."""
    prose = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    for pattern in patterns:
        for match in pattern.finditer(prose):
            yield RetiredUse(path, 1 + prose.count("\n", 0, match.start()), match[0])


def too_many(uses: list[RetiredUse], allowance: dict[str, int]) -> list[str]:
    """Uses beyond a package's allowance, and allowances that are no longer needed, so that the list shrinks."""
    counts = Counter(use.package for use in uses)
    over = {package for package, count in counts.items() if count > allowance.get(package, 0)}
    idle = [f"{package}: needs no allowance" for package in allowance if not counts[package]]
    return [str(use) for use in uses if use.package in over] + idle


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


def _retired_names(module: Module) -> Iterator[RetiredUse]:
    if _is_retired(module.name.rpartition(".")[2]):
        yield RetiredUse(module.path, 1, module.name)
    for node in module.nodes:
        if (name := _defined_name(node)) and _is_retired(name):
            yield RetiredUse(module.path, getattr(node, "lineno", 1), name)
        if isinstance(node, ast.arg) and node.arg == "parts" and node.annotation:
            annotation = ast.unparse(node.annotation)
            if annotation.startswith("Services"):
                yield RetiredUse(module.path, node.lineno, f"parts: {annotation}")


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


def _retired_prose(module: Module, *, with_texts: bool = True) -> Iterator[RetiredUse]:
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
                yield RetiredUse(module.path, line, match[0])
