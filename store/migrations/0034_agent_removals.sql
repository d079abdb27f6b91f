-- Agents that were removed: versions up to that moment can be started no more. Sessions that have one keep it.
CREATE TABLE agent_removals (
    tenant      text        NOT NULL,              -- as the owner of the versions: a tenant, or '*'
    name        text        NOT NULL,
    removed_by  text        NOT NULL DEFAULT '',
    removed_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- What is wrong with files of agents and of own tools, as each worker sees it.
ALTER TABLE workers ADD COLUMN problems text[] NOT NULL DEFAULT '{}';
