"""Which indexes `steersman-upgrade` rebuilds: every one whose order or rows a collation decides, and few others."""

from __future__ import annotations

import re

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume
from steersman_databases.features.major_upgrade.specs import EXIT_CODE_REJECTED

# Unicode has this letter since 16, so ICU 76 has it before Han characters. For ICU 72 it is after them.
NEWER, HAN = "'\U00010d50'", "'\u4e2d'"
# What is called due is rebuilt, and what is called kept is not.
GERMAN = f"""
CREATE EXTENSION btree_gist;
CREATE COLLATION german (provider = icu, locale = 'de-DE');
CREATE DOMAIN phrase AS text COLLATE german;
CREATE TYPE span AS RANGE (subtype = text, collation = german, multirange_type_name = spans);
CREATE DOMAIN stretch AS span;
CREATE TYPE pair AS (number int, word text COLLATE german);
CREATE TYPE sure AS (number int, word text COLLATE "C", facts jsonb);
CREATE TYPE nested AS (pairs pair[]);
CREATE FUNCTION before(int) RETURNS boolean LANGUAGE sql IMMUTABLE
  AS $$ SELECT $1::text COLLATE public.german < 'm' $$;
CREATE FUNCTION another(int) RETURNS float LANGUAGE sql IMMUTABLE AS 'SELECT $1 * random()';
CREATE FUNCTION named("x:typ 99999999999" int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TABLE entry (id int PRIMARY KEY, who text COLLATE german, plain text COLLATE "C", usual text, list text[],
  said phrase, span span, spans spans, stretch stretch, stretches stretch[], pair pair, nested nested, sure sure,
  facts jsonb, done boolean, during int4range);
INSERT INTO entry (id, who, pair, span) SELECT i, who, ROW(i, who)::pair, span(who, NULL)
  FROM generate_series(1, 100) i, LATERAL (SELECT CASE i WHEN 7 THEN {NEWER} ELSE 'm' || i END) AS made (who);

CREATE INDEX due_column ON entry (who);
CREATE INDEX due_second ON entry (id, who);
CREATE INDEX due_collated ON entry (plain COLLATE german);
CREATE INDEX due_expression ON entry (lower(who));
CREATE INDEX due_domain ON entry (said);
CREATE INDEX due_range ON entry (span);
CREATE INDEX due_range_gist ON entry USING gist (span);
CREATE INDEX due_range_hash ON entry USING hash (span);
CREATE INDEX due_range_brin ON entry USING brin (span range_inclusion_ops);
CREATE INDEX due_multirange ON entry (spans);
CREATE INDEX due_multirange_gist ON entry USING gist (spans);
CREATE INDEX due_range_domain ON entry (stretch);
CREATE INDEX due_range_array ON entry USING gin (stretches);
CREATE INDEX due_composite ON entry (pair);
CREATE INDEX due_composite_hash ON entry USING hash (pair);
CREATE INDEX due_nested ON entry (nested);
ALTER TABLE entry ADD CONSTRAINT due_unique UNIQUE (id, who);
ALTER TABLE entry ADD CONSTRAINT due_exclusion EXCLUDE USING gist (id WITH =, span WITH &&);
CREATE INDEX due_when_less ON entry (id) WHERE who < {HAN};
CREATE INDEX due_when_collated ON entry (id) WHERE plain COLLATE german < 'm';
CREATE INDEX due_when_any ON entry (id) WHERE who > ANY ('{{a,b}}');
CREATE INDEX due_when_range ON entry (id) WHERE NOT span << '[m,n]';
CREATE INDEX due_when_composite ON entry (id) WHERE pair < ROW(7, 'm')::pair;
CREATE INDEX due_when_field ON entry (id) WHERE (pair).word < 'm';
CREATE INDEX due_when_cast ON entry (id) WHERE plain::phrase < 'm';
CREATE INDEX due_when_row ON entry (id) WHERE entry.* IS DISTINCT FROM NULL;
CREATE INDEX due_when_own ON entry (id) WHERE before(id);
CREATE INDEX due_boolean ON entry ((who < {HAN}));
CREATE INDEX due_number ON entry ((CASE WHEN who < 'm' THEN 1 ELSE 2 END));
CREATE INDEX due_own ON entry (before(id));
CREATE INDEX due_own_another ON entry (another(id));
CREATE INDEX due_own_named ON entry (named("x:typ 99999999999" => id));

CREATE INDEX kept_column ON entry (plain);
CREATE INDEX kept_usual ON entry (usual);
CREATE INDEX kept_list ON entry USING gin (list);
CREATE INDEX kept_composite ON entry (sure);
CREATE INDEX kept_facts ON entry (facts);
CREATE INDEX kept_included ON entry (id) INCLUDE (during);
CREATE INDEX kept_range ON entry USING gist (during);
CREATE INDEX kept_when ON entry (id) WHERE NOT done AND during < '[3,4]';
CREATE INDEX kept_when_text ON entry (id) WHERE plain < 'm' AND usual < 'm';
CREATE INDEX kept_expression ON entry ((facts ->> 'who'), lower(usual), (id + 1));
"""
ICU = f"""
ALTER DATABASE postgres SET standard_conforming_strings = off;
CREATE DATABASE icu TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-DE';
\\connect icu
CREATE EXTENSION pg_trgm;
CREATE TYPE item AS (number int, facts jsonb);
CREATE TYPE span AS RANGE (subtype = text);
CREATE TABLE entry (id int PRIMARY KEY, who text, plain text COLLATE "C", list text[], span span,
  facts jsonb, item item, words tsvector, done boolean);
INSERT INTO entry (id, who, facts) SELECT i, who, jsonb_build_object('who', who)
  FROM generate_series(1, 100) i, LATERAL (SELECT CASE i WHEN 7 THEN {NEWER} ELSE 'm' || i END) AS made (who);

CREATE INDEX due_column ON entry (who);
CREATE INDEX due_list ON entry USING gin (list);
CREATE INDEX due_range ON entry (span);
CREATE INDEX due_facts ON entry (facts);
CREATE INDEX due_item ON entry (item);
CREATE INDEX due_trigrams ON entry USING gin (plain gin_trgm_ops);
CREATE INDEX due_when_less ON entry (id) WHERE who < {HAN};
CREATE INDEX due_when_fact ON entry (id) WHERE facts ->> 'who' < {HAN};
CREATE INDEX due_when_facts ON entry (id) WHERE facts < '{{"who": "m"}}';
CREATE INDEX due_when_like ON entry (id) WHERE facts @? '$.who ? (@ like_regex "^[[:upper:]]")';
CREATE INDEX due_when_number ON entry (id) WHERE id::text < 'm';
CREATE INDEX due_boolean ON entry ((who < {HAN}));
CREATE INDEX due_words ON entry USING gin (to_tsvector('simple', plain));
CREATE INDEX due_fact_words ON entry USING gin (to_tsvector('simple', facts));

CREATE INDEX kept_column ON entry (plain);
CREATE INDEX kept_facts ON entry USING gin (facts);
CREATE INDEX kept_words ON entry USING gin (words);
CREATE INDEX kept_when ON entry (id) WHERE NOT done AND plain IS NOT NULL;
CREATE INDEX kept_number ON entry ((id + 1));
"""
LACKING = """
CREATE TABLE entry AS SELECT generate_series(1, 100) AS id;
CREATE INDEX lacking ON entry (id) WHERE id > 50;
CREATE INDEX complete ON entry (id) WHERE id > 0;
UPDATE pg_index SET indpred = (SELECT indpred FROM pg_index WHERE indexrelid = 'complete'::regclass)
  WHERE indexrelid = 'lacking'::regclass;
"""
# pg_upgrade keeps the files of indexes by their names, and rebuilding gives them others.
FILES = """
SELECT string_agg(relname || ' ' || relfilenode, ', ') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'i'
"""
BY_INDEX = f"""
SET enable_seqscan = off; SELECT count(*) AS less FROM entry WHERE who < {HAN};
SELECT count(*) AS compared FROM entry WHERE (who < {HAN})
"""


def files(volume: UpgradeVolume, major: str, database: str) -> dict[str, str]:
    """The file of each index."""
    return dict(re.findall(r"(\w+) (\d+)[,\"]", volume.ask(major, FILES, database)))


@pytest.mark.timeout(600)
def test_collation_dependent_indexes_are_rebuilt(volume: UpgradeVolume) -> None:
    volume.fill(GERMAN + ICU)
    volume.give({"max_connections": "50"})
    databases = ("postgres", "icu")
    assert all('less = "99"' in volume.ask("15", BY_INDEX, database) for database in databases)
    before = {database: files(volume, "15", database) for database in databases}
    code, said = volume.upgrade()
    assert code == 0, said
    answered = {database: volume.ask("17", BY_INDEX, database) for database in databases}
    for database, former in before.items():
        upgraded = files(volume, "17", database)
        rebuilt = {name for name, file in former.items() if upgraded[name] != file}
        assert rebuilt == {name for name in former if name.startswith("due_")}, f"in {database}"
        assert 'less = "100"' in answered[database]


def test_index_missing_predicate_rows_aborts_upgrade(volume: UpgradeVolume) -> None:
    """As where the versions compute an expression differently."""
    volume.fill(LACKING)
    volume.give({"max_connections": "50"})
    code, said = volume.upgrade()
    assert code == EXIT_CODE_REJECTED, said
    assert 'lacks matching index tuple within index "lacking"' in said
    assert "Ulysses" in volume.ask("15", "SELECT title FROM book")
