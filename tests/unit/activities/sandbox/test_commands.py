"""Which commands have network access, for every combination of settings."""

import pytest

from activities.egress import Guard
from activities.sandbox import Commands, Refusing
from activities.tools.registry import TOOLS
from domain.agents.definition import AgentDefinition
from domain.policy.rules import BOUND_KINDS, Action, Rule, Subject, SubjectKind, ToolTraits
from domain.sessions.session import SandboxMode

SANDBOX = Refusing("none", "none")
CRAWL = ToolTraits(name="crawl", subject=Subject(kind=SubjectKind.HOST, fields=("url",)))  # a user's own tool


def agent(network: bool, hosts: list[str] | None = None) -> AgentDefinition:
    return AgentDefinition(name="a", description="a", prompt="a", network=network, network_hosts=hosts)


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("definition", [False, True])
@pytest.mark.parametrize("mode", [None, *SandboxMode])
def test_operator_and_definition_enable_a_network_and_a_task_can_only_disable_it(
    operator: bool, definition: bool, mode: SandboxMode | None
) -> None:
    commands = Commands(SANDBOX, guard=Guard() if operator else None)
    expected = operator and definition and mode is not SandboxMode.ISOLATED
    assert commands.has_network(agent(definition), mode) is expected
    assert (commands.network(agent(definition), mode, []) is not None) is expected


@pytest.mark.parametrize(
    ("hosts", "layers", "host", "permitted"),
    [
        (None, [], "a.test", True),
        (["a.test"], [], "a.test", True),
        (["*.test"], [], "a.test", True),
        (["b.test"], [], "a.test", False),
        ([], [], "a.test", False),
        (None, [[("fetch_url", "*", "deny")]], "a.test", False),
        (None, [[("fetch_url", "*", "ask")]], "a.test", False),
        (None, [[("fetch_url", "*", "deny"), ("fetch_url", "a.test", "allow")]], "a.test", True),
        (None, [[("fetch_url", "*", "deny"), ("fetch_url", "a.test", "allow")]], "b.test", False),
        (None, [[("fetch_*", "*", "deny")]], "a.test", False),
        (None, [[("*", "*", "deny"), ("bash", "*", "allow")]], "a.test", True),
        (None, [[], [("fetch_url", "a.test", "deny")]], "a.test", False),
        (None, [[("crawl", "a.test", "deny")]], "a.test", False),
        (None, [[("crawl", "a.test", "deny")]], "b.test", True),
        (None, [[("fetch_url", "a.test", "deny"), ("crawl", "*", "allow")]], "a.test", False),
        (None, [[(BOUND_KINDS[SubjectKind.HOST], "*", "deny")]], "a.test", False),
        (None, [[("read_file", "*", "deny")]], "a.test", True),
    ],
)
def test_hosts_of_the_definition_and_rules_for_tools_used_on_hosts_bind_commands(
    hosts: list[str] | None, layers: list[list[tuple[str, str, str]]], host: str, permitted: bool
) -> None:
    rules = [
        [Rule(permission=permission, pattern=pattern, action=Action(action)) for permission, pattern, action in layer]
        for layer in layers
    ]
    network = Commands(SANDBOX, guard=Guard(), tools=TOOLS | {"crawl": CRAWL}).network(agent(True, hosts), None, rules)
    assert network is not None
    assert network.permitted(host) is permitted


def test_a_boundary_of_hosts_binds_commands_also_where_no_tool_is_used_on_hosts() -> None:
    bound = [[Rule(permission=BOUND_KINDS[SubjectKind.HOST], pattern="*", action=Action.DENY)]]
    network = Commands(SANDBOX, guard=Guard()).network(agent(True), None, bound)
    assert network is not None
    assert not network.permitted("a.test")
