-- Quotas: what a tenant's workspaces hold, now and in the earlier versions that reruns need.

CREATE FUNCTION manifest_bytes(manifest text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(sum((entry.value ->> 'size')::bigint), 0)::bigint FROM jsonb_each(manifest::jsonb) entry
$$;

ALTER TABLE workspaces
    ADD COLUMN bytes         bigint GENERATED ALWAYS AS (manifest_bytes(manifest)) STORED,
    ADD COLUMN history_bytes bigint NOT NULL DEFAULT 0;
CREATE INDEX workspaces_by_tenant ON workspaces (tenant) INCLUDE (bytes, history_bytes);

UPDATE workspaces w SET history_bytes = (
    SELECT coalesce(sum((entry.value ->> 'size')::bigint), 0)
      FROM workspace_changes c, jsonb_each(c.undo::jsonb) entry
     WHERE c.tenant = w.tenant AND c.id = w.id AND jsonb_typeof(entry.value) = 'object');
