"""Queries of `advise`. Each prints one JSON document on one line for each database.

They read catalogs and counters, and lock no table of a user. Sources: PostgreSQL 17 documentation, "System Catalogs";
MySQL 9.7 Reference Manual, "INFORMATION_SCHEMA Tables", "Table I/O Wait Summary Tables".
"""

from __future__ import annotations

POSTGRESQL_DATABASES_SQL = """
SELECT coalesce(jsonb_agg(datname ORDER BY datname), '[]') FROM pg_database
WHERE datallowconn AND NOT datistemplate AND datconnlimit <> -2
"""
# Sizes are relpages, since pg_relation_size() waits for the lock of a table.
POSTGRESQL_CATALOG_SQL = """
WITH tables AS (
    SELECT c.oid, n.nspname, c.relkind, format('%I.%I', n.nspname, c.relname) AS name,
        greatest(c.relpages, 0)::bigint * current_setting('block_size')::bigint AS bytes
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't'
        AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'steersman')
        AND NOT EXISTS (SELECT FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
), indexes AS (
    SELECT i.indrelid, t.name AS table_name, format('%I.%I', t.nspname, c.relname) AS name, i.indisunique,
        greatest(c.relpages, 0)::bigint * current_setting('block_size')::bigint AS bytes,
        (SELECT jsonb_agg(coalesce(quote_ident(a.attname), '') ORDER BY k.place)
            FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
            LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
            WHERE k.place <= i.indnkeyatts) AS columns,
        concat_ws('|', m.amname, i.indkey, i.indnkeyatts, i.indclass, i.indcollation, i.indoption,
            CASE WHEN i.indisunique THEN i.indnullsnotdistinct ELSE false END,
            coalesce(pg_get_expr(i.indexprs, i.indrelid), ''), coalesce(pg_get_expr(i.indpred, i.indrelid), ''))
            AS signature,
        m.amname IN ('btree', 'hash') AS ordered, pg_get_expr(i.indpred, i.indrelid) AS condition,
        i.indisprimary OR i.indisexclusion OR i.indisreplident OR c.relispartition OR c.relkind = 'I'
            OR EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid) AS is_constraint
    FROM pg_index i JOIN tables t ON t.oid = i.indrelid JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_am m ON m.oid = c.relam
    WHERE i.indisvalid AND i.indisready AND i.indislive
), keys AS (
    SELECT t.name, t.bytes, t.relkind, quote_ident(k.conname) AS key, k.confrelid::regclass::text AS referenced,
        (SELECT jsonb_agg(quote_ident(a.attname) ORDER BY c.place)
            FROM unnest(k.conkey) WITH ORDINALITY AS c (number, place)
            JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.number) AS columns
    FROM pg_constraint k JOIN tables t ON t.oid = k.conrelid WHERE k.contype = 'f' AND k.conparentid = 0
), numberings AS (
    SELECT format('%I.%I', s.schemaname, s.sequencename) AS name, sign(s.increment_by) AS direction,
        sign(s.increment_by) * s.last_value AS last, s.data_type, s.cycle AND narrow.type IS NULL AS endless,
        CASE WHEN s.increment_by > 0 THEN least(s.max_value, narrow.greatest)
            ELSE -greatest(s.min_value, -9223372036854775807, -narrow.greatest - 1) END AS limit_value,
        CASE WHEN s.increment_by > 0 THEN s.max_value < 9223372036854775807
            ELSE s.min_value > -9223372036854775808 END AS restricted,
        narrow.change, narrow.type
    FROM pg_sequences s
    JOIN pg_class c ON c.relname = s.sequencename AND c.relkind = 'S' AND c.relnamespace =
        (SELECT n.oid FROM pg_namespace n WHERE n.nspname = s.schemaname)
    LEFT JOIN LATERAL (
        SELECT a.atttypid AS type, CASE a.atttypid WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END AS greatest,
            format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint;', a.attrelid::regclass, a.attname) AS change
        FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_class'::regclass
            AND d.deptype IN ('a', 'i') AND a.atttypid IN ('int2'::regtype, 'int4'::regtype)
        LIMIT 1) narrow ON true
    WHERE s.last_value IS NOT NULL
)
SELECT jsonb_build_object(
    'database', current_database(),
    'indexes', (SELECT coalesce(jsonb_agg(jsonb_build_object('table', table_name, 'name', name, 'columns', columns,
        'signature', signature, 'unique', indisunique, 'bytes', bytes, 'constraint', is_constraint,
        'ordered', ordered, 'condition', condition, 'drop', format('DROP INDEX CONCURRENTLY %s;', name))), '[]')
        FROM indexes),
    'foreignKeys', (SELECT coalesce(jsonb_agg(jsonb_build_object('table', name, 'name', key, 'columns', columns,
        'referenced', referenced, 'bytes', bytes, 'create', format('CREATE INDEX %sON %s (%s);',
            CASE relkind WHEN 'p' THEN '' ELSE 'CONCURRENTLY ' END, name,
            (SELECT string_agg(c, ', ') FROM jsonb_array_elements_text(columns) c)))), '[]') FROM keys),
    'numberings', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', name, 'last', last, 'limit', limit_value,
        'rewrites', type IS NOT NULL, 'change', concat_ws(' ',
            CASE WHEN data_type <> 'bigint'::regtype THEN format('ALTER SEQUENCE %s AS bigint;', name)
                WHEN restricted THEN format('ALTER SEQUENCE %s NO %s;', name,
                    CASE WHEN direction > 0 THEN 'MAXVALUE' ELSE 'MINVALUE' END) END, change))), '[]')
        FROM numberings WHERE NOT endless AND limit_value > 0))
"""
# A crash discards all counters, and then the background writer's are reset, too.
POSTGRESQL_USAGE_SQL = """
SELECT jsonb_build_object(
    'database', current_database(),
    'at', extract(epoch FROM clock_timestamp()),
    'since', (SELECT extract(epoch FROM greatest(d.stats_reset, w.stats_reset))
        FROM pg_stat_database d, pg_stat_bgwriter w WHERE d.datname = current_database()),
    'scans', (SELECT coalesce(jsonb_object_agg(format('%I.%I', schemaname, indexrelname), idx_scan), '{}')
        FROM pg_stat_user_indexes))
"""

_MYSQL_DATABASES = """
    SELECT SCHEMA_NAME AS name FROM information_schema.SCHEMATA
    WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema', 'steersman')
"""


def _quoted(name: str) -> str:
    return f"CONCAT('`', REPLACE({name}, '`', '``'), '`')"


def _ordered_list(column: str, order: str) -> str:
    """Return a JSON array. JSON_ARRAYAGG has no order."""
    return f"CAST(CONCAT('[', GROUP_CONCAT(JSON_QUOTE({column}) ORDER BY {order}), ']') AS JSON)"


_TABLE = f"CONCAT({_quoted('s.TABLE_SCHEMA')}, '.', {_quoted('s.TABLE_NAME')})"
_INDEX = f"CONCAT({_TABLE}, '.', {_quoted('s.INDEX_NAME')})"
_INDEX_COLUMN = f"IF(s.EXPRESSION IS NULL AND s.SUB_PART IS NULL, {_quoted('s.COLUMN_NAME')}, '')"
_INDEXES = f"""
    SELECT {_TABLE} AS table_name, {_INDEX} AS name,
        {_ordered_list(_INDEX_COLUMN, "s.SEQ_IN_INDEX")} AS columns,
        CONCAT(MAX(s.INDEX_TYPE), '|', GROUP_CONCAT(CONCAT_WS(':', COALESCE(s.EXPRESSION, s.COLUMN_NAME),
            COALESCE(s.SUB_PART, ''), COALESCE(s.COLLATION, '')) ORDER BY s.SEQ_IN_INDEX SEPARATOR '|')) AS signature,
        MAX(s.NON_UNIQUE) = 0 AS is_unique, MAX(s.INDEX_TYPE) = 'BTREE' AS ordered, s.INDEX_NAME = 'PRIMARY' AS key_,
        MAX(s.IS_VISIBLE) = 'NO' AS invisible,
        CAST(COALESCE(MAX(size.bytes), 0) AS UNSIGNED) AS bytes,
        CONCAT('ALTER TABLE ', {_TABLE}, IF(MAX(s.IS_VISIBLE) = 'NO', ' DROP INDEX ', ' ALTER INDEX '),
            {_quoted("s.INDEX_NAME")}, IF(MAX(s.IS_VISIBLE) = 'NO', ';', ' INVISIBLE;')) AS removal
    FROM information_schema.STATISTICS s LEFT JOIN (
        SELECT database_name, SUBSTRING_INDEX(table_name, '#', 1) AS table_name, index_name,
            SUM(stat_value) * @@innodb_page_size AS bytes
        FROM mysql.innodb_index_stats WHERE stat_name = 'size' GROUP BY 1, 2, 3
    ) size ON size.database_name = s.TABLE_SCHEMA AND size.table_name = s.TABLE_NAME
        AND size.index_name = s.INDEX_NAME
    WHERE s.TABLE_SCHEMA = d.name GROUP BY s.TABLE_SCHEMA, s.TABLE_NAME, s.INDEX_NAME
"""  # noqa: S608
_FOREIGN_KEYS = f"""
    SELECT CONCAT({_quoted("k.TABLE_SCHEMA")}, '.', {_quoted("k.TABLE_NAME")}) AS table_name,
        CONCAT({_quoted("k.REFERENCED_TABLE_SCHEMA")}, '.', {_quoted("k.REFERENCED_TABLE_NAME")}) AS referenced,
        k.CONSTRAINT_NAME AS name, {_ordered_list(_quoted("k.COLUMN_NAME"), "k.ORDINAL_POSITION")} AS columns,
        {_ordered_list(_quoted("k.REFERENCED_COLUMN_NAME"), "k.ORDINAL_POSITION")} AS referenced_columns
    FROM information_schema.KEY_COLUMN_USAGE k
    WHERE k.REFERENCED_TABLE_NAME IS NOT NULL AND d.name IN (k.TABLE_SCHEMA, k.REFERENCED_TABLE_SCHEMA)
    GROUP BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME
"""  # noqa: S608
_NUMBERED_TABLE = f"CONCAT({_quoted('a.table_schema')}, '.', {_quoted('a.table_name')})"
_NUMBERINGS = f"""
    SELECT CONCAT({_NUMBERED_TABLE}, '.', {_quoted("a.column_name")}) AS name,
        GREATEST(a.auto_increment, 1) - 1 AS last, a.max_value AS max_value,
        IF(a.column_type = 'bigint unsigned', '', CONCAT('ALTER TABLE ', {_NUMBERED_TABLE}, ' MODIFY ',
            {_quoted("a.column_name")}, ' BIGINT UNSIGNED NOT NULL AUTO_INCREMENT;')) AS alteration
    FROM sys.schema_auto_increment_columns a WHERE a.table_schema = d.name AND a.auto_increment IS NOT NULL
"""  # noqa: S608
_KEYLESS_TABLE = f"CONCAT({_quoted('t.TABLE_SCHEMA')}, '.', {_quoted('t.TABLE_NAME')})"
_KEYLESS = f"""
    SELECT {_KEYLESS_TABLE} AS name, CONCAT('ALTER TABLE ', {_KEYLESS_TABLE}, COALESCE(
        (SELECT CONCAT(' ADD PRIMARY KEY (', {_quoted("c.COLUMN_NAME")}, ');') FROM information_schema.COLUMNS c
            WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
                AND c.EXTRA LIKE '%auto_increment%'),
        ' ADD COLUMN my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY FIRST;')) AS alteration
    FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = d.name AND t.TABLE_TYPE = 'BASE TABLE'
        AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS s
            WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND s.NON_UNIQUE = 0
            GROUP BY s.INDEX_NAME HAVING SUM(s.NULLABLE = 'YES' OR s.EXPRESSION IS NOT NULL) = 0)
"""  # noqa: S608
MYSQL_CATALOG_SQL = f"""
SELECT JSON_OBJECT('database', d.name, 'isMysql', CAST('true' AS JSON),
    'indexes', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('table', table_name, 'name', name, 'columns', columns,
        'signature', signature, 'unique', IF(is_unique, CAST('true' AS JSON), CAST('false' AS JSON)),
        'ordered', IF(ordered, CAST('true' AS JSON), CAST('false' AS JSON)),
        'constraint', IF(key_, CAST('true' AS JSON), CAST('false' AS JSON)),
        'invisible', IF(invisible, CAST('true' AS JSON), CAST('false' AS JSON)),
        'bytes', bytes, 'drop', removal)) FROM ({_INDEXES}) i), JSON_ARRAY()),
    'foreignKeys', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('table', table_name, 'name', name, 'columns', columns,
        'referenced', referenced, 'referencedColumns', referenced_columns)) FROM ({_FOREIGN_KEYS}) k), JSON_ARRAY()),
    'numberings', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('name', name, 'last', last, 'limit', max_value,
        'rewrites', IF(alteration = '', CAST('false' AS JSON), CAST('true' AS JSON)), 'change', alteration))
        FROM ({_NUMBERINGS}) n), JSON_ARRAY()),
    'keyless', COALESCE((SELECT JSON_ARRAYAGG(JSON_OBJECT('name', name, 'change', alteration))
        FROM ({_KEYLESS}) t), JSON_ARRAY()))
FROM ({_MYSQL_DATABASES}) d
"""  # noqa: S608
# A table that was never opened has no counters. Neither has one beyond the limits of the performance schema.
MYSQL_USAGE_SQL = f"""
SELECT JSON_OBJECT('database', d.name, 'at', UNIX_TIMESTAMP(SYSDATE(6)),
    'since', IF(@@performance_schema
        AND (SELECT ENABLED FROM performance_schema.setup_instruments
            WHERE NAME = 'wait/io/table/sql/handler') = 'YES'
        AND (SELECT SUM(VARIABLE_VALUE) FROM performance_schema.global_status WHERE VARIABLE_NAME IN
            ('Performance_schema_index_stat_lost', 'Performance_schema_table_handles_lost',
            'Performance_schema_table_instances_lost', 'Performance_schema_table_lock_stat_lost')) = 0,
        UNIX_TIMESTAMP(SYSDATE(6)) - (SELECT VARIABLE_VALUE FROM performance_schema.global_status
            WHERE VARIABLE_NAME = 'Uptime'), NULL),
    'scans', COALESCE((SELECT JSON_OBJECTAGG({_INDEX}, COALESCE(u.COUNT_STAR, 0)) FROM (
        SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS
        WHERE TABLE_SCHEMA = d.name) s
        LEFT JOIN performance_schema.table_io_waits_summary_by_index_usage u ON u.OBJECT_SCHEMA = s.TABLE_SCHEMA
            AND u.OBJECT_NAME = s.TABLE_NAME AND u.INDEX_NAME = s.INDEX_NAME), JSON_OBJECT()))
FROM ({_MYSQL_DATABASES}) d
"""  # noqa: S608
