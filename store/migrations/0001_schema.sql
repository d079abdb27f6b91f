-- The tables, by subject: sessions and what they record, conversations, requests to people, files, agents, notifications,
-- channels, schedules and missions, triggers, callers, the audit log, workers; at the end the types of documents.
--
-- The tenant is part of every key. Ids and the words of a status are text; the enums of domain/ have the allowed values.
-- A column with a comment "JSON" holds the document of a pydantic model. A column has a default only if no INSERT names it.
-- Functions are in store/functions; row security, roles and rights in store/roles.sql, which is applied at every start.


-- ---------------------------------------------------------------------------------------------------------------------
-- Sessions

-- A session (a task): what it was submitted with, its present state, how it ended. `version` only rises, and the status of an
-- ended session never changes.
CREATE TABLE sessions (
    tenant             text        NOT NULL,
    id                 text        NOT NULL,
    conversation_id    text        NOT NULL,
    thread_id          text        NOT NULL,
    workspace_id       text        NOT NULL,
    generation         integer     NOT NULL,   -- of its conversation, when it was accepted
    run_id             text,                   -- the workflow run; what another run begins, claims or commits is refused

    -- where it comes from
    session_type       text        NOT NULL,
    trigger            text        NOT NULL,
    parent_session_id  text,
    spawned_by         text,
    depth              integer     NOT NULL,
    created_by         text        NOT NULL,
    created_at         timestamptz NOT NULL,
    rerun              text,                   -- JSON: whose rerun it is, from which step, with recorded answers

    -- what it was submitted with
    agent_owner        text        NOT NULL,
    agent              text        NOT NULL,
    agent_version      integer     NOT NULL,
    models             text[]      NOT NULL,
    tools              text[],                 -- what it may use; null: what its definition lists
    external_tools     text        NOT NULL,   -- JSON: tools whose calls the caller answers
    sides              text,                   -- JSON; null: one model, and people on the other side
    task_terms         text,                   -- JSON: what the task adds to its agent's definition; null: nothing
    title              text        NOT NULL,
    spec               text        NOT NULL,   -- JSON: the task as submitted
    variables          text        NOT NULL,   -- JSON: name -> value
    missing            text        NOT NULL,   -- JSON: name -> description, asked for before the first step
    limits             text        NOT NULL,   -- JSON
    deadline           timestamptz NOT NULL,
    rules              text        NOT NULL,   -- JSON: layers of permission rules, the task's and its parents'
    may_ask            boolean     NOT NULL,
    approval_required  boolean     NOT NULL,
    dry_run            boolean     NOT NULL,
    retention_ms       bigint      NOT NULL,

    -- as a subagent
    subagent           text,                   -- JSON: its terms; null: it was not started by such a tool
    subagent_name      text,
    delivery           text,                   -- of its outcome to the spawner: hold | wake | explicit
    blocking           boolean     NOT NULL,   -- the spawner waits for it in a tool call
    await_children     boolean     NOT NULL,

    -- its present state
    status             text        NOT NULL,
    status_text        text,                   -- what the session itself published as its status
    live               boolean     NOT NULL,   -- false while it waits in a queue, and once it has ended
    version            bigint      NOT NULL,
    step               integer     NOT NULL,
    base_head          text,                   -- the node this session continues from
    head               text,
    inbox              text[]      NOT NULL,
    progress           text        NOT NULL,
    plan               text,                   -- JSON
    retry              text,                   -- JSON: attempt, reason and next time of a call that is backing off
    usage              text        NOT NULL,   -- JSON
    handed_to          text,                   -- JSON: the agent that continues it, its models and tools; null: its own
    acceptance         text,                   -- JSON: the newest verdict on the acceptance criteria
    emitted_once       text[]      NOT NULL,   -- names of events of which a session has one
    cancel_requested   text,                   -- JSON: reason, by, note, at
    started_at         timestamptz,
    updated_at         timestamptz NOT NULL,

    -- how it ended
    ended_at           timestamptz,
    reason             text,
    partial            boolean     NOT NULL,
    committed          boolean     NOT NULL,   -- ended with at least one assistant message
    error_type         text,
    error              text,
    output             text,
    typed              boolean     NOT NULL,   -- its output is JSON that fits its agent's output_schema
    keep_until         timestamptz,            -- of its content; null until it ends
    content_removed_at timestamptz,

    PRIMARY KEY (tenant, id),
    CONSTRAINT children_have_a_delivery CHECK (spawned_by IS NULL OR delivery IS NOT NULL)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX sessions_one_live ON sessions (tenant, thread_id) WHERE live;   -- at most one session works in a thread
CREATE INDEX sessions_by_conversation ON sessions (tenant, conversation_id, id);
CREATE INDEX sessions_by_thread ON sessions (tenant, thread_id, id);
CREATE INDEX sessions_by_agent ON sessions (tenant, agent, id);
CREATE INDEX sessions_by_spawner ON sessions (tenant, spawned_by) WHERE spawned_by IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (tenant, parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX sessions_live ON sessions (tenant, created_by) WHERE status IN ('submitted', 'working', 'input_required');
-- Every few seconds workers look for stops and answers that their sessions have not heard of.
CREATE INDEX sessions_stopping ON sessions (tenant, id)
    WHERE cancel_requested IS NOT NULL AND status IN ('submitted', 'working', 'input_required');
CREATE INDEX sessions_to_clear ON sessions (keep_until) WHERE content_removed_at IS NULL AND keep_until IS NOT NULL;

-- The immutable message tree. `idem` makes every append repeatable.
CREATE TABLE messages (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    parent      text,
    session_id  text        NOT NULL,
    idem        text        NOT NULL,
    kind        text        NOT NULL,
    author      text        NOT NULL,
    line        text        NOT NULL,
    side        text        NOT NULL DEFAULT 'a',  -- which side of its agent wrote it
    step        integer     NOT NULL,
    body        text        NOT NULL,              -- JSON
    reply       text,                              -- JSON: what the model call answered to the workflow
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, idem)
);
CREATE INDEX messages_by_session ON messages (tenant, session_id, id);

-- Tool calls and their effects. A call is claimed before its effect; holder and attempt fence off an attempt that was superseded.
CREATE TABLE tool_calls (
    tenant      text        NOT NULL,
    node        text        NOT NULL,              -- the assistant node that asked
    call_index  integer     NOT NULL,
    session_id  text        NOT NULL,
    tool        text        NOT NULL,
    effect      text        NOT NULL,
    holder      text        NOT NULL,              -- workflow run and activity
    attempt     integer     NOT NULL,
    state       text        NOT NULL DEFAULT 'started',   -- started | ok | failed | unknown | cancelled
    result      text        NOT NULL DEFAULT '',
    remote      text,                              -- what is needed to ask for the outcome of a call that continues elsewhere
    kind        text,                              -- in the ledger of effects; null: it touches nothing
    description text        NOT NULL DEFAULT '',
    dry         boolean     NOT NULL DEFAULT false,-- described, not done
    sources     text        NOT NULL DEFAULT '[]', -- JSON: what it read, with hashes and times
    shown       text        NOT NULL DEFAULT '[]', -- JSON: files that the model is shown with the result
    usage       text,                              -- of a model that the tool asked
    started_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    PRIMARY KEY (tenant, node, call_index)
);
CREATE INDEX tool_calls_by_session ON tool_calls (tenant, session_id);

-- The calls of running sessions that were tried again, with their newest attempts.
CREATE TABLE call_attempts (
    tenant     text    NOT NULL,
    session_id text    NOT NULL,
    call       text    NOT NULL,   -- run and id of the activity
    attempt    integer NOT NULL,
    PRIMARY KEY (tenant, session_id, call)
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Events

-- The last number given to an event of a session or of a conversation, without gaps.
CREATE TABLE event_counters (
    tenant  text    NOT NULL,
    scope   text    NOT NULL,                      -- 's/<session>' or 'c/<conversation>'
    last    bigint  NOT NULL DEFAULT 0,
    closed  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, scope)
) WITH (fillfactor = 50);

-- What happened, as streams show it.
CREATE TABLE events (
    tenant          text        NOT NULL,
    session_id      text        NOT NULL,
    seq             bigint      NOT NULL,
    conversation_id text        NOT NULL,
    conv_seq        bigint      NOT NULL,
    type            text        NOT NULL,
    at              timestamptz NOT NULL,
    data            text        NOT NULL,          -- JSON
    batch           text        NOT NULL,
    PRIMARY KEY (tenant, session_id, seq)
);
CREATE UNIQUE INDEX events_by_conversation ON events (tenant, conversation_id, conv_seq);
-- What a conversation used, by model, is summed up from these events alone.
CREATE INDEX events_usage ON events (tenant, conversation_id) WHERE type = 'usage_updated';

-- Sessions that have ended and may still have pieces of texts, which a sweep deletes.
CREATE TABLE ended_streams (
    tenant     text        NOT NULL,
    session_id text        NOT NULL,
    ended_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX ended_streams_by_end ON ended_streams (ended_at);


-- ---------------------------------------------------------------------------------------------------------------------
-- Conversations

-- A conversation: the sessions that share a history, their threads and a mailbox.
CREATE TABLE conversations (
    tenant        text        NOT NULL,
    id            text        NOT NULL,
    title         text        NOT NULL,
    status        text        NOT NULL DEFAULT 'open',   -- open | terminated
    delivery      text,                                  -- hold | wake | explicit: overrides the defaults
    metadata      jsonb       NOT NULL,
    generation    integer     NOT NULL DEFAULT 0,        -- sessions of one generation share a context; a reset begins the next
    variables_set boolean     NOT NULL DEFAULT false,    -- a thread of it has values that were set while it lived
    has_workflow  boolean     NOT NULL DEFAULT false,    -- its workflow has begun, to which ends are posted
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX conversations_terminated ON conversations (updated_at) WHERE status = 'terminated' AND has_workflow;
CREATE INDEX conversations_by_activity ON conversations (tenant, updated_at DESC, id DESC);

-- A line of sessions of one agent in a conversation: the root's, or a subagent's.
CREATE TABLE threads (
    tenant           text        NOT NULL,
    id               text        NOT NULL,
    conversation_id  text        NOT NULL,
    parent_thread_id text,                               -- null: the root thread
    name             text        NOT NULL,               -- how the parent addresses it
    agent            text        NOT NULL,
    depth            integer     NOT NULL,
    registered       boolean     NOT NULL,               -- the parent's registry of subagents lists it
    tags             text[]      NOT NULL,
    user_id          text,                               -- the person it belongs to
    arguments        text,                               -- JSON: those that a subagent was created with
    variables        text,                               -- JSON: values set while it lived; secret ones are encrypted
    created_at       timestamptz NOT NULL DEFAULT now(),
    terminated_at    timestamptz,                        -- from then on it accepts no session and no message
    PRIMARY KEY (tenant, id)
);
CREATE INDEX threads_by_conversation ON threads (tenant, conversation_id);
CREATE UNIQUE INDEX threads_by_name ON threads (tenant, conversation_id, parent_thread_id, name);
CREATE INDEX threads_by_tag ON threads USING gin (tags);
CREATE INDEX threads_by_user ON threads (tenant, user_id) WHERE user_id IS NOT NULL;

-- Messages for a thread; they enter the tree when a model call takes them.
CREATE TABLE inbox (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    number          bigint      GENERATED ALWAYS AS IDENTITY,
    conversation_id text        NOT NULL,
    thread_id       text        NOT NULL,
    kind            text        NOT NULL,
    author          text        NOT NULL,
    parts           text        NOT NULL,                -- JSON
    changed         text,                                -- JSON: parts that a hook puts into the context instead
    source          text,                                -- the session whose outcome this message brings
    visible         boolean     NOT NULL DEFAULT true,
    wake            boolean     NOT NULL DEFAULT true,
    unsignalled     boolean     NOT NULL DEFAULT false,  -- no workflow was signalled yet; a sweep does it
    taken_by        text,                                -- the session that reads it, from its opening on
    entered         boolean     NOT NULL DEFAULT false,  -- it is in the message tree
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX inbox_waiting ON inbox (tenant, conversation_id) WHERE taken_by IS NULL;
CREATE INDEX inbox_taken ON inbox (tenant, taken_by) WHERE taken_by IS NOT NULL;
CREATE INDEX inbox_unsignalled ON inbox (number) WHERE unsignalled;

-- Outcomes of subagents that wait for delivery: references, unique by source. Content is read when it is rendered.
-- A fire marks all of them: no index holds `delivered_to`, and there is room in each page, so that an update writes no index
-- (a thousand take 1.5 ms instead of 15).
CREATE TABLE mailbox (
    tenant            text        NOT NULL,
    message_id        text        NOT NULL,
    number            bigint      GENERATED ALWAYS AS IDENTITY,
    conversation_id   text        NOT NULL,
    thread_id         text        NOT NULL,              -- of the recipient
    source_session_id text        NOT NULL,
    source_type       text        NOT NULL,              -- subagent_result | subagent_failed
    subagent_name     text        NOT NULL,
    delivered_to      text,
    given_back_by     text,                              -- the session that had it last and committed nothing
    created_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, message_id),
    UNIQUE (tenant, source_session_id)
) WITH (fillfactor = 40);
CREATE INDEX mailbox_by_conversation ON mailbox (tenant, conversation_id, number);

-- Where a conversation's context was emptied. Nothing is deleted.
CREATE TABLE resets (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    generation      integer     NOT NULL,                -- that it begins
    at              timestamptz NOT NULL DEFAULT now(),
    by              text        NOT NULL,
    PRIMARY KEY (tenant, conversation_id, generation)
);

-- Budgets that the sessions of a conversation share, and what of them was used.
CREATE TABLE budgets (
    tenant          text             NOT NULL,
    conversation_id text             NOT NULL,
    deadline        timestamptz,                         -- null: without that limit, as all below
    max_steps       bigint,
    max_tokens      bigint,
    max_cost_usd    double precision,
    max_tool_calls  bigint,
    steps           bigint           NOT NULL,           -- used
    tokens          bigint           NOT NULL,
    cost_usd        double precision NOT NULL,
    tool_calls      bigint           NOT NULL,
    low_reported    text[]           NOT NULL DEFAULT '{}', -- which limits watchers know to be low
    PRIMARY KEY (tenant, conversation_id)
) WITH (fillfactor = 50);

-- What a model call under way may use at the most; a line of a session makes one call at a time.
CREATE TABLE reservations (
    tenant          text             NOT NULL,
    session_id      text             NOT NULL,
    line            text             NOT NULL,
    conversation_id text             NOT NULL,
    tokens          bigint           NOT NULL,
    cost_usd        double precision NOT NULL,
    PRIMARY KEY (tenant, session_id, line)
);
CREATE INDEX reservations_by_conversation ON reservations (tenant, conversation_id);


-- ---------------------------------------------------------------------------------------------------------------------
-- Requests to people, and variables

-- What a session waits for from people or from an event.
CREATE TABLE input_requests (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    conversation_id text        NOT NULL,
    session_id      text        NOT NULL,
    kind            text        NOT NULL,                -- clarification | tool_approval | plan_approval | …
    question        text        NOT NULL,
    details         text        NOT NULL,                -- JSON: what a person needs to decide
    gate            text,                                -- JSON: the layers of rules that also bind an approval with other
                                                         -- arguments, and what they match on; null: no call
    event_key       text,                                -- the event with this key answers it
    answer_schema   text,                                -- JSON
    status          text        NOT NULL DEFAULT 'open', -- open | answered | expired | withdrawn
    answer          text,                                -- JSON
    answered_by     text,
    answered_at     timestamptz,
    settled         boolean     NOT NULL DEFAULT false,  -- its session has continued from it
    deadline        timestamptz NOT NULL,
    on_expiry       text        NOT NULL,                -- cancel | deny | default
    default_answer  text,                                -- JSON
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX input_requests_open ON input_requests (tenant, deadline, id) WHERE status = 'open';
CREATE INDEX input_requests_answered ON input_requests (tenant, answered_at, id) WHERE status = 'answered';
CREATE INDEX input_requests_unheard ON input_requests (tenant, session_id) WHERE status = 'answered' AND NOT settled;
CREATE INDEX input_requests_by_session ON input_requests (tenant, session_id);
-- Every message in a channel asks whether its conversation waits for an answer.
CREATE INDEX input_requests_open_by_conversation ON input_requests (tenant, conversation_id) WHERE status = 'open';
-- Approvals that hold for a whole conversation are read when a call would ask again.
CREATE INDEX input_requests_approved ON input_requests (tenant, conversation_id)
    WHERE kind = 'tool_approval' AND status = 'answered';
CREATE UNIQUE INDEX input_requests_by_event ON input_requests (tenant, event_key)
    WHERE status = 'open' AND event_key IS NOT NULL;

-- Subagents that wait for values of their variables: the call that should have started each, until somebody gives them.
CREATE TABLE variable_requests (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    conversation_id text        NOT NULL,
    thread_id       text        NOT NULL,                -- of the parent
    session_id      text        NOT NULL,                -- of the parent
    agent           text        NOT NULL,
    name            text        NOT NULL,
    instance        boolean     NOT NULL,                -- its name is its own
    needs           text        NOT NULL,                -- JSON: the variables, and which of them lack a value
    spawn           text        NOT NULL,                -- JSON: what to ask of the conversation; secrets are encrypted
    status          text        NOT NULL DEFAULT 'open',
    attempts        integer     NOT NULL DEFAULT 0,
    answered_by     text,
    answered_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX variable_requests_by_conversation ON variable_requests (tenant, conversation_id);
CREATE UNIQUE INDEX variable_requests_by_instance ON variable_requests (tenant, thread_id, name)
    WHERE instance AND status <> 'started';
CREATE INDEX variable_requests_answered ON variable_requests (answered_at) WHERE status = 'answered';

-- Values of variables that a tenant has for all its threads; those that are secret are encrypted.
CREATE TABLE tenant_variables (
    tenant      text        NOT NULL,
    name        text        NOT NULL,
    value       text        NOT NULL,
    updated_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Files and workspaces

-- The bytes of files, once each.
CREATE TABLE blobs (
    tenant  text        NOT NULL,
    sha256  text        NOT NULL,
    size    bigint      NOT NULL,
    content bytea       NOT NULL,
    put_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, sha256)
);

-- Bytes that lost a user and may be nobody's now. One that was put again lately may be about to be used.
CREATE TABLE loose_blobs (
    tenant  text NOT NULL,
    sha256  text NOT NULL,
    PRIMARY KEY (tenant, sha256)
);

-- Uploads and artifacts.
CREATE TABLE files (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    sha256      text        NOT NULL,
    size        bigint      NOT NULL,
    name        text        NOT NULL,
    media_type  text        NOT NULL,
    type        text        NOT NULL DEFAULT 'file',
    description text        NOT NULL DEFAULT '',
    url         text,                              -- of an artifact that is an address; its file holds it as text
    session_id  text,                              -- the session that saved it as an artifact
    path        text,                              -- its path in the workspace of that session
    created_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX files_by_session ON files (tenant, session_id, id);
CREATE INDEX files_by_content ON files (tenant, sha256);

-- Which sessions were given an uploaded file; it is removed with the last of them.
CREATE TABLE file_uses (
    tenant      text NOT NULL,
    file_id     text NOT NULL,
    session_id  text NOT NULL,
    PRIMARY KEY (tenant, file_id, session_id)
);
CREATE INDEX file_uses_by_session ON file_uses (tenant, session_id);

-- Files of messages that wait for their turn; they enter the workspace when their session begins.
CREATE TABLE queued_files (
    tenant     text NOT NULL,
    session_id text NOT NULL,
    manifest   text NOT NULL,                      -- JSON: entries of the workspace, by path
    PRIMARY KEY (tenant, session_id)
);

CREATE FUNCTION manifest_bytes(manifest text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(sum((entry.value ->> 'size')::bigint), 0)::bigint FROM jsonb_each(manifest::jsonb) entry
$$;

-- What a workspace holds: the newest manifest, from which another worker restores it.
CREATE TABLE workspaces (
    tenant        text        NOT NULL,
    id            text        NOT NULL,
    version       bigint      NOT NULL DEFAULT 0,
    manifest      text        NOT NULL DEFAULT '{}',   -- JSON: path -> {sha256, size, mode}
    tree          text,                                -- JSON: the commit under the files of the manifest, if there is one
    briefing      text,                                -- what its files say to every model that works in it
    bytes         bigint      GENERATED ALWAYS AS (manifest_bytes(manifest)) STORED,
    history_bytes bigint      NOT NULL DEFAULT 0,      -- of the earlier versions, which reruns need
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX workspaces_by_tenant ON workspaces (tenant) INCLUDE (bytes, history_bytes);
CREATE INDEX workspaces_by_setup ON workspaces (tenant, (tree::jsonb ->> 'setup'), updated_at) WHERE tree IS NOT NULL;

-- Repositories that tasks name, and how their trees are prepared.
CREATE TABLE environments (
    tenant     text        NOT NULL,
    name       text        NOT NULL,
    spec       text        NOT NULL,               -- JSON
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);

-- Secrets that requests to certain hosts get on their way out of a sandbox.
CREATE TABLE credentials (
    tenant     text        NOT NULL,
    owner      text        NOT NULL,               -- "": the tenant; user/KEY; task/CONVERSATION: until its task ends
    name       text        NOT NULL,
    rules      text        NOT NULL,               -- JSON
    secret     text        NOT NULL,               -- encrypted
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, owner, name)
);

-- What each change of a workspace replaced: going back through these, from the newest, leads to any earlier moment.
CREATE TABLE workspace_changes (
    tenant      text        NOT NULL,
    id          text        NOT NULL,              -- the workspace
    version     bigint      NOT NULL,              -- that the change led to
    undo        text        NOT NULL,              -- JSON: path -> its entry before, or null where there was none
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, id, version)
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Agents

-- The definitions of agents; a session keeps the version it began with.
CREATE TABLE agent_versions (
    owner       text        NOT NULL,              -- a tenant, '*' for the definitions shipped as files, 'rerun/<session>'
    name        text        NOT NULL,
    version     integer     NOT NULL,
    digest      text        NOT NULL,              -- of the definition; an unchanged one makes no new version
    definition  text        NOT NULL,              -- JSON
    created_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, name, version)
);

-- Agents that were removed: versions up to that moment can be started no more. Sessions that have one keep it.
CREATE TABLE agent_removals (
    tenant      text        NOT NULL,              -- as the owner of the versions: a tenant, or '*'
    name        text        NOT NULL,
    removed_by  text        NOT NULL,
    removed_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Notifications

-- Who is notified of which events. Addresses and secrets are encrypted.
CREATE TABLE subscriptions (
    tenant        text        NOT NULL,
    id            text        NOT NULL,
    name          text        NOT NULL,
    channel       text        NOT NULL,                   -- webhook | slack | email | push
    target        text        NOT NULL,                   -- a URL, which may hold a token, or an e-mail address
    target_shown  text        NOT NULL,                   -- what people see of it
    events        text[]      NOT NULL,
    every_task    boolean     NOT NULL,                   -- false: only tasks that name it
    subagents     boolean     NOT NULL,                   -- also when subagents end; by default only their parent learns of it
    secret        text,                                   -- signs webhooks
    old_secret    text,                                   -- signs too, until old_until
    old_until     timestamptz,
    status        text        NOT NULL DEFAULT 'active',  -- active | disabled
    failing_since timestamptz,
    last_error    text,
    created_by    text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, name)
);

-- One event for one subscription, or a reply in a channel. The body is fixed when it is written, so every attempt sends
-- the same bytes. Deliveries of one lane are sent one at a time, in the order in which they were written.
CREATE TABLE deliveries (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    number          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    subscription_id text        NOT NULL,
    event           text        NOT NULL,
    session_id      text,
    seq             bigint,
    conversation_id text,                                   -- of a reply: one address has one conversation
    lane            text        NOT NULL GENERATED ALWAYS AS (coalesce(conversation_id, id)) STORED,
    body            text        NOT NULL,                   -- JSON
    status          text        NOT NULL DEFAULT 'pending', -- pending | delivered | failed
    dispatched      boolean     NOT NULL DEFAULT false,     -- its workflow was started
    attempts        integer     NOT NULL DEFAULT 0,
    last_try        text,                                   -- workflow run and activity of the attempt counted last
    last_error      text,
    next_at         timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    begun_at        timestamptz NOT NULL DEFAULT now(),     -- of the present row of attempts: a resend begins another
    delivered_at    timestamptz,
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, subscription_id, session_id, seq)
);
CREATE INDEX deliveries_pending ON deliveries (created_at) WHERE status = 'pending';
CREATE INDEX deliveries_undispatched ON deliveries (number) WHERE status = 'pending' AND NOT dispatched;
CREATE INDEX deliveries_by_lane ON deliveries (tenant, lane, number) WHERE status = 'pending';
CREATE INDEX deliveries_by_subscription ON deliveries (tenant, subscription_id, id);
CREATE INDEX deliveries_by_session ON deliveries (tenant, session_id);

-- What the feed of a tenant shows, numbered without gaps.
CREATE TABLE notices (
    tenant          text        NOT NULL,
    number          bigint      NOT NULL,
    type            text        NOT NULL,
    session_id      text,
    conversation_id text,
    created_by      text        NOT NULL,          -- the key whose session it is about
    at              timestamptz NOT NULL,
    data            text        NOT NULL,          -- JSON
    PRIMARY KEY (tenant, number)
);
CREATE INDEX notices_by_age ON notices (at);
CREATE INDEX notices_by_session ON notices (tenant, session_id);


-- ---------------------------------------------------------------------------------------------------------------------
-- Channels

-- A service whose users write to an agent.
CREATE TABLE connectors (
    tenant      text        NOT NULL,
    id          text        NOT NULL UNIQUE,       -- names the connector, and so its tenant, to the service
    name        text        NOT NULL,
    kind        text        NOT NULL,              -- webhook | slack | email
    agent       text        NOT NULL,
    target      text        NOT NULL,              -- what people see of where answers are sent
    secrets     text        NOT NULL,              -- encrypted JSON: target, signing, token
    debounce_ms integer     NOT NULL,              -- above 0: messages that wait are answered together, and a first waits so long
    created_by  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);

-- Where the conversation of an address sends its answers.
CREATE TABLE channels (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    connector       text        NOT NULL,          -- by name, so that a connector made again keeps its conversations
    channel_id      text        NOT NULL,
    user_id         text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id)
);

-- The one conversation of each address, made when the first message arrives.
CREATE TABLE addresses (
    tenant          text        NOT NULL,
    kind            text        NOT NULL,
    key             text        NOT NULL,
    conversation_id text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, kind, key)
);
CREATE INDEX addresses_by_conversation ON addresses (tenant, conversation_id);

-- The keys of accepted messages, by which a repeat is known.
CREATE TABLE address_messages (
    tenant          text        NOT NULL,
    conversation_id text        NOT NULL,
    key             text        NOT NULL,          -- the sender's name for the message; the same is accepted once
    session_id      text        NOT NULL,          -- the session that it became, or that it was given to
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation_id, key)
);
CREATE INDEX address_messages_by_age ON address_messages (created_at);


-- ---------------------------------------------------------------------------------------------------------------------
-- Schedules and missions

-- Tasks that begin by the clock. A mission is one with budgets, conditions that end it, and risks that pause it.
CREATE TABLE schedules (
    tenant          text           NOT NULL,
    id              text           NOT NULL,       -- never used again: a deleted schedule keeps its row
    name            text           NOT NULL,
    rules           text           NOT NULL,       -- JSON: ScheduleRules
    session         text           NOT NULL,       -- JSON: the NewSession that each run becomes
    prompt          text           NOT NULL,
    conversation_id text           NOT NULL,
    paused          boolean        NOT NULL DEFAULT false,
    pause_reason    text,
    status          text,                          -- of a mission: working, or how it ended
    reason          text,                          -- of a mission: why it ended
    summary         text,
    failures        integer        NOT NULL DEFAULT 0,
    backfilled      tstzmultirange NOT NULL DEFAULT '{}',   -- times whose runs were asked for later: never treated as missed
    version         bigint         NOT NULL DEFAULT 1,
    synced          bigint         NOT NULL DEFAULT 0,      -- the version that Temporal has
    created_by      text           NOT NULL,
    created_at      timestamptz    NOT NULL DEFAULT now(),
    deleted_at      timestamptz,                   -- of a mission: when it ended
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX schedules_by_name ON schedules (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX schedules_unsynced ON schedules (tenant, id) WHERE synced < version;
CREATE INDEX missions_by_conversation ON schedules (tenant, conversation_id) WHERE status IS NOT NULL;
CREATE INDEX missions_working ON schedules (tenant, id) WHERE status = 'working';

-- What each tick of a schedule did: one row for each scheduled time.
CREATE TABLE schedule_runs (
    tenant       text        NOT NULL,
    schedule_id  text        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    status       text        NOT NULL,
    reason       text        NOT NULL,
    session_id   text,
    manual       boolean     NOT NULL,
    settled      boolean     NOT NULL,             -- false: how its session ends is yet to be counted
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, schedule_id, scheduled_at)
);
CREATE INDEX schedule_runs_unsettled ON schedule_runs (tenant, session_id) WHERE NOT settled;
CREATE INDEX schedule_runs_by_session ON schedule_runs (tenant, session_id) WHERE session_id IS NOT NULL;


-- ---------------------------------------------------------------------------------------------------------------------
-- Triggers

-- What events from outside lead to.
CREATE TABLE triggers (
    tenant     text        NOT NULL,
    id         text        NOT NULL UNIQUE,        -- names the trigger, and so its tenant; never used again
    name       text        NOT NULL,
    rules      text        NOT NULL,               -- JSON: TriggerRules
    session    text,                               -- JSON: the NewSession that an event becomes; null: it is only waited for
    prompt     text        NOT NULL,
    secret     text        NOT NULL,               -- encrypted
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX triggers_by_name ON triggers (tenant, name) WHERE deleted_at IS NULL;

-- Events that arrived, or that agents emitted.
CREATE TABLE external_events (
    tenant          text        NOT NULL,
    source          text        NOT NULL,          -- the id of a trigger, or 'emit'
    event_id        text        NOT NULL,          -- by which a repeat is known
    type            text        NOT NULL,
    key             text,                          -- by which a wait finds it
    body            text,                          -- what the agent reads; only until a session has it
    outcome         text        NOT NULL DEFAULT 'kept',
    session_id      text,
    conversation_id text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, source, event_id)
);
CREATE INDEX external_events_kept ON external_events (tenant, key, created_at) WHERE outcome = 'kept';
CREATE INDEX external_events_by_time ON external_events (tenant, source, created_at);

-- Which threads get which events of agents.
CREATE TABLE event_subscriptions (
    tenant          text        NOT NULL,
    thread_id       text        NOT NULL,
    pattern         text        NOT NULL,
    conversation_id text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, thread_id, pattern)
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Callers of the API

-- Only a hash of a key is kept. The tenant follows from the key, so a key's id is unique over all tenants.
CREATE TABLE api_keys (
    tenant      text        NOT NULL,
    id          text        NOT NULL UNIQUE,
    name        text        NOT NULL,
    digest      text        NOT NULL,              -- SHA-256 of the secret, in hex
    rights      text[]      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz,
    PRIMARY KEY (tenant, id)
);

-- When a key's allowance is next full. Losing this in a crash costs nothing, so it is not logged and never waits for a disk.
CREATE UNLOGGED TABLE key_rates (
    tenant      text        NOT NULL,
    id          text        NOT NULL,
    full_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

-- Cookies of the console that were signed out before they expired; every process looks here.
CREATE TABLE signed_out_cookies (
    id         text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

-- What requests with an Idempotency-Key were answered.
CREATE TABLE idempotency (
    tenant      text        NOT NULL,
    key         text        NOT NULL,
    digest      text        NOT NULL,              -- of route and body
    status      integer     NOT NULL,
    response    text        NOT NULL,              -- JSON
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- Requests that are handled now and must not be handled twice at once, also not by another API process. A row whose
-- time is over belongs to a process that died.
CREATE TABLE request_locks (
    tenant text        NOT NULL,
    name   text        NOT NULL,
    holder text        NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- What only a face (another protocol over the same tasks) knows of a request: a row for each public id.
CREATE TABLE face_requests (
    tenant      text        NOT NULL,
    face        text        NOT NULL,              -- the protocol: responses
    public_id   text        NOT NULL,              -- derives from the session's
    session_id  text        NOT NULL,
    part        integer     NOT NULL,              -- of the session: which of the parts of its log this request is
    request     text        NOT NULL,              -- JSON, as the face reads it
    digest      text        NOT NULL,              -- of caller and request: finds what a repeat asked for before
    created_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz,                       -- hidden in this face; the task stays
    PRIMARY KEY (tenant, face, public_id)
);
CREATE INDEX face_requests_by_session ON face_requests (tenant, session_id);
CREATE INDEX face_requests_by_digest ON face_requests (tenant, digest, created_at);


-- ---------------------------------------------------------------------------------------------------------------------
-- The audit log

-- Append-only. Each entry holds the hash of the one before it in its chain: a conversation's, or '' for the tenant's own.
-- It has only digests of what callers and agents wrote, so that nothing need ever be removed from it.
CREATE TABLE audit (
    tenant      text        NOT NULL,
    chain       text        COLLATE "C" NOT NULL,  -- so that the tenant's own comes first everywhere
    seq         bigint      NOT NULL,
    number      bigint      GENERATED ALWAYS AS IDENTITY,   -- for pages over all chains
    at          timestamptz NOT NULL,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    session_id  text        NOT NULL,
    subject     text        NOT NULL,
    digest      text        NOT NULL,              -- SHA-256 of the inputs, in hex
    previous    text        NOT NULL,
    hash        text        NOT NULL,
    PRIMARY KEY (tenant, chain, seq)
);
CREATE INDEX audit_by_number ON audit (tenant, number);
CREATE INDEX audit_by_session ON audit (tenant, session_id, number) WHERE session_id <> '';

-- The newest entry of each chain.
CREATE TABLE audit_heads (
    tenant  text   NOT NULL,
    chain   text   NOT NULL,
    seq     bigint NOT NULL,
    hash    text   NOT NULL DEFAULT '',
    sealed  bigint NOT NULL DEFAULT 0,             -- the last one that the tenant's own chain vouches for
    PRIMARY KEY (tenant, chain)
) WITH (fillfactor = 50);
CREATE INDEX audit_unsealed ON audit_heads (tenant, chain) WHERE seq > sealed AND chain <> '';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_empty BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Messages from outside for a live session; those that open one are part of its submission. Deferred, so that the lock
-- of the chain is taken last, whatever else their transaction does.
CREATE FUNCTION audit_message() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    m inbox%ROWTYPE := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    PERFORM append_audit(m.tenant, m.conversation_id, m.author,
                         CASE TG_OP WHEN 'DELETE' THEN 'withdraw_message' ELSE 'message' END,
                         (SELECT id FROM sessions WHERE tenant = m.tenant AND thread_id = m.thread_id AND live), m.id, m.parts);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audited AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.taken_by IS NULL AND NEW.source IS NULL) EXECUTE FUNCTION audit_message();
CREATE CONSTRAINT TRIGGER withdrawal_audited AFTER DELETE ON inbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.taken_by IS NULL AND OLD.source IS NULL) EXECUTE FUNCTION audit_message();


-- ---------------------------------------------------------------------------------------------------------------------
-- Workers

-- Who works: each worker says so every few seconds, with what it has, so that a definition can be checked without asking.
CREATE TABLE workers (
    id          text        PRIMARY KEY,
    sandbox     text        NOT NULL,
    tools       text[]      NOT NULL,
    handlers    text[]      NOT NULL,
    hooks       text[]      NOT NULL,
    problems    text[]      NOT NULL,              -- what is wrong with files of agents and of own tools, as it sees them
    models      text[]      NOT NULL,              -- JSON: the providers of models, as it reaches them
    started_at  timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now(),
    swept_at    timestamptz                        -- when it last began a sweep; one worker sweeps for all
);


-- ---------------------------------------------------------------------------------------------------------------------
-- Documents: each type has the fields of the model of its name, so that no function and no query reads keys.

-- Arguments of functions: accepting a session, and its end
CREATE TYPE acceptance AS (
    session jsonb, inbox jsonb, idempotency jsonb, live_quota bigint, take text[], mail text[], queue boolean,
    in_order boolean, spawns boolean, deferred boolean, budget jsonb, delivery text, metadata jsonb, manifest text,
    parent_thread_id text, thread_name text, face jsonb, credentials jsonb);
CREATE TYPE new_budget AS (
    deadline timestamptz, max_steps bigint, max_tokens bigint, max_cost_usd double precision, max_tool_calls bigint);
CREATE TYPE queued_begin AS (tenant text, session_id text, take text[]);
CREATE TYPE session_ref AS (tenant text, session_id text, conversation_id text);
CREATE TYPE session_ending AS (
    ref session_ref, run text, reason text, partial boolean, error_type text, error text, output text, typed boolean,
    replied boolean, head text, usage text, step integer, version bigint, nodes jsonb, events jsonb, status text,
    message_id text, open_result text, seen bigint);

-- a model step
CREATE TYPE budget_use AS (steps bigint, tokens bigint, cost_usd double precision, tool_calls bigint);
CREATE TYPE once_event AS (name text, event jsonb);
CREATE TYPE step_begin AS (
    tenant text, session_id text, run text, idem text, version bigint, step integer, attempt integer, head text,
    take text[], purpose text, events jsonb, again jsonb);
CREATE TYPE step_commit AS (
    tenant text, session_id text, run text, idem text, version bigint, head text, line text, take text[], usage text,
    used budget_use, progress text, status_text text, reply text, nodes jsonb, once jsonb, events jsonb);

-- a tool call, or a command that checks a result
CREATE TYPE tool_claim AS (
    tenant text, session_id text, run text, node text, call_index integer, tool text, actor text, effect text, holder text,
    attempt integer, asks boolean, kind text, description text, command text, withheld boolean, called jsonb,
    unknown text, lost jsonb, spent text, refused jsonb);
CREATE TYPE tool_commit AS (
    tenant text, session_id text, run text, node text, call_index integer, actor text, holder text, attempt integer,
    state text, result text, description text, progress text, status_text text, plan text, files jsonb,
    shown text, sources text, used budget_use, usage text, denied boolean, rule text, handed_to text, events jsonb);

-- requests to people, acceptance criteria
CREATE TYPE request_opening AS (tenant text, run text, request jsonb, most bigint, events jsonb);
CREATE TYPE request_answer AS (
    tenant text, id text, session_id text, answer text, by text, actor text, events jsonb);
CREATE TYPE request_settlement AS (tenant text, run text, id text, expired jsonb);
CREATE TYPE acceptance_record AS (
    tenant text, run text, session_id text, round integer, version bigint, acceptance text, usage text, used budget_use,
    message jsonb, events jsonb);

-- events and notifications; `call` and `attempt` name the attempt that emits an event, null: it is not part of a call
CREATE TYPE event_row AS (
    tenant text, session_id text, conversation_id text, type text, terminal boolean, at timestamptz, data text, call text,
    attempt integer);
CREATE TYPE new_notice AS (
    tenant text, conversation_id text, type text, at timestamptz, data text, session_id text, seq bigint);
CREATE TYPE attempt_record AS (
    tenant text, id text, attempt text, status text, error text, gone boolean, pause_s double precision);

-- Documents inside rows of sessions
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
    input_timeout bigint, on_input_timeout text, environment text, ref text, refs jsonb, repository text,
    repositories jsonb, attempts integer);
CREATE TYPE submitted_context AS (files text[]);
CREATE TYPE submitted_channel AS (message_id text, thread text);
CREATE TYPE submitted_schedule AS (id text, silent_reply text);
CREATE TYPE submitted_task AS (
    input jsonb, tags text[], user_id text, arguments text, acceptance_criteria jsonb, context submitted_context,
    config submitted_config, channel submitted_channel, schedule submitted_schedule, transport text, visible boolean,
    constraints text[]);
