-- The accounts that the cluster itself needs, in the database postgres. The callback gives this to each new primary, so
-- it must change nothing where all is there, and hold for a volume that another image made. The operator gives it to
-- primaries that serve already, by another client than psql.
SET client_min_messages = warning;
-- Here, and not as the callback connects: before 17 there is none, and no session with it.
SELECT pg_catalog.set_config('transaction_timeout', '0', false)
    WHERE pg_catalog.current_setting('transaction_timeout', true) <> '';
BEGIN;
-- No standby may be there yet to wait for.
SET LOCAL synchronous_commit = local;
SET LOCAL search_path = pg_catalog;
-- Two that come at once, after a callback that was killed, wait for each other.
DO $$
DECLARE
    account text;
    place text;
    -- Of the data, whatever its name: Patroni's account.
    administrator CONSTANT text := (SELECT rolname FROM pg_roles WHERE oid = 10);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('steersman roles'));
    FOREACH account IN ARRAY ARRAY[
        'steersman_replication', 'steersman_rewind', 'steersman_operator', 'steersman_superuser', 'steersman_pooler',
        'steersman_monitor', 'steersman_queries'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = account) THEN
            EXECUTE format('CREATE ROLE %I', account);
        END IF;
        -- Whatever else limits one, or changes what it does.
        EXECUTE format('ALTER ROLE %I NOBYPASSRLS CONNECTION LIMIT -1 VALID UNTIL ''infinity''', account);
        FOR place IN
            SELECT CASE WHEN d.oid IS NULL THEN '' ELSE format(' IN DATABASE %I', d.datname) END
            FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase
            WHERE s.setrole = to_regrole(account)
        LOOP
            EXECUTE format('ALTER ROLE %I%s RESET ALL', account, place);
        END LOOP;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), account);
    END LOOP;
    -- A login trigger of this database must not lock these out. Since 17.
    IF current_setting('event_triggers', true) IS NOT NULL THEN
        FOREACH account IN ARRAY ARRAY[
            'steersman_rewind', 'steersman_operator', 'steersman_superuser', 'steersman_pooler', 'steersman_queries',
            administrator
        ] LOOP
            EXECUTE format('ALTER ROLE %I IN DATABASE %I SET event_triggers = off', account, current_database());
        END LOOP;
        -- Triggers of other databases must not prevent changes there.
        ALTER ROLE steersman_operator SET event_triggers = off;
        ALTER ROLE steersman_superuser SET event_triggers = off;
    END IF;
    IF NOT (SELECT rolcanlogin FROM pg_roles WHERE rolname = administrator) THEN
        EXECUTE format('ALTER ROLE %I LOGIN', administrator);
    END IF;
    -- 16 and later: a role is administered by its creator, and this account may be another one of the same name.
    IF current_setting('server_version_num')::integer >= 160000 THEN
        FOR account IN
            SELECT rolname FROM pg_roles
            -- The operator's own role has the mark of the data.
            WHERE shobj_description(oid, 'pg_authid') LIKE 'steersman: %' AND NOT rolsuper
                AND oid <> to_regrole('steersman_operator')
                AND NOT pg_has_role('steersman_operator', oid, 'MEMBER WITH ADMIN OPTION')
        LOOP
            EXECUTE format(
                'GRANT %I TO steersman_operator WITH ADMIN TRUE, INHERIT FALSE, SET FALSE', account
            );
        END LOOP;
    END IF;
END $$;

-- None has a password: pg_hba lets each in by a certificate of the cluster's client authority and by nothing else.
ALTER ROLE steersman_replication LOGIN INHERIT REPLICATION NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD NULL;
ALTER ROLE steersman_rewind LOGIN INHERIT NOREPLICATION NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD NULL;
ALTER ROLE steersman_operator LOGIN NOINHERIT NOREPLICATION NOSUPERUSER CREATEROLE CREATEDB PASSWORD NULL;
ALTER ROLE steersman_superuser LOGIN INHERIT NOREPLICATION SUPERUSER PASSWORD NULL;
ALTER ROLE steersman_pooler LOGIN INHERIT NOREPLICATION NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD NULL;
-- Their statements may contain verifiers of passwords, which no log of slow statements may show.
ALTER ROLE steersman_operator SET log_min_duration_statement = -1;
ALTER ROLE steersman_superuser SET log_min_duration_statement = -1;
-- Sessions of the exporter become this role. It never logs in.
ALTER ROLE steersman_monitor NOLOGIN INHERIT NOREPLICATION NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD NULL;
-- Sessions of the exporter for queries of users. Users grant to it what these read.
ALTER ROLE steersman_queries LOGIN INHERIT NOREPLICATION NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD NULL;

-- What pg_rewind calls. Source: PostgreSQL's documentation of pg_rewind, "Notes".
GRANT EXECUTE ON FUNCTION
    pg_ls_dir(text, boolean, boolean),
    pg_stat_file(text, boolean),
    pg_read_binary_file(text),
    pg_read_binary_file(text, bigint, bigint, boolean)
TO steersman_rewind;
GRANT pg_monitor TO steersman_operator, steersman_monitor, steersman_queries;
-- The operator connects while clients hold all other connections. The role exists from version 16 on.
DO $$ BEGIN
    IF pg_catalog.to_regrole('pg_use_reserved_connections') IS NOT NULL THEN
        EXECUTE 'GRANT pg_use_reserved_connections TO steersman_operator WITH INHERIT TRUE';
    END IF;
END $$;

-- How PgBouncer learns the verifier of who logs in to it: nobody who could read others', and no account of ours.
CREATE SCHEMA IF NOT EXISTS steersman;
REVOKE ALL ON SCHEMA steersman FROM PUBLIC;
GRANT USAGE ON SCHEMA steersman TO steersman_pooler;
CREATE OR REPLACE FUNCTION steersman.pooled(login text, OUT username text, OUT verifier text)
    RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
    AS $$
        SELECT rolname::text, rolpassword FROM pg_authid
        WHERE rolname = login AND rolcanlogin AND NOT rolsuper AND NOT rolreplication AND NOT rolcreaterole
            AND rolpassword IS NOT NULL AND (rolvaliduntil IS NULL OR rolvaliduntil > now())
    $$;
REVOKE ALL ON FUNCTION steersman.pooled(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION steersman.pooled(text) TO steersman_pooler;

-- How the operator compares passwords. Of a superuser's it learns no more than whether it is another than before.
GRANT USAGE ON SCHEMA steersman TO steersman_operator;
CREATE OR REPLACE FUNCTION steersman.verifiers(names name[]) RETURNS TABLE (name name, verifier text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT a.rolname, CASE WHEN a.rolsuper
            THEN 'sha256:' || encode(sha256(convert_to(a.rolpassword, 'UTF8')), 'hex') ELSE a.rolpassword END
        FROM pg_catalog.pg_authid a WHERE a.rolname = ANY (names);
    END;
REVOKE ALL ON FUNCTION steersman.verifiers(name[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION steersman.verifiers(name[]) TO steersman_operator;

-- Writes of the pod go here, by an account that is limited as an application's.
CREATE TABLE IF NOT EXISTS steersman.heartbeat (id integer PRIMARY KEY, at timestamptz NOT NULL);
REVOKE ALL ON steersman.heartbeat FROM PUBLIC;
GRANT USAGE ON SCHEMA steersman TO steersman_queries;
GRANT SELECT, INSERT, UPDATE ON steersman.heartbeat TO steersman_queries;
COMMIT;
