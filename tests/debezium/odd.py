"""What tables of the wild have and tidy ones have not: keys by another order than the table's, names of any letters, keys of any
type, partitions, generated columns, transactions that change their mind. Read by test_debezium.py."""

# Statements wait, where this stands before them, until Debezium has read all before: it takes the key from the catalog as it is
# when it reads (PgOutputMessageDecoder.handleRelationMessage).
WAIT = "/* all have */ "

KEYED = {
    "k_ba": "a int, b text, c text, PRIMARY KEY (b, a)",
    "k_tenant": "id bigint, tenant_id int, v text, PRIMARY KEY (tenant_id, id)",
    "k_cab": "a int DEFAULT 5, b int, c int, v text, PRIMARY KEY (c, a, b)",
    "k_full": "a int, b text, c text, PRIMARY KEY (b, a)",
    "k_include": "a int, b text, c text, PRIMARY KEY (b, a) INCLUDE (c)",
    "k_index": "a int NOT NULL, b text NOT NULL, c text",
    "k_dropped": "x int, a int, b text, c text, PRIMARY KEY (b, a)",
    "k_late": "a int, b text, c text, PRIMARY KEY (b, a) DEFERRABLE",
    "k_renamed": "a int, b text, c text, PRIMARY KEY (b, a)",
    "k_turned": "a int, b text, c text, PRIMARY KEY (a, b)",
    "k_four": "d int, c int DEFAULT 5, b int DEFAULT 6, a int, v text, PRIMARY KEY (a, b, c, d)",
}

KEYED_BESIDES = """
ALTER TABLE k_full REPLICA IDENTITY FULL
ALTER TABLE k_late REPLICA IDENTITY FULL
CREATE UNIQUE INDEX k_index_ba ON k_index (b, a); ALTER TABLE k_index REPLICA IDENTITY USING INDEX k_index_ba
ALTER TABLE k_dropped DROP COLUMN x
CREATE TABLE k_parts (a int, b text, c text, PRIMARY KEY (b, a)) PARTITION BY LIST (a); CREATE TABLE k_parts_1 PARTITION OF k_parts FOR VALUES IN (1, 2, 10)
CREATE TABLE k_parts_2 (c text, a int NOT NULL, b text NOT NULL); ALTER TABLE k_parts ATTACH PARTITION k_parts_2 DEFAULT
""".strip().splitlines()

# The same operations on each: a number, a text, a text.
KEYED_STATEMENTS = """
INSERT INTO $ (a, b, c) VALUES (1, 'one', 'x'), (2, 'two', 'y'), (3, 'three', NULL)
UPDATE $ SET c = 'changed' WHERE a = 1
UPDATE $ SET a = 10 WHERE a = 2
UPDATE $ SET b = 'žlutý 🐎', c = 'both' WHERE a = 1
UPDATE $ SET a = a + 100, b = b || '!'
DELETE FROM $ WHERE a = 103
BEGIN; INSERT INTO $ (a, b) VALUES (4, ''); UPDATE $ SET c = '' WHERE a = 4; DELETE FROM $ WHERE a = 4; COMMIT
"""

# Those whose key is of numbers: two columns of it.
NUMBERED = {"k_tenant": ("tenant_id", "id"), "k_cab": ("c", "b"), "k_four": ("a", "d")}

NUMBERED_STATEMENTS = """
INSERT INTO $ (@1, @2, v) VALUES (1, 2, 'x'), (3, 4, NULL)
UPDATE $ SET v = 'changed' WHERE @1 = 1
UPDATE $ SET @1 = 7 WHERE @1 = 1
UPDATE $ SET @2 = 8
DELETE FROM $
"""

# table: [(column, type)], the columns of its key. Debezium ends at a quote in a table's name (its TableIdParser).
NAMED = {
    '"S 3"."T ü.x"': ([('"ü"', "int"), ('"a""b"', "text"), ('"back\\slash"', "text"), ('"with space"', "text"), ('"🐎"', "text"),
                       ('"select"', "text"), ('"a.b"', "text"), ('"čas"', "timestamp")], '"ü"'),
    '"S 3"."🐎"': ([("a", "int"), ('"🐎"', "text"), ("v", "text")], '"🐎", a'),
    '"S 3"."a🐎b 日本"': ([("id", "int"), ("v", "text")], "id"),
    '"schéma"."tä-bé_1"': ([("id", "int"), ("v", "text")], "id"),
    '"schéma"."Ж"': ([('"Ж"', "int"), ('"a,b"', "text"), ("v", "text")], '"a,b", "Ж"'),
    '"s.dot"."t.dot.t"': ([("id", "int"), ("v", "text")], "id"),
    '"UPPER"."Mixed Case"': ([('"Id"', "int"), ('"Value"', "text")], '"Id"'),
    '"S 3"."%:/?"': ([("id", "int"), ("v", "text")], "id"),
}

# type: [values of keys as SQL]; Debezium ends at a numeric key that is no number (PostgresValueConverter); the first one's row gets an update, the second becomes the third, the third is deleted.
KEY_TYPES = {
    "smallint": ["-1", "0", "32767"],
    "bigint": ["-9223372036854775808", "0", "9223372036854775807"],
    "oid": ["0", "1", "4294967295"],
    "real": ["'NaN'", "1.5", "'-Infinity'"],
    "double precision": ["'NaN'", "0.1", "'Infinity'"],
    "numeric": ["1.50", "1e20", "-0.001"],
    "numeric(10,2)": ["1.5", "0", "-12345678.99"],
    "money": ["1.50", "0", "-2"],
    "text": ["''", "'žlutý 🐎'", r"E'quote \" back \\ tab \t'"],
    "varchar(20)": ["'a'", "'B'", "''"],
    "char(5)": ["'ab'", "'12345'", "''"],
    "citext": ["'MiXed'", "'other'", "''"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "boolean": ["true", "false"],
    "bytea": ["''", "'\\x00ff'", "'\\xdeadbeef'"],
    "inet": ["'10.0.0.1'", "'192.168.1.2/24'", "'::1'"],
    "macaddr": ["'08:00:2b:01:02:03'", "'00:00:00:00:00:00'", "'ff:ff:ff:ff:ff:ff'"],
    "date": ["'2020-02-29'", "'infinity'", "'-infinity'"],
    "time": ["'04:05:06.789012'", "'00:00'", "'24:00'"],
    "timetz": ["'04:05:06.789+02'", "'24:00:00+00'", "'00:00+00'"],
    "timestamp": ["'2020-02-29 01:02:03.123456'", "'infinity'", "'-infinity'"],
    "timestamp(3)": ["'2020-02-29 01:02:03.123'", "'1969-12-31 23:59:59.999'", "'1970-01-01'"],
    "timestamptz": ["'2020-02-29 01:02:03.123456+00'", "'infinity'", "'-infinity'"],
    "interval": ["'1 year 2 mons 3 days 04:05:06.78'", "'0'", "'-1 day'"],
    "bit(3)": ["B'101'", "B'000'", "B'111'"],
    "varbit": ["B'101'", "B'11'", "B'1111111111'"],
    "jsonb": ["'{\"a\": 1}'", "'null'", "'\"text\"'"],
    "mood": ["'sad'", "'ok'", "'a \"quoted\" one'"],
    "positive": ["5", "6", "7"],
    "short": ["'abc'", "'d'", "''"],
    "int4range": ["'[1,5)'", "'empty'", "'(,3)'"],
    "int[]": ["'{1,2}'", "'{}'", "'{3,NULL}'"],
    "text[]": ["'{a,b}'", "'{}'", "'{\"a\\\"b\"}'"],
}

OTHERS = {
    "o_made": "id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED, v text",
    "o_counted": "id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v text",
    "o_parent": "id int PRIMARY KEY, v text",
    "o_child": "id int PRIMARY KEY, parent int REFERENCES o_parent ON UPDATE CASCADE ON DELETE CASCADE, v text",
    "o_heir": "LIKE o_parent INCLUDING ALL, w text",
    "o_wide": "id int PRIMARY KEY, " + ", ".join(f"c{i} text" for i in range(120)),
    "o_large_key": "k text, v text, PRIMARY KEY (k)",
    "o_watched": "id int PRIMARY KEY, v text, seen int",
    "o_times": "id int PRIMARY KEY, tz timetz, tz3 timetz(3), t time, ts timestamp, tt timestamptz, iv interval, d date",
}

OTHERS_BESIDES = """
ALTER TABLE o_large_key ALTER k SET STORAGE EXTERNAL
ALTER TABLE o_heir INHERIT o_parent
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.seen := coalesce(NEW.seen, 0) + 1; RETURN NEW; END'; CREATE TRIGGER watches BEFORE INSERT OR UPDATE ON o_watched FOR EACH ROW EXECUTE FUNCTION watch()
CREATE TABLE o_range (id int, at date, v text, PRIMARY KEY (at, id)) PARTITION BY RANGE (at); CREATE TABLE o_range_19 PARTITION OF o_range FOR VALUES FROM ('2019-01-01') TO ('2020-01-01'); CREATE TABLE o_range_20 PARTITION OF o_range FOR VALUES FROM ('2020-01-01') TO ('2021-01-01'); CREATE TABLE o_range_rest PARTITION OF o_range DEFAULT
""".strip().splitlines()

OTHER_STATEMENTS = r"""
INSERT INTO o_made (id, a, v) VALUES (1, 5, 'x'), (2, NULL, 'y')
UPDATE o_made SET a = 7 WHERE id = 1
UPDATE o_made SET id = 3 WHERE id = 2
DELETE FROM o_made
INSERT INTO o_counted (v) VALUES ('a'), ('b'), ('c')
INSERT INTO o_counted (id, v) VALUES (-5, 'by hand')
UPDATE o_counted SET id = DEFAULT WHERE id = 2
TRUNCATE o_counted RESTART IDENTITY
INSERT INTO o_counted (v) VALUES ('again')
INSERT INTO o_parent VALUES (1, 'one'), (2, 'two'), (3, 'three'); INSERT INTO o_child VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')
UPDATE o_parent SET id = 11 WHERE id = 1
DELETE FROM ONLY o_parent WHERE id = 2
INSERT INTO o_heir VALUES (7, 'seven', 'w'); UPDATE o_parent SET v = 'all' WHERE id IN (7, 11)
DELETE FROM o_parent WHERE id = 7
TRUNCATE o_parent CASCADE
BEGIN; INSERT INTO o_parent VALUES (20, 'a'); SAVEPOINT s; INSERT INTO o_parent VALUES (21, 'gone'); ROLLBACK TO s; INSERT INTO o_parent VALUES (21, 'stays'); RELEASE s; UPDATE o_parent SET v = 'b' WHERE id = 20; COMMIT
BEGIN; INSERT INTO o_parent VALUES (30, 'never'); ROLLBACK
BEGIN; SAVEPOINT a; INSERT INTO o_parent VALUES (31, 'a'); SAVEPOINT b; INSERT INTO o_parent VALUES (32, 'b'); ROLLBACK TO a; INSERT INTO o_parent VALUES (33, 'c'); COMMIT
DO $$ BEGIN INSERT INTO o_parent VALUES (40, 'in a block'); BEGIN INSERT INTO o_parent VALUES (40, 'twice'); EXCEPTION WHEN unique_violation THEN INSERT INTO o_parent VALUES (41, 'caught'); END; END $$
WITH moved AS (DELETE FROM o_parent WHERE id < 32 RETURNING *) INSERT INTO o_child SELECT id + 1000, NULL, v FROM moved
MERGE INTO o_parent p USING (VALUES (40, 'merged'), (50, 'new')) n (id, v) ON p.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.v)
MERGE INTO o_parent p USING (VALUES (50)) n (id) ON p.id = n.id WHEN MATCHED THEN DELETE
INSERT INTO o_parent VALUES (41, 'x') ON CONFLICT DO NOTHING
INSERT INTO o_parent VALUES (41, 'upsert'), (42, 'new') ON CONFLICT (id) DO UPDATE SET v = excluded.v || '!'
INSERT INTO o_parent SELECT i, 'many' FROM generate_series(100, 130) i
UPDATE o_parent SET v = NULL WHERE id BETWEEN 100 AND 110
UPDATE o_parent SET id = id + 1000 WHERE id BETWEEN 111 AND 120
DELETE FROM o_parent WHERE id BETWEEN 121 AND 130
UPDATE o_parent SET v = v WHERE id = 41
UPDATE o_parent SET id = id WHERE id = 41
INSERT INTO o_wide (id, c0, c119) VALUES (1, 'first', 'last')
UPDATE o_wide SET c60 = 'middle'
DELETE FROM o_wide
INSERT INTO o_large_key VALUES (repeat('k', 2500), 'v')
UPDATE o_large_key SET v = 'w'
UPDATE o_large_key SET k = repeat('l', 2500)
DELETE FROM o_large_key
INSERT INTO o_watched (id, v) VALUES (1, 'a'), (2, 'b')
UPDATE o_watched SET v = 'c' WHERE id = 1
UPDATE o_watched SET id = 3 WHERE id = 2
INSERT INTO o_range VALUES (1, '2019-05-05', 'a'), (2, '2020-05-05', 'b'), (3, '1999-01-01', 'c'), (4, 'infinity', 'd')
UPDATE o_range SET at = '2020-06-06' WHERE id = 1
UPDATE o_range SET v = 'same' WHERE id = 2
UPDATE o_range SET id = 5 WHERE id = 4
DELETE FROM o_range WHERE id = 3
ALTER TABLE o_range DETACH PARTITION o_range_19; INSERT INTO o_range VALUES (9, '2019-07-07', 'rest'); INSERT INTO o_range_19 VALUES (8, '2019-07-07', 'by itself')
TRUNCATE o_range_20
TRUNCATE o_range, o_range_19
INSERT INTO o_times VALUES (1, '24:00:00+00', '24:00:00+00', '24:00', 'infinity', 'infinity', '1 day', 'infinity')
INSERT INTO o_times VALUES (2, '24:00:00-00', '23:59:59.9999+00', '23:59:59.999999', '-infinity', '-infinity', '-1 day', '-infinity')
INSERT INTO o_times VALUES (3, '24:00:00+02', '24:00-02', '00:00:00.000001', '0044-03-15 BC', '0044-03-15 00:00+00 BC', '1 mon -1 day', '0044-03-15 BC')
INSERT INTO o_times VALUES (4, '24:00:00+15:59', '00:00:00-15:59', '12:00', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '00:00:00.000001', '9999-12-31')
INSERT INTO o_times VALUES (5, '00:00:00+00:30', '24:00:00+00:30', '12:00:00.1', '10000-01-01', '10000-01-01 00:00+00', '-178000000 years', '10000-01-01')
UPDATE o_times SET tz = '24:00:00+00' WHERE id = 3
UPDATE o_times SET tz = NULL, tz3 = NULL WHERE id = 1
DELETE FROM o_times
SELECT pg_logical_emit_message(true, 'judge', 'žlutý 🐎')
SELECT pg_logical_emit_message(true, 'judge', '')
BEGIN; INSERT INTO k_ba VALUES (900, 'in one', NULL); INSERT INTO k_tenant VALUES (900, 1, 'transaction'); INSERT INTO k_full VALUES (900, 'of', 'three'); UPDATE k_ba SET b = 'changed' WHERE a = 900; COMMIT
TRUNCATE k_ba, k_tenant, k_full
"""

# The key itself changes, and tables come. A new table's rows come in a transaction of their own: the stream may be faster than the
# catalog (RecordTransactionCommit writes the WAL before ProcArrayEndTransaction), and Debezium finds no key then.
ALTERED_KEYS = f"""
{WAIT}ALTER TABLE k_renamed RENAME COLUMN b TO z; ALTER TABLE k_renamed ADD COLUMN d int; ALTER TABLE k_turned DROP CONSTRAINT k_turned_pkey, ADD PRIMARY KEY (b, a)
INSERT INTO k_renamed (a, z, d) VALUES (5, 'renamed', 1); UPDATE k_renamed SET z = 'again' WHERE a = 5; DELETE FROM k_renamed WHERE a = 5
INSERT INTO k_turned (a, b) VALUES (5, 'turned'); UPDATE k_turned SET b = 'again' WHERE a = 5; UPDATE k_turned SET c = 'c' WHERE a = 5; DELETE FROM k_turned WHERE a = 5
CREATE TABLE k_new (a int, b text, c text, PRIMARY KEY (b, a))
INSERT INTO k_new VALUES (1, 'one', NULL)
UPDATE k_new SET a = 2; UPDATE k_new SET c = 'c'; DELETE FROM k_new
"""


def key_table(kind):
    return "kt_" + "".join(c if c.isalnum() else "_" for c in kind)


def names():
    return ["public.k_.*", "public.kt_.*", "public.o_.*", '"S 3".*', '"schéma".*', '"s.dot".*', "UPPER.*"]


# For Debezium, which is to leave them out; Java reads its files as ISO 8859-1.
EXCLUDED = "public.(k_|kt_|o_).*,S 3.*,sch.*ma.*,s.dot.*,UPPER.*"


def setup():
    for name, columns in KEYED.items():
        yield f"CREATE TABLE {name} ({columns})"
    yield from KEYED_BESIDES
    for schema in ('"S 3"', '"schéma"', '"s.dot"', '"UPPER"'):
        yield f"CREATE SCHEMA {schema}"
    for name, (columns, key) in NAMED.items():
        yield f"CREATE TABLE {name} ({', '.join(map(' '.join, columns))}, PRIMARY KEY ({key}))"
    for kind in KEY_TYPES:
        yield f"CREATE TABLE {key_table(kind)} (k {kind} PRIMARY KEY, v text)"
    for name, columns in OTHERS.items():
        yield f"CREATE TABLE {name} ({columns})"
    yield from OTHERS_BESIDES


def named_statements(table, columns):
    first, last = columns[0][0], columns[-1][0]
    values = {"int": "1", "text": "'ž 🐎'", "timestamp": "'2020-02-29'"}
    yield f"INSERT INTO {table} VALUES ({', '.join(values[kind] for _, kind in columns)})"
    yield f"UPDATE {table} SET {last} = NULL"
    yield f"UPDATE {table} SET {first} = 2"
    yield f"DELETE FROM {table}"
    yield f"TRUNCATE {table}"


def typed_statements(kind, values):
    table = key_table(kind)
    first, second, third = values[0], values[1], values[-1]
    yield f"INSERT INTO {table} VALUES ({first}, 'first')"
    yield f"UPDATE {table} SET v = 'changed' WHERE k = ({first})::{kind}"
    yield f"UPDATE {table} SET k = {second} WHERE k = ({first})::{kind}"
    if third != second:
        yield f"UPDATE {table} SET k = {third}, v = NULL WHERE k = ({second})::{kind}"
    yield f"DELETE FROM {table}"


def statements():
    for table in [*KEYED, "k_parts"]:
        lines = NUMBERED_STATEMENTS if table in NUMBERED else KEYED_STATEMENTS
        first, second = NUMBERED.get(table, ("", ""))
        for line in lines.strip().splitlines():
            yield line.replace("$", table).replace("@1", first).replace("@2", second)
    for table, (columns, _) in NAMED.items():
        yield from named_statements(table, columns)
    for kind, values in KEY_TYPES.items():
        yield from typed_statements(kind, values)
    yield from OTHER_STATEMENTS.strip().splitlines()
    yield from ALTERED_KEYS.strip().splitlines()
