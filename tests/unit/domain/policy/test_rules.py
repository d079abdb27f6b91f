"""Rules: the last match decides within a list, no list loosens another, and a boundary names all there is."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from domain.policy.rules import STARTERS, TALKING, Action, Rule, decide, possible, strictest, tools_of
from domain.task import FILE_TOOLS, Boundary

STRICTNESS = [Action.ALLOW, Action.ASK, Action.DENY]
NAMES = st.sampled_from(["bash", "read_file", "write_file", "fetch_url", "task"])
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
    names = [tool, *(["delegation"] if tool in STARTERS else [])]
    matching = [
        rule.action
        for rule in rules
        if any(fnmatchcase(name, rule.permission) for name in names) and fnmatchcase(subject, rule.pattern)
    ]
    assert decide(rules, tool, subject) is (matching[-1] if matching else Action.ALLOW)


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
    if not possible(rules, tool):
        assert decide(rules, tool, subject) is Action.DENY


@given(RULES, st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_a_subagent_has_at_most_what_its_parent_has(rules: list[Rule], own: list[str], parent: list[str]) -> None:
    assert set(tools_of(own, rules, delegates=True, parent_tools=parent)) <= set(parent)


LISTS = st.one_of(st.none(), st.lists(st.sampled_from(["bash", "read_file", "fetch_url"]), unique=True))
PLACES = st.one_of(st.none(), st.lists(st.sampled_from(["a", "a/*", "example.org", "*.org"]), unique=True))


@given(LISTS, PLACES, PLACES, st.sampled_from(["bash", "read_file", "fetch_url", "task"]), SUBJECTS)
def test_a_boundary_allows_exactly_what_it_names(
    tools: list[str] | None, hosts: list[str] | None, paths: list[str] | None, tool: str, subject: str
) -> None:
    named = hosts if tool == "fetch_url" else paths if tool in FILE_TOOLS else None
    allowed = tools is None or tool in tools
    if named is not None:
        allowed = allowed and any(fnmatchcase(subject, one) for one in named)
    if tool == "bash" and (hosts is not None or paths is not None):
        allowed = allowed and tools is not None
    layers = Boundary(tools=tools, hosts=hosts, paths=paths).layers()
    assert strictest(layers, tool, [subject]) is (Action.ALLOW if allowed else Action.DENY)
    assert all(strictest(layers, talk) is Action.ALLOW for talk in TALKING)
