"""Shell commands as permission rules see them: one command, however it is spelled.

This is a guard rail, not a shell parser: a command can be computed while it runs. To make sure that something never
happens, use a rule that denies everything and allows only what is needed.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

_BETWEEN = re.compile(r"[;&|\n(){}`]|\$\(")
_NOTHING = re.compile(r"\\\n|[\"'\\]")  # what the shell removes before it runs a command
_BLANK = re.compile(r"\s+|\$\{IFS\}|\$IFS\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r"\d*[<>]+")
# these run the command that follows them, possibly after their own options
_RUNNERS = frozenset({"!", "do", "elif", "else", "if", "then", "until", "while", "builtin", "command", "eval", "exec"})
_RUNNERS |= {
    "chroot",
    "doas",
    "env",
    "ionice",
    "nice",
    "nohup",
    "script",
    "setsid",
    "stdbuf",
    "sudo",
    "time",
    "timeout",
}
_RUNNERS |= {"watch", "xargs", "sh", "bash", "dash", "zsh", "ksh", "busybox"}
_MOST_SPELLINGS = 40


class ShellCommand(str):
    """One command of a call, as it was written."""

    __slots__ = ()

    def is_written(self, pattern: str) -> bool:
        """Whether a pattern matches what is written, quotes and blanks aside: `git *` does not match
        `LD_PRELOAD=x git log` nor `./git log`."""
        return _any_match((self, folded(self)), (pattern, folded(pattern)))

    def is_meant(self, pattern: str) -> bool:
        """Whether a pattern matches any spelling of the command: `rm *` matches `A=b /bin/rm x`."""
        return _any_match((self, *spellings(self)), _patterns(pattern))


def commands_in(command: str) -> list[str]:
    """The whole command, and each command in it: rules must agree to all of them.

    Quotes do not protect from cutting: a harmless text may be taken for a command, but no command can hide in a text.
    """
    whole = _BLANK.sub(lambda found: found[0] if found[0].isspace() else " ", command.replace("\\\n", "")).strip()
    parts = [part.strip() for part in _BETWEEN.split(whole)]
    return [ShellCommand(text) for text in dict.fromkeys([command.strip(), whole, *(part for part in parts if part)])]


def folded(text: str) -> str:
    """The command without quotes, escapes and superfluous blanks."""
    return _BLANK.sub(" ", _NOTHING.sub("", text)).strip()


@lru_cache(maxsize=4_096)
def spellings(command: str) -> tuple[str, ...]:
    """The other spellings by which rules know a command: without its assignments, its redirections and the path of its
    program, and the command that a runner such as `sudo` starts."""
    found = [folded(command)]
    waiting = [found[0].split(" ")]
    while waiting and len(found) < _MOST_SPELLINGS:
        tokens = _bare(waiting.pop())
        if not tokens:
            continue
        program = tokens[0].rpartition("/")[2]
        found.append(" ".join([program, *tokens[1:]]))
        if program in _RUNNERS:  # we cannot know which tokens are its options, so any may begin the command
            waiting += [tokens[place:] for place in range(1, min(len(tokens), 8))]
    return tuple(dict.fromkeys(found))


def _bare(tokens: list[str]) -> list[str]:
    while tokens:
        redirection = _REDIRECTION.match(tokens[0])
        if redirection is not None:
            tokens = tokens[2 if redirection.end() == len(tokens[0]) else 1 :]  # `> file`: two tokens
        elif _ASSIGNMENT.match(tokens[0]):
            tokens = tokens[1:]
        else:
            break
    return tokens


@lru_cache(maxsize=4_096)
def _patterns(pattern: str) -> tuple[str, ...]:
    """The forms of a pattern to match with: `/usr/bin/rm *` matches `rm *` too, but `./*` does not match everything."""
    program, blank, rest = folded(pattern).partition(" ")
    name = program.rpartition("/")[2]
    bare = (f"{name}{blank}{rest}",) if name and not set("*?") & set(name) else ()
    return (pattern, folded(pattern), *bare)


def _any_match(texts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(matches(text, pattern) for text in texts for pattern in patterns)


def matches(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))  # file names have brackets; only * and ? are special
