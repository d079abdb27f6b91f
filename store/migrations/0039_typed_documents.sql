-- Every document that a SQL function takes has a type with the fields of its model, so that no function reads keys.
CREATE TYPE budget_use AS (steps bigint, tokens bigint, cost_usd double precision, tool_calls bigint);
CREATE TYPE once_event AS (name text, event jsonb);
CREATE TYPE retry_note AS (tenant text, session_id text, retry text, events jsonb);
CREATE TYPE step_commit AS (
    tenant text, session_id text, run text, idem text, version bigint, head text, line text, take text[], usage text,
    used budget_use, progress text, status_text text, reply text, nodes jsonb, once jsonb, events jsonb);
CREATE TYPE tool_claim AS (
    tenant text, session_id text, run text, node text, call_index integer, tool text, actor text, effect text, holder text,
    attempt integer, asks boolean, kind text, description text, withheld boolean, called jsonb, unknown text, lost jsonb,
    spent text, refused jsonb);
CREATE TYPE tool_commit AS (
    tenant text, session_id text, run text, node text, call_index integer, tool text, actor text, effect text, holder text,
    attempt integer, state text, result text, started_at timestamptz, description text, progress text, status_text text,
    plan text, files jsonb, sources text, denied boolean, rule text, handed_to text, events jsonb);
CREATE TYPE check_begin AS (
    tenant text, session_id text, run text, node text, call_index integer, tool text, actor text, kind text,
    description text, command text);
CREATE TYPE check_end AS (
    tenant text, session_id text, run text, node text, call_index integer, actor text, state text, result text);
CREATE TYPE session_ref AS (tenant text, session_id text, conversation_id text);
CREATE TYPE session_ending AS (
    ref session_ref, run text, reason text, partial boolean, error_type text, error text, output text, typed boolean,
    replied boolean, head text, usage text, step integer, version bigint, nodes jsonb, events jsonb, status text,
    message_id text);
CREATE TYPE acceptance AS (
    session jsonb, inbox jsonb, events jsonb, idempotency jsonb, live_quota bigint, take text[], mail text[], queue boolean,
    in_order boolean, spawns boolean, deferred boolean, budget jsonb, delivery text, metadata jsonb, manifest text,
    parent_thread_id text, thread_name text, face jsonb);
CREATE TYPE new_budget AS (
    deadline timestamptz, max_steps bigint, max_tokens bigint, max_cost_usd double precision, max_tool_calls bigint,
    max_sessions bigint, low_percent integer, "default" boolean);
CREATE TYPE queued_begin AS (tenant text, session_id text, take text[]);
CREATE TYPE request_opening AS (tenant text, run text, request jsonb, most bigint, events jsonb);
CREATE TYPE request_answer AS (
    tenant text, id text, session_id text, answer text, by text, actor text, events jsonb);
CREATE TYPE acceptance_record AS (
    tenant text, run text, session_id text, round integer, version bigint, acceptance text, usage text, used budget_use,
    message jsonb, events jsonb);

-- these are given records now
DROP FUNCTION IF EXISTS begin_effect(jsonb), end_effect(jsonb), settle_budget(text, text, text, jsonb);
