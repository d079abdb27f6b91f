"""Bugs in the code that keeps a stack running, protects its secrets, and limits its costs and disk use."""

from tests.planted.bug import Bug

_DEPLOY, _API = "tests/behaviour/deploy", "tests/behaviour/api"

BUGS = [
    Bug(
        "the database shows the API all tenants",
        "store/roles.sql",
        "USING (tenant = %2$s) WITH CHECK (tenant = %2$s)', named, tenant);",
        "USING (true) WITH CHECK (true)', named, tenant);",
        ("tests/behaviour/store/test_roles.py",),
    ),
    Bug(
        "the API gets the secrets of the worker",
        "deploy/stack.py",
        "env=_without(env, *OF_THE_WORKER, *DATABASES)",
        "env=_without(env, *DATABASES)",
        (f"{_DEPLOY}/test_temporal_tls.py",),
    ),
    Bug(
        "a setting does not require keys",
        "api/http/auth.py",
        "        not settings.require_keys\n        and is_loopback",
        "        is_loopback",
        ("tests/unit/api/http/test_local_access.py", f"{_API}/test_local_access.py"),
    ),
    Bug(
        "a task with a real model has no cost limit",
        "api/submission/rules.py",
        "if limits.cost_usd is not None or not settings.default_cost_usd",
        "if limits.cost_usd is None or not settings.default_cost_usd",
        (f"{_API}/test_ceilings.py",),
    ),
    Bug(
        "a file that a task still needs is deleted",
        "store/files.py",
        "AND s.status IN ('submitted', 'working', 'input_required')",
        "AND s.status = ''",
        (f"{_API}/routes/test_files.py",),
    ),
]
