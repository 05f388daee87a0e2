"""A server that speaks German: what millrace makes of its errors does not depend on their words."""

import os
import shutil
import subprocess

import pytest

from kit import Database, cannot_try, connect, dsn, eventually
from pair import SETTINGS, Server, server_user
from servers import end_with_parent
from test_incremental import command, copies

VERSION = os.environ.get("MILLRACE_TEST_PG", "15")
PROGRAMS = f"/usr/lib/postgresql/{VERSION}/bin"


class German(Server):
    """gettext goes by LANGUAGE where lc_messages is any locale but C, so none need be made."""

    def __init__(self):
        folder = os.environ["MILLRACE_STAND_DIR"] + "-german"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        super().__init__(folder)
        done = subprocess.run([f"{PROGRAMS}/initdb", "-D", folder, "-U", "postgres", "--locale=C.UTF-8", "--auth=trust", "--no-sync"],
                              cwd="/", capture_output=True, text=True, timeout=120, check=False, **server_user())
        assert done.returncode == 0, done.stderr

    def start(self):
        self.configure(**SETTINGS, lc_messages="'C.UTF-8'")
        with open(self.log, "ab") as log:
            # pylint: disable-next=consider-using-with # outlives this function
            self.process = subprocess.Popen([f"{PROGRAMS}/postgres", "-D", self.folder], cwd="/", env={**os.environ, "LANGUAGE": "de"},
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                            preexec_fn=end_with_parent, **server_user())
        connect("postgres", 120, self.port).close()


@pytest.fixture(name="german")
def fixture_german():
    if not os.path.exists(f"/usr/share/locale/de/LC_MESSAGES/postgres-{VERSION}.mo"):
        cannot_try("PostgreSQL's German messages are not installed")
    server = German()
    server.start()
    try:
        database = Database(port=server.port)
        yield database
        database.drop()
    finally:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)
        os.remove(server.log)


def test_errors_in_german(german, millrace_for):
    """A condition that is wrong, and a policy that would hide rows, are the asker's: told, and not tried over and over."""
    german.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1);"
               f"CREATE ROLE {german.name} LOGIN REPLICATION; GRANT SELECT ON t TO {german.name};"
               f"CREATE PUBLICATION {german.publication} FOR TABLE t")
    process = millrace_for(german, tables=("t",))
    process.environment["TEST_URL"] = dsn(german.name, german.port).replace("//postgres:", f"//{german.name}:")
    process.start().streaming()
    command(process, "t", "--where", "absent > 1")
    failed = eventually(lambda: copies(process)["public.t"]["state"] == "failed" and copies(process)["public.t"], 60, "the end of the first copy")
    assert "existiert nicht" in failed["error"] and "absent" in failed["error"], failed
    german.run("CREATE POLICY p ON t USING (n > 5); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    command(process, "t")

    def ended():
        last = process.get("/api/snapshot/outcome").json["tables"][-1]
        return last["state"] not in ("checked", "waiting", "copied") and last
    eventually(lambda: len(process.get("/api/snapshot/outcome").json["tables"]) == 2, 60, "the second request")
    last = eventually(ended, 60, "the end of the second copy")
    assert last["state"] == "failed" and "BYPASSRLS" in last["error"] and "Zeilenebene" in last["error"], last
    code, said = command(process, "absent")
    assert code != 0 and "absent" in said, said
    assert process.stop() == 0
