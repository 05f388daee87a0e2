"""docs/upgrading.md, "Upgrade PostgreSQL": pg_upgrade makes another cluster, which millrace refuses until it has another name for
the position; then nothing is missing, nothing comes twice, and positions rise."""

import os
import shutil
import signal
import subprocess

import pytest

from kit import Database, check
from pair import SETTINGS, Server, programs, server_user

DEBIAN_15 = "/usr/lib/postgresql/15/bin"


class Upgrade:
    """Two empty clusters, of which the first runs."""

    def __init__(self, old):
        self.folder, self.old_programs = os.environ["MILLRACE_STAND_DIR"] + "-upgrade", old
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder, mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.old = self.made("old", old)
        self.new = self.made("new", programs(), *([] if old == programs() else ["--no-data-checksums"]))
        self.old.start()

    def made(self, name, found, *arguments):
        server = Server(os.path.join(self.folder, name), found)
        self.run(found, "initdb", "-D", server.folder, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync", *arguments)
        server.configure(**SETTINGS)
        return server

    def run(self, found, program, *arguments):
        done = subprocess.run([os.path.join(found, program), *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=240, check=False, **server_user())
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def upgrade(self):
        """The new cluster serves at the old one's port."""
        self.old.process.send_signal(signal.SIGINT)
        self.old.process.wait(60)
        self.run(programs(), "pg_upgrade", "-b", self.old_programs, "-B", programs(), "-d", self.old.folder, "-D", self.new.folder,
                 "-s", self.folder, "-U", "postgres", "--no-sync")
        self.new.port = self.old.port
        self.new.configure()
        self.new.start()

    def close(self):
        self.old.kill()
        self.new.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.mark.parametrize("old, event", [(DEBIAN_15, "slot_created"), (programs(), "slot_adopted")], ids=["15-to-18", "18-takes-the-slot-along"])
def test_a_stream_goes_on_after_pg_upgrade(millrace_for, topic, old, event):
    upgrade = Upgrade(old)
    try:
        database = Database(port=upgrade.old.port)
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        process = millrace_for(database).start().streaming()
        database.run("INSERT INTO t SELECT generate_series(1, 1000)")
        reader = topic(database.topic("t"))
        found = reader.take(1000)
        assert process.stop() == 0
        upgrade.upgrade()
        code, said = check(process)
        assert code == 10 and "another PostgreSQL cluster" in str(said), said
        process.configure(sink__kafka__state_name=f'"{database.prefix}/18"')
        assert check(process)[0] == 0
        process.start().streaming()
        assert process.log(event)
        database.run("INSERT INTO t SELECT generate_series(1001, 2000)")
        found += reader.take(1000)
        assert process.stop() == 0
        assert reader.read() == []
        assert [record.json_key["id"] for record in found] == [*range(1, 2001)]
        assert found[999].position < found[1000].position
    finally:
        upgrade.close()
