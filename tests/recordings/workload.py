"""SQL that makes PostgreSQL send every message it has for protocol version 1, in every form that we know of.

Each step is small: the recordings are kept in the repository."""

LONG_NAME = "n" * 63  # the longest that there is

SCHEMA = f"""
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy');
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE TYPE point_of_view AS (x int, y text);
CREATE SCHEMA "Other schema";
CREATE TABLE plain (id int PRIMARY KEY, v text, n numeric(10,2), f float8, b bool, j jsonb, t timestamptz, y bytea,
    a int[], d date, u uuid);
CREATE TABLE typed (id int PRIMARY KEY, m mood, p positive, c point_of_view, ms mood[]);
CREATE TABLE no_key (a int, b text);
CREATE TABLE nothing (id int PRIMARY KEY, v text);
ALTER TABLE nothing REPLICA IDENTITY NOTHING;
CREATE TABLE full_no_key (a int, b text);
ALTER TABLE full_no_key REPLICA IDENTITY FULL;
CREATE TABLE full_key (id int PRIMARY KEY, v text);
ALTER TABLE full_key REPLICA IDENTITY FULL;
CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, v text);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key;
CREATE TABLE pair (a int, b text, v int, PRIMARY KEY (b, a));
CREATE TABLE toasted (id int PRIMARY KEY, small int, big text);
ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL;
CREATE TABLE toasted_full (id int PRIMARY KEY, small int, big text);
ALTER TABLE toasted_full ALTER big SET STORAGE EXTERNAL;
ALTER TABLE toasted_full REPLICA IDENTITY FULL;
CREATE TABLE toasted_key (id text PRIMARY KEY, v int);
ALTER TABLE toasted_key ALTER id SET STORAGE EXTERNAL;
CREATE TABLE generated (id int PRIMARY KEY, gone text, v int, twice int GENERATED ALWAYS AS (v * 2) STORED);
ALTER TABLE generated DROP gone;
CREATE TABLE no_columns ();
CREATE TABLE "Other schema"."A ""quoted"" table" ("K e y" int PRIMARY KEY, "ä" text, "{LONG_NAME}" int);
CREATE TABLE "{LONG_NAME}" (id int PRIMARY KEY);
CREATE TABLE parent (id serial PRIMARY KEY, v text);
CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent);
CREATE TABLE parted (id int, at date, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE parted_2 (v text, at date NOT NULL, id int NOT NULL, PRIMARY KEY (id, at));
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE rooted (id int PRIMARY KEY, v text) PARTITION BY LIST (id);
CREATE TABLE rooted_1 PARTITION OF rooted FOR VALUES IN (1, 3);
CREATE TABLE rooted_2 PARTITION OF rooted DEFAULT;
CREATE TABLE filtered (id int PRIMARY KEY, v text, secret text);
CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text);
ALTER TABLE deferred REPLICA IDENTITY FULL;
CREATE TABLE changing (id int PRIMARY KEY, v text);
CREATE TABLE hidden (id int PRIMARY KEY);
CREATE PUBLICATION wide FOR TABLE plain, typed, no_key, nothing, full_no_key, full_key, by_index, pair, toasted, toasted_full,
    toasted_key, generated, no_columns, "Other schema"."A ""quoted"" table", "{LONG_NAME}", parent, child, parted, deferred,
    changing WITH (publish = 'insert, update, delete, truncate');
CREATE PUBLICATION rooted FOR TABLE rooted, filtered (id, v) WHERE (id > 10) WITH (publish_via_partition_root = true);
ALTER TABLE no_key REPLICA IDENTITY NOTHING;
SELECT pg_replication_origin_create('a node elsewhere');
"""


class Workload:
    def __init__(self, connect, wal_page=8192):
        self.connect = connect
        self.page = wal_page
        self.one, self.two, self.three = connect(), connect(), connect()

    def run(self, text, connection=None):
        """Statements, each in a transaction of its own unless they say otherwise."""
        for statement in filter(None, (part.strip() for part in text.split(";\n"))):
            (connection or self.one).execute(statement)

    def together(self, text, connection=None):
        """Statements of one transaction."""
        self.run("BEGIN;\n" + text.strip().rstrip(";") + ";\nCOMMIT", connection)

    def all(self):
        for step in (self.values, self.identities, self.toast, self.shapes, self.partitions, self.truncates,
                     self.messages, self.interleaved, self.subtransactions, self.prepared, self.origins,
                     self.page_boundaries, self.empty, self.changes_of_shape, self.bulk, self.conflicts, self.rooted):
            step()

    def values(self):
        self.run(r"""
            INSERT INTO plain VALUES (1, 'a', 1.50, 0.1, true, '{"a": [1, null]}', '2026-01-02 03:04:05.678901+00', '\x00ff',
                '{1,NULL,3}', '2026-02-28', '00000000-0000-0000-0000-000000000001');
            INSERT INTO plain VALUES (2);
            INSERT INTO plain VALUES (3, E'tab\tline\n"quote" \\ é 😀', 'NaN', '-Infinity', false, 'null', 'infinity', '', '{}',
                '0044-03-15 BC', NULL);
            UPDATE plain SET v = 'b', f = 1e300 WHERE id = 1;
            UPDATE plain SET v = v WHERE id = 2;
            DELETE FROM plain WHERE id = 3;
            INSERT INTO typed VALUES (1, 'it''s ok', 7, '(1,"a b")', '{sad,happy}')""")

    def identities(self):
        self.run("""
            INSERT INTO no_key VALUES (1, 'a');
            INSERT INTO nothing VALUES (1, 'a');
            INSERT INTO full_no_key VALUES (1, 'a'), (1, 'a'), (NULL, NULL);
            UPDATE full_no_key SET b = 'b' WHERE a = 1;
            DELETE FROM full_no_key;
            INSERT INTO full_key VALUES (1, 'a');
            UPDATE full_key SET v = NULL;
            UPDATE full_key SET id = 2;
            DELETE FROM full_key;
            INSERT INTO by_index VALUES (1, 'x', 'a');
            UPDATE by_index SET v = 'b';
            UPDATE by_index SET code = 'y';
            UPDATE by_index SET id = 2;
            DELETE FROM by_index;
            INSERT INTO pair VALUES (1, 'x', 1), (2, 'x', 2);
            UPDATE pair SET v = 3 WHERE a = 1;
            UPDATE pair SET a = 9 WHERE a = 1;
            UPDATE pair SET a = 8, b = 'y' WHERE a = 2;
            DELETE FROM pair""")

    def toast(self):
        self.run("""
            INSERT INTO toasted VALUES (1, 1, repeat('0123456789', 203));
            UPDATE toasted SET small = 2;
            UPDATE toasted SET id = 2;
            DELETE FROM toasted;
            INSERT INTO toasted_full VALUES (1, 1, repeat('abcdefghij', 203));
            UPDATE toasted_full SET small = 2;
            DELETE FROM toasted_full;
            INSERT INTO toasted_key VALUES (repeat('key', 678), 1);
            UPDATE toasted_key SET v = 2;
            DELETE FROM toasted_key""")

    def shapes(self):
        self.run(f"""
            INSERT INTO generated (id, v) VALUES (1, 21);
            UPDATE generated SET v = 22;
            DELETE FROM generated;
            INSERT INTO no_columns DEFAULT VALUES;
            INSERT INTO "Other schema"."A ""quoted"" table" VALUES (1, 'é', 2);
            UPDATE "Other schema"."A ""quoted"" table" SET "K e y" = 2;
            INSERT INTO "{LONG_NAME}" VALUES (1)""")

    def partitions(self):
        self.run("""
            INSERT INTO parted VALUES (1, '2026-01-15', 'a'), (2, '2026-02-15', 'b');
            UPDATE parted SET v = 'c' WHERE id = 2;
            UPDATE parted SET at = '2026-02-16' WHERE id = 1;
            DELETE FROM parted WHERE id = 1;
            TRUNCATE parted""")

    def truncates(self):
        self.run("""
            INSERT INTO parent (v) VALUES ('a');
            INSERT INTO child (parent) VALUES (1);
            TRUNCATE child;
            TRUNCATE parent RESTART IDENTITY CASCADE;
            TRUNCATE plain, hidden, full_key RESTART IDENTITY;
            TRUNCATE hidden""")
        self.together("""
            INSERT INTO full_key VALUES (1, 'a');
            TRUNCATE full_key, by_index;
            INSERT INTO full_key VALUES (2, 'b')""")

    def messages(self):
        self.run(r"""
            SELECT pg_logical_emit_message(true, 'inside', 'alone in its transaction');
            SELECT pg_logical_emit_message(false, 'outside', 'first');
            SELECT pg_logical_emit_message(false, 'outside', 'right behind it');
            SELECT pg_logical_emit_message(false, '', '\x00ff00'::bytea);
            SELECT pg_logical_emit_message(true, 'empty', '')""")
        self.together("""
            INSERT INTO full_key VALUES (10, 'a');
            SELECT pg_logical_emit_message(true, 'inside', 'between rows');
            SELECT pg_logical_emit_message(false, 'outside', 'from inside a transaction');
            INSERT INTO full_key VALUES (11, 'b');
            SELECT pg_logical_emit_message(false, 'outside', 'its end is where the commit record begins')""")
        self.run("""
            BEGIN;
            INSERT INTO full_key VALUES (12, 'never');
            SELECT pg_logical_emit_message(true, 'inside', 'never');
            SELECT pg_logical_emit_message(false, 'outside', 'although it is rolled back');
            ROLLBACK""")

    def interleaved(self):
        """A transaction that began before another and ends behind it; a message between them."""
        self.run("BEGIN;\nINSERT INTO full_key VALUES (20, 'one')", self.one)
        self.run("BEGIN;\nINSERT INTO full_key VALUES (21, 'two')", self.two)
        self.run("INSERT INTO full_key VALUES (22, 'three')", self.three)
        self.run("SELECT pg_logical_emit_message(false, 'outside', 'while two are open')", self.three)
        self.run("UPDATE full_key SET v = 'two again' WHERE id = 21;\nCOMMIT", self.two)
        self.run("UPDATE full_key SET v = 'one again' WHERE id = 20", self.one)
        self.run("UPDATE full_key SET v = 'three again' WHERE id = 22", self.three)
        self.run("COMMIT", self.one)

    def subtransactions(self):
        self.together("""
            INSERT INTO full_key VALUES (30, 'kept');
            SAVEPOINT a;
            INSERT INTO full_key VALUES (31, 'rolled back');
            SAVEPOINT b;
            INSERT INTO full_key VALUES (32, 'rolled back too');
            ROLLBACK TO a;
            INSERT INTO full_key VALUES (33, 'kept');
            RELEASE a;
            SAVEPOINT c;
            SELECT pg_logical_emit_message(true, 'inside', 'of a subtransaction');
            DELETE FROM full_key WHERE id = 30""")
        # More than the 64 that fit into the shared memory of a backend; the rows of most are in a table that isn't published.
        self.run("DO $$ BEGIN FOR i IN 1..66 LOOP BEGIN "
                 "IF i % 22 = 0 THEN INSERT INTO no_key VALUES (i); ELSE INSERT INTO hidden VALUES (i); END IF; "
                 "EXCEPTION WHEN unique_violation THEN END; END LOOP; END $$")

    def prepared(self):
        self.run("""
            BEGIN;
            INSERT INTO full_key VALUES (40, 'prepared');
            PREPARE TRANSACTION 'yes';
            INSERT INTO full_key VALUES (41, 'between');
            COMMIT PREPARED 'yes';
            BEGIN;
            INSERT INTO full_key VALUES (42, 'never');
            PREPARE TRANSACTION 'no';
            ROLLBACK PREPARED 'no'""")

    def origins(self):
        self.run("SELECT pg_replication_origin_session_setup('a node elsewhere')", self.three)
        self.together("""
            SELECT pg_replication_origin_xact_setup('AB/CDEF0123', '2020-02-02 02:02:02.020202+00');
            INSERT INTO full_key VALUES (50, 'from elsewhere')""", self.three)
        self.run("INSERT INTO full_key VALUES (51, 'from elsewhere, without a time')", self.three)
        self.run("SELECT pg_replication_origin_session_reset()", self.three)
        self.run("INSERT INTO full_key VALUES (52, 'from here')", self.three)

    def empty(self):
        self.run("""
            INSERT INTO hidden VALUES (200);
            BEGIN;
            SELECT txid_current();
            COMMIT;
            CREATE TABLE made_and_gone (id int);
            DROP TABLE made_and_gone;
            BEGIN;
            INSERT INTO hidden VALUES (201);
            INSERT INTO full_key VALUES (60, 'beside it');
            COMMIT""")

    def changes_of_shape(self):
        self.run("INSERT INTO changing VALUES (1, 'a')")
        self.together("""
            INSERT INTO changing VALUES (2, 'b');
            ALTER TABLE changing ADD w int DEFAULT 7;
            INSERT INTO changing VALUES (3, 'c', 8);
            ALTER TABLE changing RENAME v TO renamed;
            UPDATE changing SET renamed = 'd' WHERE id = 1;
            ALTER TABLE changing DROP w;
            ALTER TABLE changing ALTER id TYPE bigint;
            DELETE FROM changing WHERE id = 2""")
        self.run("""
            ALTER TABLE changing REPLICA IDENTITY FULL;
            UPDATE changing SET renamed = 'e' WHERE id = 1;
            ALTER TABLE changing RENAME TO changed;
            DELETE FROM changed;
            CREATE TABLE joined (id int PRIMARY KEY)""")
        self.together("""
            INSERT INTO joined VALUES (1);
            ALTER PUBLICATION wide ADD TABLE joined;
            INSERT INTO joined VALUES (2)""")
        self.run("INSERT INTO joined VALUES (3);\nALTER PUBLICATION wide DROP TABLE joined;\nINSERT INTO joined VALUES (4)")
        self.together("INSERT INTO changed VALUES (9, 'the table goes in the same transaction');\nDROP TABLE changed")
        self.together("INSERT INTO full_key VALUES (61, 'before');\nALTER TABLE full_key ADD COLUMN w text;\n"
                      "SAVEPOINT a;\nALTER TABLE full_key ADD COLUMN never text;\n"
                      "INSERT INTO full_key VALUES (62, 'x', 'y', 'z');\nROLLBACK TO a;\n"
                      "INSERT INTO full_key VALUES (63, 'behind', 'w')")

    def bulk(self):
        with self.one.cursor().copy("COPY pair FROM STDIN") as copy:
            for number in range(12):
                copy.write_row((number, "copied", number * number))
        self.run("INSERT INTO pair SELECT n, 'selected', n FROM generate_series(1, 5) n")

    def conflicts(self):
        self.run("""
            INSERT INTO pair VALUES (1, 'copied', 7) ON CONFLICT (b, a) DO UPDATE SET v = excluded.v;
            INSERT INTO pair VALUES (1, 'copied', 8) ON CONFLICT DO NOTHING;
            MERGE INTO pair USING (VALUES (2, 'copied'), (99, 'merged')) s(a, b) ON pair.a = s.a AND pair.b = s.b
                WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b, 0);
            INSERT INTO deferred VALUES (1, 'a'), (2, 'b');
            UPDATE deferred SET id = 3 - id""")

    # ---- ends of records at the end of a page: the next record begins behind the page's header ----

    def insert_position(self):
        """Where the next record begins, or what ends there; the end of a page for one that begins behind the header."""
        lsn = self.one.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0]
        return int(lsn)

    def emit(self, length):
        """The end of a message's record with that many bytes."""
        return int(self.one.execute("SELECT pg_logical_emit_message(false, 'p', repeat('x', %s)) - '0/0'",
                                    [length]).fetchone()[0])

    def fill_page(self, left):
        """Messages until just `left` bytes of a page are left; other processes write too, so it may fail."""
        overhead = self.emit(0) - self.insert_position() or 56
        before = self.insert_position()
        overhead = self.emit(0) - before
        room = self.page - self.insert_position() % self.page
        if room < left + overhead:
            self.emit(room)  # over the end of this page
            room = self.page - self.insert_position() % self.page
        while room - left > 1200:  # messages are short: recordings are
            before = self.insert_position()
            self.two.execute("INSERT INTO hidden SELECT g FROM generate_series(1000000000, 1000000004) g")
            self.two.execute("DELETE FROM hidden WHERE id >= 1000000000")
            room = self.page - self.insert_position() % self.page
            if room < left + overhead:
                return None
        return self.emit(room - left - overhead)

    def page_boundaries(self):
        """A message's record, and then a transaction's, that end where a page does."""
        for _ in range(50):
            if self.fill_page(0) is not None and self.insert_position() % self.page in (0, 24, 40):
                break
        else:
            raise AssertionError("no message ended at the end of a page")
        self.run("INSERT INTO full_key VALUES (70, 'on a new page')")
        before = self.insert_position()
        self.run("INSERT INTO nothing VALUES (70, 'x')")
        for number in range(71, 171):
            before = self.insert_position()
            self.run(f"INSERT INTO nothing VALUES ({number}, 'x')")
            size = self.insert_position() - before
            if self.fill_page(size) is None:
                continue
            self.run(f"INSERT INTO nothing VALUES ({number + 1000}, 'ends a page'::char)")
            if self.insert_position() % self.page in (0, 24, 40):
                break
        self.run("INSERT INTO full_key VALUES (71, 'on another new page')")

    def rooted(self):
        """The second publication: through the root, some columns, some rows."""
        self.run("""
            INSERT INTO rooted VALUES (1, 'a'), (2, 'b');
            UPDATE rooted SET v = 'c' WHERE id = 2;
            UPDATE rooted SET id = 3 WHERE id = 2;
            DELETE FROM rooted WHERE id = 1;
            TRUNCATE rooted;
            INSERT INTO filtered VALUES (1, 'no', 's'), (11, 'yes', 's');
            UPDATE filtered SET id = 12 WHERE id = 1;
            UPDATE filtered SET id = 2 WHERE id = 11;
            UPDATE filtered SET v = 'x' WHERE id = 12;
            DELETE FROM filtered""")
