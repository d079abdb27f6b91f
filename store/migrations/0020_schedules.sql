-- Schedules and what each of their ticks did: one row for each scheduled time.

CREATE TABLE schedules (
    tenant          text        NOT NULL,
    id              text        NOT NULL,   -- never used again: a deleted schedule keeps its row
    name            text        NOT NULL,
    rules           text        NOT NULL,   -- JSON: ScheduleRules
    session         text        NOT NULL,   -- JSON: the NewSession that each run becomes
    prompt          text        NOT NULL,
    conversation_id text        NOT NULL,
    paused          boolean     NOT NULL DEFAULT false,
    pause_reason    text,
    failures        int         NOT NULL DEFAULT 0,
    version         bigint      NOT NULL DEFAULT 1,
    synced          bigint      NOT NULL DEFAULT 0,   -- the version that Temporal has
    created_by      text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX schedules_by_name ON schedules (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX schedules_unsynced ON schedules (tenant, id) WHERE synced < version;

CREATE TABLE schedule_runs (
    tenant       text        NOT NULL,
    schedule_id  text        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    status       text        NOT NULL,
    reason       text        NOT NULL DEFAULT '',
    session_id   text,
    manual       boolean     NOT NULL DEFAULT false,
    settled      boolean     NOT NULL DEFAULT true,   -- false: how its session ends is yet to be counted
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, schedule_id, scheduled_at)
);
CREATE INDEX schedule_runs_unsettled ON schedule_runs (tenant, session_id) WHERE NOT settled;
