-- The documents inside rows have types too, with the fields of their models, so that no query reads keys.
CREATE TYPE usage AS (
    llm_calls bigint, tool_invocations bigint, input_tokens bigint, output_tokens bigint, cache_read_tokens bigint,
    cache_write_tokens bigint, cost_usd double precision);
CREATE TYPE recorded_stop AS (
    reason text, by text, note text, grace_ms bigint, at timestamptz, request_id text, scope text, actor text);
CREATE TYPE agent_ref AS (owner text, name text, version integer, side text);
CREATE TYPE successor AS (agent agent_ref, models text[], sides text, tools text[]);
CREATE TYPE subagent_terms AS (
    resumable boolean, blocking boolean, parent_communication text, receives_messages text, description text,
    spawn_group_id text);
CREATE TYPE acceptance_round AS (round integer, passed boolean, verdicts jsonb);
CREATE TYPE rerun AS (session_id text, from_step integer, recorded boolean, changed text[], layers integer);
CREATE TYPE submitted_config AS (
    notify text[], routes jsonb, reminder_after bigint, escalate_after bigint, escalate_to jsonb, sandbox text,
    input_timeout bigint, on_input_timeout text);
CREATE TYPE submitted_context AS (files text[]);
CREATE TYPE submitted_channel AS (message_id text, thread text);
CREATE TYPE submitted_schedule AS (id text, silent_reply text);
CREATE TYPE submitted_task AS (
    input jsonb, tags text[], user_id text, arguments text, acceptance_criteria jsonb, context submitted_context,
    config submitted_config, channel submitted_channel, schedule submitted_schedule, transport text, visible boolean);
ALTER TYPE session_ending ADD ATTRIBUTE open_result text;

-- A default has one source: every INSERT gives these columns a value.
ALTER TABLE agent_removals ALTER removed_by DROP DEFAULT;
ALTER TABLE audit
    ALTER digest DROP DEFAULT, ALTER session_id DROP DEFAULT, ALTER subject DROP DEFAULT;
ALTER TABLE audit_heads ALTER seq DROP DEFAULT;
ALTER TABLE budgets
    ALTER cost_usd DROP DEFAULT, ALTER low_percent DROP DEFAULT, ALTER sessions DROP DEFAULT, ALTER steps DROP DEFAULT,
    ALTER tokens DROP DEFAULT, ALTER tool_calls DROP DEFAULT;
ALTER TABLE connectors
    ALTER created_by DROP DEFAULT, ALTER debounce_ms DROP DEFAULT, ALTER merge DROP DEFAULT,
    ALTER secrets DROP DEFAULT, ALTER target DROP DEFAULT;
ALTER TABLE conversations ALTER metadata DROP DEFAULT, ALTER title DROP DEFAULT;
ALTER TABLE events ALTER batch DROP DEFAULT;
ALTER TABLE external_events ALTER type DROP DEFAULT;
ALTER TABLE face_requests
    ALTER digest DROP DEFAULT, ALTER part DROP DEFAULT, ALTER request DROP DEFAULT;
ALTER TABLE inbox ALTER author DROP DEFAULT;
ALTER TABLE input_requests ALTER details DROP DEFAULT;
ALTER TABLE messages ALTER author DROP DEFAULT, ALTER line DROP DEFAULT;
ALTER TABLE missions ALTER created_by DROP DEFAULT;
ALTER TABLE notices ALTER created_by DROP DEFAULT;
ALTER TABLE resets ALTER by DROP DEFAULT;
ALTER TABLE schedule_runs
    ALTER manual DROP DEFAULT, ALTER reason DROP DEFAULT, ALTER settled DROP DEFAULT;
ALTER TABLE schedules ALTER created_by DROP DEFAULT;
ALTER TABLE sessions
    ALTER approval_required DROP DEFAULT, ALTER await_children DROP DEFAULT, ALTER blocking DROP DEFAULT,
    ALTER committed DROP DEFAULT, ALTER created_at DROP DEFAULT, ALTER created_by DROP DEFAULT,
    ALTER depth DROP DEFAULT, ALTER dry_run DROP DEFAULT, ALTER emitted_once DROP DEFAULT,
    ALTER external_tools DROP DEFAULT, ALTER generation DROP DEFAULT, ALTER inbox DROP DEFAULT,
    ALTER live DROP DEFAULT, ALTER may_ask DROP DEFAULT, ALTER missing DROP DEFAULT, ALTER partial DROP DEFAULT,
    ALTER progress DROP DEFAULT, ALTER retention_ms DROP DEFAULT, ALTER rules DROP DEFAULT,
    ALTER session_type DROP DEFAULT, ALTER status DROP DEFAULT, ALTER step DROP DEFAULT, ALTER title DROP DEFAULT,
    ALTER trigger DROP DEFAULT, ALTER typed DROP DEFAULT, ALTER updated_at DROP DEFAULT, ALTER usage DROP DEFAULT,
    ALTER variables DROP DEFAULT, ALTER version DROP DEFAULT;
ALTER TABLE subscriptions
    ALTER created_by DROP DEFAULT, ALTER subagents DROP DEFAULT, ALTER target_shown DROP DEFAULT;
ALTER TABLE threads
    ALTER depth DROP DEFAULT, ALTER registered DROP DEFAULT, ALTER tags DROP DEFAULT;
ALTER TABLE triggers ALTER created_by DROP DEFAULT, ALTER prompt DROP DEFAULT;
ALTER TABLE workers
    ALTER handlers DROP DEFAULT, ALTER hooks DROP DEFAULT, ALTER problems DROP DEFAULT, ALTER tools DROP DEFAULT;
