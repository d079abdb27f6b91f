"""Bugs in the code that keeps a stack running, protects its secrets, and limits its costs and disk use."""

from tests.planted.bug import Bug

_DEPLOY, _API = "tests/behaviour/deploy", "tests/behaviour/api"
_LOCAL, _SUPERVISOR = f"{_DEPLOY}/test_local.py", (f"{_DEPLOY}/test_supervisor.py",)

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
        "PostgreSQL keeps the account of an earlier version",
        "deploy/postgres.py",
        "    if owner == account.uid:\n",
        "    if owner is not None:\n",
        (f"{_LOCAL}::test_postgres_runs_as_its_own_account_and_takes_over_a_folder_of_nobody",),
    ),
    Bug(
        "a setting does not require keys",
        "api/http/auth.py",
        "        not settings.require_keys\n        and is_loopback",
        "        is_loopback",
        ("tests/unit/api/http/test_local_access.py", f"{_API}/test_local_access.py"),
    ),
    Bug(
        "an anchor of the audit log is never read",
        "cli/commands/audit.py",
        "if anchor is None or _is_url(anchor) or not Path(anchor).exists():",
        "if anchor is None or not _is_url(anchor):",
        ("tests/unit/cli/test_audit_anchors.py",),
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
    Bug(
        "Temporal is prepared once for a data directory",
        "deploy/temporal.py",
        "            follow_up=prepare_namespace,\n",
        '            follow_up=None if (self._home / "made").exists() or (self._home / "made").touch() '
        "else prepare_namespace,\n",
        (f"{_DEPLOY}/test_temporal_guarded.py",),
    ),
    Bug(
        "any page calls Temporal's HTTP API",
        "deploy/temporal.py",
        "for key, value in (FLAGS | closed).items():",
        "for key, value in FLAGS.items():",
        (f"{_DEPLOY}/test_temporal_guarded.py",),
    ),
    Bug(
        "a part that worked is given up",
        "deploy/supervisor.py",
        "if failures >= GIVE_UP_AFTER and not supervised.was_ready:",
        "if failures >= GIVE_UP_AFTER:",
        _SUPERVISOR,
    ),
    Bug(
        "nothing says that the disk is full",
        "deploy/state.py",
        "if error.errno in (errno.ENOSPC, errno.EDQUOT):",
        "if error.errno is None:",
        _SUPERVISOR,
    ),
    Bug(
        "a state file that cannot be written ends the stack",
        "deploy/stack.py",
        '        except OSError as error:\n            self.supervisor.log(f"cannot write',
        '        except KeyError as error:\n            self.supervisor.log(f"cannot write',
        (f"{_LOCAL}::test_state_file_that_cannot_be_written_does_not_end_the_stack",),
    ),
    Bug(
        "a damaged file of Temporal is not named",
        "deploy/temporal.py",
        "            prepare=self._check_file,\n",
        "            prepare=None,\n",
        (f"{_LOCAL}::test_damaged_database_of_temporal_is_reported_with_a_remedy",),
    ),
    Bug(
        "the time for an update becomes negative",
        "workflows/client.py",
        "timedelta(seconds=max(give_up - time.monotonic(), 0.001))",
        "timedelta(seconds=give_up - time.monotonic())",
        ("tests/behaviour/workflows/test_steps.py",),
    ),
    Bug(
        "tokens end a session of 2,000 steps",
        "settings.py",
        "max_tokens: int = 1_000_000_000",
        "max_tokens: int = 100_000_000",
        ("tests/unit/deploy/test_environment.py",),
    ),
]
