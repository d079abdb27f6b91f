"""Commands under rules: a rule that denies covers every spelling, a rule that allows only the literal text."""

import time

import pytest

from activities.requests.approved_files import files_named
from domain.policy import rules as policy
from domain.policy.rules import Action, Rule, ToolTraits, commands_in


def verdict(command: str, *rules: tuple[str, str]) -> Action:
    layer = [Rule(permission="bash", pattern=pattern, action=Action(action)) for action, pattern in rules]
    return policy.verdict([layer], ToolTraits(name="bash"), commands_in(command)).action


RM = [
    "rm -rf x",
    "'rm' -rf x",
    '"r"m -rf x',
    "r\\m -rf x",
    "r\\\nm -rf x",
    "rm${IFS}-rf${IFS}x",
    "/bin/rm -rf x",
    "../../bin/rm -rf x",
    "A=b rm -rf x",
    "A=b C='d' /bin/rm -rf x",
    "</dev/null rm -rf x",
    "env A=b rm -rf x",
    "command rm -rf x",
    "sudo -u root rm -rf x",
    "nohup nice -n 5 rm -rf x",
    "echo y | xargs rm -rf x",
    "if true; then rm -rf x; fi",
    "sh -c 'rm -rf x'",
    'bash -c "A=b /bin/rm -rf x"',
    "eval rm -rf x",
    "echo $(rm -rf x)",
    "ls & rm -rf x",
    "ls\nrm -rf x",
    "echo `rm -rf x`",
    'echo "$(rm -rf x)"',
    "diff <(rm -rf x) z",
]


@pytest.mark.parametrize("command", RM)
def test_rule_that_tightens_knows_every_spelling(command: str) -> None:
    for pattern in ("rm *", "rm -rf *", "/bin/rm *", "'rm'  -rf *"):
        assert verdict(command, ("deny", pattern)) is Action.DENY and verdict(command, ("ask", pattern)) is Action.ASK


@pytest.mark.parametrize("command", ["rmdir x", "git rm-like x", "ls", "cat rm.txt", "FORM=1 ls", "./arm x"])
def test_rule_that_tightens_leaves_other_commands_alone(command: str) -> None:
    assert verdict(command, ("deny", "rm *")) is Action.ALLOW


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git log", True),
        ('git commit -m "a b"', True),
        ("./git log", False),
        ("LD_PRELOAD=./x.so git log", False),
        ("git log; ls", False),
        ("git log && git status", True),
    ],
)
def test_rule_that_allows_means_what_is_written(command: str, allowed: bool) -> None:
    assert (verdict(command, ("deny", "*"), ("allow", "git *")) is Action.ALLOW) is allowed


@pytest.mark.parametrize("pattern", ['git commit -m "*"', "/usr/bin/git *", "CI=1 npm test*", "echo  hi"])
def test_rule_that_allows_one_spelling_allows_it(pattern: str) -> None:
    assert verdict(pattern.replace("*", "x"), ("deny", "*"), ("allow", pattern)) is Action.ALLOW


def test_no_spelling_reaches_a_rule_that_is_less_strict() -> None:
    rules = (("deny", "*"), ("ask", "touch *"))
    assert verdict("touch  'x'", *rules) is Action.ASK
    assert verdict("LD_PRELOAD=./x touch x", *rules) is Action.DENY
    assert verdict("./touch x", *rules) is Action.DENY
    assert verdict("rm x", ("deny", "rm *"), ("ask", "/bin/rm *")) is Action.DENY


PATHS = ["deploy.sh", "sub/deploy.sh", "x.py", "pkg/mod.py", "pkg/__main__.py", "Makefile", "a b.sh", "other.txt"]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("sh deploy.sh", ["deploy.sh", "sub/deploy.sh"]),
        ("./deploy.sh now", ["deploy.sh", "sub/deploy.sh"]),
        ("/workspace/sub/deploy.sh", ["sub/deploy.sh"]),
        ("A=b 'python3' x.py", ["x.py"]),
        ("cat x.py | sh", ["x.py"]),
        ("sh *.py", ["x.py", "pkg/__main__.py", "pkg/mod.py"]),
        ("cd sub && python ../x.py", ["x.py"]),
        ("sh sub/../deploy.sh", ["deploy.sh", "sub/deploy.sh"]),
        ("sh $PWD/deploy.sh; ~/x.py; /proc/self/cwd/other.txt", ["deploy.sh", "other.txt", "x.py", "sub/deploy.sh"]),
        ("python pkg", ["pkg/__main__.py"]),
        ("python -m pkg.mod", ["pkg/mod.py"]),
        ("make -j4 all", ["Makefile"]),
    ],
)
def test_files_that_a_command_names(command: str, files: list[str]) -> None:
    assert files_named(command, PATHS) == files


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("sh run", ["deploy.sh", "run", "sub/deploy.sh"]),
        ("cd sub && sh up/run", ["deploy.sh", "run", "sub/deploy.sh", "sub/up"]),
        ("sh nowhere", ["nowhere"]),
    ],
)
def test_links_that_a_command_names_are_followed(command: str, files: list[str]) -> None:
    links = {"run": "./deploy.sh", "lib": "sub", "sub/up": "..", "round": "again", "again": "round", "nowhere": "gone"}
    assert files_named(command, PATHS, links) == files


def test_command_that_names_too_much_names_everything_and_takes_no_time() -> None:
    many = [f"d{place}/deploy.sh" for place in range(5_000)]
    links = {f"d{place}/a": "a/a" for place in range(1_000)}
    began = time.process_time()
    for command in ("sh a/x", "sh " + " ".join(f"x{place}*" for place in range(200)), "sh " + "y " * 20_000 + "z"):
        found = files_named(command, many, links)
    assert time.process_time() - began < 5 and found == []
    assert len(files_named("sh " + " ".join(f"x{place}" for place in range(10_000)), many, links)) == 6_000
