-- Roles and their rights, applied after the migrations at every start. Only the owner's role may change the schema.
--
-- errand_api     sees and changes only the rows of the tenant that its connection has entered (errand.tenant). The
--                policies also apply to a statement that forgets its tenant.
-- errand_worker  serves all tenants.
--
-- A table without a column `tenant` is open to the API only if it is named here.
DO $$
DECLARE
    tenant  constant text := '(SELECT current_setting(''errand.tenant'', true))';  -- once per statement, not per row
    role    text;
    named   text;
BEGIN
    FOREACH role IN ARRAY ARRAY['errand_api', 'errand_worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;  -- the migrations of another database have just created it
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'the roles errand_api and errand_worker do not exist, and % may not create them', current_user;
                    RETURN;
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', role);
        EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO %I', role);
    END LOOP;
    FOR named IN
        SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
         WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND column_name = 'tenant' ORDER BY table_name
    LOOP
        IF named NOT IN ('api_keys', 'key_rates') THEN
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO errand_api', named);
        END IF;
        IF EXISTS (SELECT FROM pg_policies WHERE schemaname = 'public' AND tablename = named) THEN CONTINUE; END IF;
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('CREATE POLICY all_tenants ON %I TO errand_worker USING (true) WITH CHECK (true)', named);
        EXECUTE format('CREATE POLICY one_tenant ON %1$I TO errand_api USING (tenant = %2$s) WITH CHECK (tenant = %2$s)', named, tenant);
        IF named IN ('audit', 'audit_heads', 'agent_removals') THEN  -- also the rows about shipped agents, which concern everybody
            EXECUTE format('CREATE POLICY shared ON %I FOR SELECT TO errand_api USING (tenant = ''*'')', named);
        END IF;
    END LOOP;

    -- Only through these functions does the API see other tenants or secrets of keys.
    REVOKE EXECUTE ON FUNCTION use_key, find_connector, find_trigger, count_sessions FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION use_key, find_connector, find_trigger, count_sessions TO errand_api;
    GRANT SELECT (tenant, id, revoked_at, expires_at) ON api_keys TO errand_api;
    GRANT SELECT ON workers TO errand_api;
    GRANT SELECT, INSERT, DELETE ON signed_out_cookies TO errand_api;
    GRANT SELECT, INSERT, UPDATE ON agent_versions TO errand_api;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO errand_worker;
    REVOKE ALL ON api_keys, key_rates, signed_out_cookies, migrations FROM errand_worker;
    IF NOT EXISTS (SELECT FROM pg_policies WHERE schemaname = 'public' AND tablename = 'signed_out_cookies') THEN
        ALTER TABLE signed_out_cookies ENABLE ROW LEVEL SECURITY;
        CREATE POLICY read ON signed_out_cookies FOR SELECT TO errand_api USING (true);
        CREATE POLICY add ON signed_out_cookies FOR INSERT TO errand_api WITH CHECK (true);
        CREATE POLICY expire ON signed_out_cookies FOR DELETE TO errand_api USING (expires_at < now());
    END IF;
    IF NOT EXISTS (SELECT FROM pg_policies WHERE schemaname = 'public' AND tablename = 'agent_versions') THEN
        ALTER TABLE agent_versions ENABLE ROW LEVEL SECURITY;
        CREATE POLICY all_tenants ON agent_versions TO errand_worker USING (true) WITH CHECK (true);
        EXECUTE format('CREATE POLICY one_tenant ON agent_versions TO errand_api USING (owner = %1$s) WITH CHECK (owner = %1$s)', tenant);
        CREATE POLICY shared ON agent_versions FOR SELECT TO errand_api USING (owner = '*');
        -- a rerun's own definition: its session shows to which tenant it belongs
        CREATE POLICY reruns ON agent_versions TO errand_api USING (
            owner LIKE 'rerun/%' AND EXISTS (SELECT FROM sessions WHERE id = substr(owner, 7)));
    END IF;
END $$;
