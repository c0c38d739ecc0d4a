"""What the owner of a database left there for superusers, and `steersman-upgrade`, which is one."""

from __future__ import annotations

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume
from database_support.unit.image_script import script

upgrade = script("postgresql", "upgrade")

# Whoever is caught is written down. What would make the trap act as the superuser, afterwards or at once, is tried.
TRAPS = """
CREATE ROLE shop;
CREATE DATABASE shop OWNER shop;
\\connect shop
CREATE EXTENSION amcheck;
SET SESSION AUTHORIZATION shop;
CREATE TABLE public.trapped (who name, trap text);
CREATE TABLE public.later (trap text);
GRANT INSERT ON public.trapped, public.later TO PUBLIC;
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO public.trapped VALUES (current_user, new.trap); RETURN new; END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON public.later DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION public.note();
CREATE FUNCTION public.spring(trap text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  BEGIN INSERT INTO public.later VALUES (trap); EXCEPTION WHEN OTHERS THEN NULL; END;
  BEGIN RESET ROLE; EXCEPTION WHEN OTHERS THEN NULL; END;
  INSERT INTO public.trapped VALUES (current_user, trap);
  RETURN true;
END $$;
CREATE FUNCTION public.same(a name, b name) RETURNS boolean LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring('name'); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.same);
CREATE FUNCTION public.same(a oid, b oid) RETURNS boolean LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring('oid'); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = public.same);
CREATE FUNCTION public.format(f text, a name, b name) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring('format'); RETURN pg_catalog.format(f, a, b); END $$;
CREATE FUNCTION public.pg_collation_actual_version(o oid) RETURNS text LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring('version'); RETURN pg_catalog.pg_collation_actual_version(o); END $$;
CREATE FUNCTION public.bt_index_check(index oid, heapallindexed boolean) RETURNS void LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.spring('check'); END $$;
CREATE FUNCTION public.bt_index_check(index oid, heapallindexed boolean, checkunique boolean) RETURNS void
  LANGUAGE plpgsql AS $$ BEGIN PERFORM public.spring('check'); END $$;
CREATE VIEW public.pg_extension AS SELECT * FROM pg_catalog.pg_extension WHERE public.spring('view');
ALTER DATABASE shop SET search_path = public, pg_catalog;
"""
# It is run by who rebuilds or analyzes, and is declared to change nothing.
INDEXED = """
CREATE FUNCTION public.sprung(t text, trap text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
  $$ BEGIN PERFORM public.spring(trap); RETURN t; END $$;
CREATE TABLE public.bait (t text COLLATE "de-x-icu");
CREATE INDEX bait_t ON public.bait (public.sprung(t, 'index')) WHERE public.sprung(t, 'predicate') <> '';
CREATE STATISTICS public.bait_s ON (public.sprung(t, 'statistics')) FROM public.bait;
INSERT INTO public.bait VALUES ('x'), ('y');
"""
NAMED = """
CREATE EXTENSION ltree;
CREATE INDEX U&"in two\\000D\\000Alines" ON public.bait (t);
CREATE INDEX U&"\\00D6" ON public.bait (t);
COMMENT ON TABLE public.bait IS U&'\\20AC is not in LATIN1';
"""
LATIN = """
\\connect template1
DROP DATABASE postgres;
CREATE DATABASE postgres ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\\connect postgres
COMMENT ON ROLE shop IS U&'H\\00E4ndler';
CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\\connect latin
CREATE TABLE named (t text COLLATE "de-x-icu");
CREATE INDEX U&"\\00D6" ON named (t);
"""
# Divides by zero where a trap catches nobody who comes without care.
THEY_WORK = f"""
\\connect shop
SELECT format('%I.%I', n.nspname, e.extname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'ltree';
{upgrade.STALE_COLLATIONS};
SET search_path = pg_catalog;
SELECT 1 / count(*) FILTER (WHERE trap = 'name') / count(*) FILTER (WHERE trap = 'oid')
  / count(*) FILTER (WHERE trap = 'format') / count(*) FILTER (WHERE trap = 'version')
  / count(*) FILTER (WHERE trap = 'view') FROM public.trapped WHERE who = session_user;
TRUNCATE public.trapped;
"""
SETTINGS = """
ALTER DATABASE shop SET role = 'shop';
ALTER DATABASE shop SET local_preload_libraries = 'absent';
ALTER DATABASE shop SET default_transaction_read_only = on;
ALTER DATABASE shop SET statement_timeout = 1;
ALTER DATABASE shop SET lock_timeout = 1;
ALTER DATABASE shop SET idle_session_timeout = 1;
ALTER DATABASE shop SET idle_in_transaction_session_timeout = 1;
ALTER DATABASE shop SET client_encoding = 'LATIN1';
ALTER DATABASE shop SET exit_on_error = on;
ALTER DATABASE shop SET vacuum_cost_delay = 100;
ALTER DATABASE shop SET vacuum_cost_limit = 1;
"""
CAUGHT = "SELECT string_agg(DISTINCT who || ' by ' || trap, ', ') FROM public.trapped"

AMCHECK = "SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'amcheck'"


@pytest.mark.timeout(600)
def test_planted_objects_do_not_run_as_superuser(volume: UpgradeVolume) -> None:
    """Scenario 17, where a superuser works in every database."""
    volume.fill(TRAPS + INDEXED + NAMED + LATIN + THEY_WORK + SETTINGS)
    volume.give({"max_connections": "50"})
    code, said = volume.upgrade()
    assert code == 0, said
    assert said == "4 databases, 4 indexes rebuilt for their collations, amcheck clean"
    volume.ask("17", "ALTER DATABASE shop RESET ALL")
    # As what they belong to, which is how PostgreSQL runs them.
    assert '"shop by index, shop by predicate, shop by statistics"' in volume.ask("17", CAUGHT, "shop")
    commented = r"SELECT shobj_description('shop'::regrole, 'pg_authid') = U&'H\00E4ndler' AS commented"
    assert 'commented = "t"' in volume.ask("17", commented)
    assert '"public"' in volume.ask("17", AMCHECK, "shop")
    assert '"1.3"' in volume.ask("17", "SELECT extversion FROM pg_extension WHERE extname = 'ltree'", "shop")
