-- Missions: a schedule with budgets, conditions that end it, and risks that pause it.

CREATE TABLE missions (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    name            text        NOT NULL,
    schedule_id     text        NOT NULL,
    conversation_id text        NOT NULL,
    rules           text        NOT NULL,   -- JSON: MissionRules
    timezone        text        NOT NULL,   -- in which its days begin
    status          text        NOT NULL DEFAULT 'working',
    paused          boolean     NOT NULL DEFAULT false,
    pause_reason    text,
    reason          text,
    summary         text,
    created_by      text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    ended_at        timestamptz,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX missions_by_schedule ON missions (tenant, schedule_id);
CREATE INDEX missions_working ON missions (tenant, id) WHERE status = 'working';
