"""What the director does to PostgreSQL: the server, its connections, and the shape of what is published."""

from kit import eventually, stand
from sampler import ends


class PostgresFaults:
    """Part of director.Scene."""

    def pg_crash(self):
        stand("pg-stop", "immediate")
        stand("pg-start")
        self.counts["server crashes"] += 1

    def pg_restart(self):
        """In order: it ends once it has sent all its log. Two minutes may be too short for what a busy machine has
        left to send, but then it must flow."""
        try:
            stand("pg-stop", "fast")
        except AssertionError:
            before = self._records()
            eventually(lambda: self._records() > before, 30, "a record from a server that does not stop")
            stand("pg-stop", "immediate")
        stand("pg-start")
        self.counts["server restarts"] += 1

    def _records(self):
        """How many the topics have had."""
        return sum(ends(self.broker.client(), self.topics, self.partitions).values())

    def backend_terminated(self):
        self.database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s "
                          "AND active_pid IS NOT NULL", [self.database.slot], database="postgres")
        self.counts["backends terminated"] += 1

    def publication_altered(self):
        """Table `extra` joins and leaves; it is written all the time."""
        publication = self.database.publication
        listed = self.database.run("SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND tablename = 'extra'",
                                   [publication])
        self.database.run("INSERT INTO extra (v) SELECT 'before' FROM generate_series(1, 5)")
        self.database.run(f"ALTER PUBLICATION {publication} {'DROP' if listed else 'ADD'} TABLE extra")
        self.database.run("INSERT INTO extra (v) SELECT 'behind' FROM generate_series(1, 5)")
        self.counts["publication altered"] += 1

    def table_altered(self):
        """Columns come and go; in one transaction with changes before and behind."""
        self.altered += 1
        new, old = f"c{self.altered}", f"c{self.altered - 1}"
        self.database.run(f"""
            BEGIN; SET LOCAL lock_timeout = '5s';
            INSERT INTO churn (k, v) VALUES (-{self.altered}, 'before');
            ALTER TABLE churn ADD COLUMN {new} text; ALTER TABLE churn DROP COLUMN IF EXISTS {old};
            INSERT INTO churn (k, v, {new}) VALUES (-{self.altered} - 100000, 'behind', 'new');
            COMMIT""")
        self.counts["tables altered"] += 1
