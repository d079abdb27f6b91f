"""Rules: the last match in a list decides, no list weakens another, a boundary allows only what it names; and addresses
that no rule allows."""

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.tools.registry import TOOLS
from domain.policy.addresses import public
from domain.policy.rules import (
    DELEGATION,
    Action,
    PlatformToolRule,
    Rule,
    Subject,
    SubjectKind,
    ToolTraits,
    decide,
    find_barring_rule,
    host_permitted,
    is_possible,
    rules_about,
    still_asks,
    tools_of,
    verdict,
)
from domain.task import Boundary

STRICTNESS = [Action.ALLOW, Action.ASK, Action.DENY]
OWN = {
    tool.name: tool
    for tool in (
        ToolTraits(
            name="own_files", subject=Subject(kind=SubjectKind.PATH, fields=("a",)), touches=(SubjectKind.PATH,)
        ),
        ToolTraits(
            name="own_hosts", subject=Subject(kind=SubjectKind.HOST, fields=("a",)), touches=(SubjectKind.HOST,)
        ),
        ToolTraits(name="own_upload", subject=Subject(kind=SubjectKind.PATH, fields=("a",))),
        ToolTraits(name="own_order", subject=Subject(fields=("a",)), touches=()),
        ToolTraits(name="own_silent", subject=Subject(fields=("a",))),
        ToolTraits(name="own_console", subject=Subject(kind=SubjectKind.COMMAND, fields=("a",))),
    )
}
KNOWN: dict[str, ToolTraits] = {**TOOLS, **OWN}
NAMES = st.sampled_from(["bash", "read_file", "write_file", "fetch_url", "task", *OWN])
SUBJECTS = st.sampled_from(["", "a", "a/b", "rm -rf x", "echo x", "*", "example.org"])
PATTERNS = st.sampled_from(["*", "a", "a/*", "rm *", "*x*", "example.*", "?"])
RULES = st.lists(
    st.builds(
        Rule, permission=st.one_of(NAMES, st.sampled_from(["*", "*_file", "delegation"])), pattern=PATTERNS,
        action=st.sampled_from(Action),
    ),
    max_size=6,
)  # fmt: skip
LAYERS = st.lists(RULES, max_size=4)


@given(RULES, NAMES, SUBJECTS)
def test_the_last_match_decides(rules: list[Rule], tool: str, subject: str) -> None:
    names = [tool, *(["delegation"] if KNOWN[tool].starts else [])]
    matching = [
        rule.action
        for rule in rules
        if any(fnmatchcase(name, rule.permission) for name in names) and fnmatchcase(subject, rule.pattern)
    ]
    assert decide(rules, KNOWN[tool], subject) is (matching[-1] if matching else Action.ALLOW)


def strictest(layers: list[list[Rule]], tool: str, subjects: list[str]) -> Action:
    return verdict(layers, KNOWN[tool], subjects).action


@given(LAYERS, RULES, st.integers(0, 4), NAMES, st.lists(SUBJECTS, min_size=1, max_size=3), SUBJECTS)
def test_no_layer_and_no_subject_loosens_another(
    layers: list[list[Rule]], more: list[Rule], place: int, tool: str, subjects: list[str], another: str
) -> None:
    before = STRICTNESS.index(strictest(layers, tool, subjects))
    tightened = [*layers[:place], more, *layers[place:]]
    assert STRICTNESS.index(strictest(tightened, tool, subjects)) >= before
    assert STRICTNESS.index(strictest(layers, tool, [*subjects, another])) >= before
    assert strictest(layers[::-1], tool, subjects[::-1]) is STRICTNESS[before]


@given(RULES, NAMES, SUBJECTS)
def test_a_tool_that_is_not_offered_could_not_have_been_used(rules: list[Rule], tool: str, subject: str) -> None:
    if not is_possible(rules, KNOWN[tool]):
        assert decide(rules, KNOWN[tool], subject) is Action.DENY


LISTS = st.one_of(st.none(), st.lists(st.sampled_from(["bash", "read_file", "fetch_url", "own_*"]), unique=True))
PLACES = st.one_of(st.none(), st.lists(st.sampled_from(["a", "a/*", "example.org", "*.org"]), unique=True))
# by tool: what its rule subjects are, and what it uses that is no subject
TOUCHED: dict[str, tuple[set[str], set[str]]] = {
    "read_file": ({"paths"}, set()),
    "save_artifact": ({"paths"}, set()),
    "fetch_url": ({"hosts"}, set()),
    "web_search": (set(), {"hosts"}),
    "task": (set(), set()),
    "own_files": ({"paths"}, set()),
    "own_hosts": ({"hosts"}, set()),
    "own_upload": ({"paths"}, {"hosts"}),
    "own_order": (set(), set()),
    "own_silent": (set(), {"paths", "hosts"}),
}


@given(LISTS, PLACES, PLACES, st.sampled_from([*TOUCHED, "bash", "own_console"]), SUBJECTS)
def test_boundary_allows_exactly_what_it_names(
    tools: list[str] | None, hosts: list[str] | None, paths: list[str] | None, tool: str, subject: str
) -> None:
    named = {kind: value for kind, value in (("hosts", hosts), ("paths", paths)) if value is not None}
    allowed = tools is None or any(fnmatchcase(tool, one) for one in tools)
    if tool in TOUCHED:
        own, unnamed = TOUCHED[tool]
        allowed = allowed and all(any(fnmatchcase(subject, one) for one in named[kind]) for kind in own & named.keys())
        allowed = allowed and not unnamed & named.keys()
    elif named:  # what a command uses cannot be seen: only a tool that is listed by its exact name may run
        allowed = allowed and tools is not None and tool in tools
    layers = Boundary(tools=tools, hosts=hosts, paths=paths).layers()
    assert strictest(layers, tool, [subject]) is (Action.ALLOW if allowed else Action.DENY)
    assert strictest(rules_about(layers, KNOWN[tool]), tool, [subject]) is strictest(layers, tool, [subject])
    assert (find_barring_rule(layers, KNOWN[tool]) is None) is all(is_possible(rules, KNOWN[tool]) for rules in layers)
    assert all(strictest(layers, name, [""]) is Action.ALLOW for name, one in TOOLS.items() if one.talks)


def test_host_is_known_by_one_name() -> None:
    subject = Subject(kind=SubjectKind.HOST, fields=("host",))
    hosts = ("https://EXAMPLE.org:1/x", "example.org", "Example.org.:80", "//u@example.org")
    assert [subject.of({"host": host}) for host in hosts] == [["example.org"]] * 4
    assert subject.of({"host": "/a/path"}) == [""]


ALLOW, ASK, DENY = STRICTNESS


@pytest.mark.parametrize(
    ("rules", "permitted"),
    [
        ([], True),
        ([("fetch_url", "*.org", ASK)], False),  # a command asks nobody on its way
        ([("fetch_url", "*.org", DENY)], False),
        ([("fetch_url", "*", DENY), ("fetch_url", "example.org", ALLOW)], True),
        ([("own_hosts", "*", ALLOW), ("fetch_url", "*", DENY)], False),  # allowed for one tool, denied for another
        ([("*", "*", DENY)], True),  # about the tools that a session has
    ],
)
def test_command_reaches_a_host_that_every_rule_allows_without_asking(
    rules: list[tuple[str, str, Action]], permitted: bool
) -> None:
    layer = [Rule(permission=name, pattern=pattern, action=action) for name, pattern, action in rules]
    tools = [TOOLS["fetch_url"], OWN["own_hosts"], TOOLS["bash"]]
    assert host_permitted([layer], "example.org", tools) is permitted
    assert host_permitted([[], layer, []], "example.org", tools) is permitted


@pytest.mark.parametrize("hosts", [["example.org"], ["*.com"]])
def test_boundary_binds_commands_of_an_agent_without_a_tool_that_reaches_hosts(hosts: list[str]) -> None:
    layers = Boundary(hosts=hosts).layers()
    assert host_permitted(layers, "example.org", [TOOLS["bash"]]) is (hosts == ["example.org"])


@pytest.mark.parametrize(
    ("standing", "asks"),
    [
        ([], True),
        (["a"], True),  # one of two
        (["a", "b"], False),
        (["*"], False),
    ],
)
def test_call_is_asked_about_until_all_of_it_was_approved(standing: list[str], asks: bool) -> None:
    layers = [[Rule(permission="read_file", pattern="*", action=ASK)], []]
    approved = [Rule(permission="read_file", pattern=one, action=ALLOW) for one in standing]
    assert still_asks(layers, approved, TOOLS["read_file"], ["a", "b"]) is asks
    assert still_asks([[]], approved, TOOLS["read_file"], ["a", "b"]) is False  # nothing asks


@pytest.mark.parametrize("external", [False, True])
def test_rule_about_a_built_in_tool_is_not_about_a_callers_of_the_same_name(external: bool) -> None:
    tool = replace(OWN["own_order"], external=external)
    denied = PlatformToolRule(permission="own_order", pattern="*", action=DENY)
    assert decide([denied], tool, "a") is (ALLOW if external else DENY)
    assert decide([Rule(permission="own_order", pattern="*", action=DENY)], tool, "a") is DENY


DELEGATION_TOOLS = [name for name, tool in TOOLS.items() if tool.delegates]
ALLOW_ALL = Rule(permission=DELEGATION, action=Action.ALLOW)


@pytest.mark.proves("S0-34")
def test_a_callers_own_session_has_what_it_declares() -> None:
    assert tools_of(TOOLS, ["bash", "update_plan"], [], delegates=False) == ["bash", "update_plan"]
    assert tools_of(TOOLS, ["bash"], [], delegates=True) == ["bash", *DELEGATION_TOOLS]
    denied = [Rule(permission="bash", action=Action.DENY)]
    assert tools_of(TOOLS, ["bash", "read_file"], denied, delegates=False) == ["read_file"]


@pytest.mark.proves("S3-04", "S3-05")
def test_subagent_has_what_is_withheld_only_by_a_rule_of_its_own() -> None:
    own = ["bash", "read_file", "update_plan", "ask_user"]
    assert tools_of(TOOLS, own, [], delegates=True, subagent=True) == ["bash", "read_file"]
    assert tools_of(TOOLS, [], [ALLOW_ALL], delegates=True, subagent=True) == DELEGATION_TOOLS
    ask = Rule(permission="ask_user", action=Action.ALLOW)
    assert tools_of(TOOLS, own, [ask], delegates=False, subagent=True) == ["bash", "read_file", "ask_user"]
    denied = Rule(permission="bash", action=Action.DENY)
    assert tools_of(TOOLS, own, [denied], delegates=False, subagent=True) == ["read_file"]


PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"]
PUBLIC += ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:0808:0808::1"]

PRIVATE = ["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200"]
PRIVATE += ["168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192"]
PRIVATE += ["192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"]
PRIVATE += ["224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"]
PRIVATE += ["::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1"]
PRIVATE += ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1::808:808", "100::1", "2001::1"]
PRIVATE += ["2001:0:7f00:1::", "2001:db8::1", "2001:20::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:0a00:1::"]
PRIVATE += ["3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1"]
PRIVATE += ["ff00::1", "ff02::1", "ff0e::1", "2a00::5efe:127.0.0.1", "2a00::200:5efe:10.0.0.1"]
PRIVATE += ["localhost", "", "127.1", "0x7f.1", "2130706433", "1.1.1.1%lo", "8.8.8.8 ", "::1%1"]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_recognised(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_recognised(address: str) -> None:
    assert not public(address)
