-- Statements that rebuild each index whose order, or whose choice of rows, may be another by now.
--
-- The majors of an image have ICU libraries of their own, whatever versions are recorded; the C library is the same
-- for both, and its recorded version tells. Dependencies do not say which collation an index uses: none is recorded
-- on the default one, nor on a column's where an expression compares it, and ranges and rows have theirs inside. So
-- this follows what an index keeps, and whatever its expressions and its predicate compare. One that is rebuilt in
-- vain costs time; one that is left out answers wrongly, and nothing warns of it any more.
--
-- Source: documentation of REINDEX and ALTER COLLATION; find_expr_references_walker in dependency.c of PostgreSQL 17.
WITH RECURSIVE doubtful_collation (oid) AS (
    SELECT c.oid FROM pg_collation c, pg_database d
    WHERE d.datname = current_database() AND CASE c.collprovider
        WHEN 'i' THEN true
        WHEN 'd' THEN d.datlocprovider = 'i'
            OR d.datcollversion IS DISTINCT FROM pg_database_collation_actual_version(d.oid)
        ELSE c.collversion IS DISTINCT FROM pg_collation_actual_version(c.oid) END
), doubtful_default (oid) AS (
    SELECT oid FROM doubtful_collation WHERE oid = 'pg_catalog.default'::regcollation
), doubtful_parser (oid) AS (
    -- Up to 17, text search and pg_trgm take the C library's classes of characters, and from 18 on the default's.
    SELECT 'tsvector'::regtype::oid FROM pg_database
    WHERE datname = current_database() AND (
        EXISTS (SELECT FROM doubtful_default)
        OR datlocprovider = 'b' AND current_setting('server_version_num')::int >= 180000)
), part (whole, oid) AS (
    -- Of arrays and domains, ranges, multiranges, and of rows.
    SELECT oid, unnest(ARRAY[typelem, typbasetype]) FROM pg_type
    UNION ALL SELECT rngtypid, unnest(ARRAY[rngsubtype, rngcollation]) FROM pg_range
    UNION ALL SELECT rngmultitypid, rngtypid FROM pg_range
    UNION ALL SELECT c.reltype, unnest(ARRAY[a.atttypid, a.attcollation])
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.reltype <> 0
), doubtful (oid) AS (
    -- Collations and types together: a number that means another one of the other kind costs no more than a rebuild.
    SELECT oid FROM doubtful_collation
    -- These have no collation, and their operators and functions take the database's.
    UNION SELECT t.oid::oid FROM doubtful_default, unnest('{json,jsonb,jsonpath}'::regtype[]) t (oid)
    UNION SELECT t.oid::oid FROM doubtful_parser, unnest('{tsvector,tsquery}'::regtype[]) t (oid)
    UNION SELECT part.whole FROM part JOIN doubtful ON part.oid = doubtful.oid
), used (indexrelid, oid) AS (
    SELECT indexrelid, unnest(indcollation)::text FROM pg_index
    -- GIN keeps parts of a value; other methods keep the value, or something that was made of all of it.
    UNION ALL SELECT i.indexrelid, a.atttypid::text
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam JOIN pg_attribute a
        ON a.attrelid = x.oid OR m.amname <> 'gin' AND a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    -- Each node of an expression names its type, its collation, and the one that it hands to its function.
    -- No backslashes: what they mean in a string is a setting.
    -- Names that somebody chose are in there, too: a number may be none of an oid's, so it is compared as text.
    UNION ALL SELECT indexrelid, (regexp_matches(tree, ':[^ ]*(?:coll|typ)[^ ]* ([0-9]+)', 'g'))[1]
        FROM pg_index, concat(indexprs, indpred) tree
    -- Operator classes that are not built in may take the default for texts of any collation: those of pg_trgm do.
    UNION ALL SELECT p.objid, doubtful_parser.oid::text
        FROM doubtful_parser, pg_depend p JOIN pg_index i ON i.indexrelid = p.objid
        WHERE p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_opclass'::regclass
        AND EXISTS (SELECT 1 FROM unnest(i.indcollation) c (oid) WHERE c.oid <> 0)
)
SELECT format('REINDEX INDEX %I.%I', n.nspname, x.relname)
FROM pg_class x JOIN pg_namespace n ON n.oid = x.relnamespace
WHERE x.relkind = 'i' AND x.oid IN (
    SELECT used.indexrelid FROM used JOIN doubtful ON used.oid = doubtful.oid::text
    -- What a function or an operator that is not built in does with which collation is not known.
    UNION SELECT p.objid FROM pg_depend p WHERE p.classid = 'pg_class'::regclass
        AND p.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
) ORDER BY 1
