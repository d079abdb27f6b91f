"""Bugs in the code that isolates tenants, users and commands from each other."""

from tests.planted.bug import Bug

_API, _EGRESS = "tests/behaviour/api", "tests/unit/activities/test_egress.py"
_LOCAL = ("tests/unit/api/http/test_local_access.py", f"{_API}/test_local_access.py")
_PATHS = ("tests/unit/activities/tools/support/test_paths.py", "tests/behaviour/activities/test_workspaces.py")
_KEPT = ("tests/behaviour/activities/test_workspaces.py",)
_NETWORK = ("tests/behaviour/sandbox/test_who_has_a_network.py", "tests/behaviour/sandbox/test_network.py")
_APPROVED = ("tests/behaviour/supervision/test_approved_files.py",)
_RIGHTS, _READS = (f"{_API}/test_rights.py",), (f"{_API}/test_tenants.py",)

BUGS = [
    Bug(
        "a task gives its agent a network",
        "api/submission/rules.py",
        'NETWORKED and not (definition.network and settings.sandbox_network == "on")',
        "NETWORKED and False",
        _NETWORK,
    ),
    Bug(
        "a task's `isolated` is ignored",
        "activities/environments.py",
        "if guard is None or not given or mode is SandboxMode.ISOLATED:",
        "if guard is None or not given:",
        _NETWORK,
    ),
    Bug(
        "a networked command reaches hosts that its agent does not name",
        "activities/sandbox/network.py",
        "if not self._policy.permitted(request.host):",
        "if not request.host:",
        _NETWORK,
    ),
    Bug(
        "link-local addresses count as public",
        "domain/policy/addresses.py",
        '        "169.254.0.0/16",  # link local; the usual metadata address\n',
        "",
        ("tests/unit/domain/policy/test_rules.py",),
    ),
    Bug(
        "a redirect is followed to what rules forbid",
        "activities/egress.py",
        "if permitted is not None and not await permitted(url):",
        "if permitted is not None and not url:",
        (_EGRESS, "tests/unit/activities/tools/builtin/test_fetch_url.py"),
    ),
    Bug(
        "folders of a workspace are entered through links",
        "activities/tools/support/paths.py",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        _PATHS,
    ),
    Bug(
        "a link may climb out of the workspace after its first name",
        "activities/workspaces.py",
        'and up <= path.count("/") and ".." not in names[up:]',
        'and up <= path.count("/")',
        _KEPT,
    ),
    Bug(
        "forwarded requests need no key",
        "api/http/auth.py",
        'if any(map(_FORWARDED.fullmatch, headers)) or scope.get("http_version") == "1.0":',
        "if False:",
        _LOCAL,
    ),
    Bug(
        "keys can be guessed without a limit",
        "api/http/auth.py",
        "if count >= MOST_FAILURES and left > 0",
        "if count >= 1_000 * MOST and left > 0",
        (f"{_API}/test_auth.py", f"{_API}/test_local_access.py", f"{_API}/test_waiting_bound.py"),
    ),
    Bug(
        "a key acts on what another key started",
        "api/http/lookup.py",
        "if not owns(caller, owned) and not caller.may(*needed):",
        "if not owned.created_by and not caller.may(*needed):",
        _RIGHTS,
    ),
    Bug(
        "input requests of all tenants are listed",
        "store/input_requests.py",
        "WHERE tenant = $1 AND (event_key IS NULL OR $2::text IS NOT NULL",
        "WHERE $1 <> '' AND (event_key IS NULL OR $2::text IS NOT NULL",
        _READS,
    ),
    Bug(
        "a tenant's pattern runs in a backtracking engine",
        "domain/json_schema.py",
        '        "pattern": _pattern,\n',
        "",
        ("tests/unit/domain/test_json_schema.py",),
        hangs=True,
    ),
    Bug(
        "any account uses the Temporal Web UI",
        "deploy/ui_guard.py",
        'if not _equal(request.cookies.get(COOKIE, ""), access):',
        'if request.cookies.get(COOKIE, "") is None:',
        ("tests/behaviour/deploy/test_temporal_guarded.py",),
    ),
    Bug(
        "what an older key sealed is opened with the newest",
        "domain/sealing.py",
        "key = self._keys.get(key_id)",
        "key = self._keys.get(self._current)",
        ("tests/unit/domain/test_sealing.py",),
    ),
    Bug(
        "a deleted audit log is no break",
        "store/audit.py",
        "if verdict.found is None and (silent :=",
        "if verdict.found is not None and (silent :=",
        ("tests/behaviour/record/test_audit.py", "tests/behaviour/store/test_audit.py"),
    ),
    Bug(
        "an approved command runs with a file that was exchanged",
        "activities/requests/approved_files.py",
        "if digest != shown.get(path))",
        "if path not in shown)",
        _APPROVED,
    ),
    Bug(
        "keys in the arguments of a call are shown",
        "store/events.py",
        'data["arguments"] = redact_json(data["arguments"])',
        "pass",
        ("tests/behaviour/supervision/test_own_tools.py",),
    ),
    Bug(
        "an approval of one call serves another",
        "activities/tools/run_tool.py",
        "if not own or approval is None or",
        "if approval is None or",
        _APPROVED,
    ),
    Bug(
        "the memory of a command's tree has no ceiling",
        "activities/sandbox/supervise.py",
        "if usage.resident > limits.memory_bytes:",
        "if usage.resident > limits.memory_bytes * 1_000:",
        ("tests/behaviour/sandbox/test_limits.py",),
    ),
]
