"""millrace fleet: configurations of many pipelines, made of one definition; what would change; what is refused; what a server says."""

import contextlib
import json
import os
import re
import subprocess
import tomllib

import pytest

from kit import BINARY, BOOTSTRAP, Database, dsn, eventually
from prometheus import ROOT

TEMPLATE = """
topic_prefix = "{name}"
tables = ["public.*", "audit.t_[0-9]{2}"]
http.address = "127.0.0.1:0"
source.postgres.connection = "host=127.0.0.1 dbname={database} user=someone"
source.postgres.password = "file:/not/here/{server}/password"
source.postgres.slot_name = "mr_{database}"
sink.kafka.brokers = ["kafka:9092"]
sink.kafka.tls = true
sink.kafka.tls_ca_location = "/not/here/ca.pem"
sink.kafka.state_topic = "__millrace_state.{name}"
sink.kafka.properties."client.rack" = "a"
"""


class Fleet:
    """A definition that finds databases of the stand's server by their name."""

    def __init__(self, database, folder):
        self.database, self.folder = database, folder
        self.mark = database.name
        self.out = folder / "out"
        self.names = [f"{self.mark}_{end}" for end in "ab"]
        self.secret("pg1", dsn("postgres"))
        self.define()

    def secret(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o600)
        return self.folder / name

    def define(self, template=TEMPLATE, discover="", rest="", fleet="", found="[ab]"):
        (self.folder / "fleet.toml").write_text(
            f'[fleet]\nname = "shop"\n{fleet}\n[template]\n{template}\n[discover.pg1]\nconnection_file = "{self.folder}/pg1"\n'
            f'databases = "^{self.mark}_{found}"\n{discover}\n{rest}')
        return self

    @contextlib.contextmanager
    def lost(self, end):
        """As if that database had been dropped."""
        self.database.run(f"ALTER DATABASE {self.mark}_{end} RENAME TO lost_{self.mark}", database="postgres")
        try:
            yield
        finally:
            self.database.run(f"ALTER DATABASE lost_{self.mark} RENAME TO {self.mark}_{end}", database="postgres")

    def run(self, *arguments):
        """Exit code, standard output, standard error."""
        done = subprocess.run([BINARY, "fleet", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
        return done.returncode, done.stdout, done.stderr

    def render(self, *arguments):
        code, out, err = self.run("render", "--out", str(self.out), *arguments)
        assert code == 0, err
        return out

    def plan(self):
        code, out, err = self.run("plan", str(self.out))
        assert code in (0, 2, 4), err
        return code, out.replace(self.mark, "F").splitlines()

    def refused(self, code, *parts):
        """By both commands, and nothing is written."""
        before = self.files()
        for command in (("plan", str(self.out)), ("render", "--out", str(self.out))):
            got, out, err = self.run(*command)
            assert got == code and out == "" and all(part in err for part in parts), (got, err)
        assert self.files() == before
        return err

    def files(self):
        return {path.name: path.read_text() for path in self.out.iterdir()} if self.out.exists() else {}


@pytest.fixture(scope="module")
def databases():
    """Two, which tests only look at."""
    made = Database()
    for end in "ab":
        made.run(f"CREATE DATABASE {made.name}_{end} STRATEGY file_copy", database="postgres")
    yield made
    for end in "ab":
        made.run(f"DROP DATABASE {made.name}_{end}", database="postgres")
    made.drop()


@pytest.fixture
def fleet(databases, tmp_path):
    return Fleet(databases, tmp_path)


def flat(table, prefix=""):
    found = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def test_what_comes_out(fleet):
    fleet.define(rest=f'[pipeline.{fleet.mark}_b]\npipeline.memory = "512MiB"\ntables = ["public.orders"]\n'
                      f'sink.kafka.properties."client.rack" = "b"\n[pipeline.by_hand]\ndatabase = "other"\nserver = "pg9"\n')
    fleet.render()
    a, b = fleet.names
    assert sorted(fleet.files()) == sorted([f"{a}.toml", f"{b}.toml", "by_hand.toml"])
    wanted = {"topic_prefix": a, "tables": ["public.*", "audit.t_[0-9]{2}"], "http.address": "127.0.0.1:0",
              "source.postgres.connection": f"host=127.0.0.1 dbname={a} user=someone", "source.postgres.password": "file:/not/here/pg1/password",
              "source.postgres.slot_name": f"mr_{a}", "sink.kafka.brokers": ["kafka:9092"], "sink.kafka.tls": True,
              "sink.kafka.tls_ca_location": "/not/here/ca.pem", "sink.kafka.state_topic": f"__millrace_state.{a}",
              "sink.kafka.properties.client.rack": "a"}
    got = {name: flat(tomllib.loads(text)) for name, text in fleet.files().items()}
    assert got[f"{a}.toml"] == wanted
    own = {key: json.loads(json.dumps(value).replace(a, b)) for key, value in wanted.items()}
    assert got[f"{b}.toml"] == {**own, "pipeline.memory": "512MiB", "tables": ["public.orders"], "sink.kafka.properties.client.rack": "b"}
    assert got["by_hand.toml"]["source.postgres.slot_name"] == "mr_other" and got["by_hand.toml"]["topic_prefix"] == "by_hand"
    assert fleet.plan() == (0, [])
    code, _, err = fleet.run("render", "--out", str(fleet.out))
    assert code == 0 and "0 written, 0 removed, 3 as before" in err


def test_several_templates(fleet):
    """[template] is of all; over it is one of [templates], by a pipeline's own word or by its server's; over both is what a pipeline says itself."""
    a, b = fleet.names
    fleet.define(discover='template = "small"', rest=f"""
        [templates.small]
        pipeline.memory = "64MiB"
        sink.kafka.properties."client.rack" = "small"
        [templates.orders]
        tables = ["public.orders_{{database}}"]
        log.level = "warn"
        sink.kafka.properties."client.id" = "orders"
        [pipeline.{b}]
        template = "orders"
        log.level = "debug"
        [pipeline.by_hand]
        database = "other"
        server = "pg9"
        template = "small"
        """).render()
    got = {name: flat(tomllib.loads(text)) for name, text in fleet.files().items()}
    one, two, other = got[f"{a}.toml"], got[f"{b}.toml"], got["by_hand.toml"]
    for small, database in ((one, a), (other, "other")):
        assert (small["pipeline.memory"], small["sink.kafka.properties.client.rack"]) == ("64MiB", "small")
        assert small["tables"] == ["public.*", "audit.t_[0-9]{2}"] and small["source.postgres.slot_name"] == f"mr_{database}"
    assert two["tables"] == [f"public.orders_{b}"] and two["log.level"] == "debug" and "pipeline.memory" not in two
    assert (two["sink.kafka.properties.client.rack"], two["sink.kafka.properties.client.id"]) == ("a", "orders")
    assert not any("template" in name for names in got.values() for name in names)
    fleet.define(discover='template = "small"', rest='[templates.small]\npipeline.memory = "128MiB"\n')
    assert "~restart F_a: pipeline.memory" in " ".join(fleet.plan()[1])


def test_a_plan_tells_what_a_change_means(fleet):
    assert fleet.plan() == (2, ["+ F_a", "+ F_b"])
    fleet.render()
    fleet.define(TEMPLATE.replace('["public.*", ', '["public.orders", '), rest=f'[pipeline.{fleet.mark}_b]\npipeline.memory = "512MiB"')
    assert fleet.plan() == (2, ["~reload F_a: tables", "~restart F_b: tables, pipeline.memory"])
    fleet.define(TEMPLATE + 'skipped_operations = ["message"]\nmessages.prefixes = ["x"]')
    assert fleet.plan()[1][0].startswith("~restart F_a: ")
    fleet.define(TEMPLATE.replace('"mr_{database}"', '"cdc_{database}"'))
    assert fleet.plan() == (4, ["!position F_a: source.postgres.slot_name", "!position F_b: source.postgres.slot_name"])
    # An order of lines, a comment, a default that is written out: no change.
    fleet.define("\n".join(reversed(TEMPLATE.splitlines())) + '\nlog.level = "info"\n# a comment')
    assert fleet.plan() == (0, [])


@pytest.mark.parametrize("option", ["source.postgres.publication_name", "sink.kafka.state_name", "sink.kafka.state_topic", "sink.kafka.brokers",
                                    "topic_prefix"])
def test_a_position_is_at_stake(fleet, option):
    fleet.define(found="a").render()
    value = '["other:9092"]' if option.endswith("brokers") else '"{name}_other"'
    fleet.define("\n".join(line for line in TEMPLATE.splitlines() if not line.startswith(option)) + f"\n{option} = {value}", found="a")
    assert fleet.plan() == (4, [f"!position F_a: {option}"])


@pytest.mark.parametrize("gone", ["keep", "stop"])
def test_a_database_that_is_gone(fleet, gone):
    """One that stays follows the template still; where it goes, what differed from the template is no pipeline by hand."""
    own = {"discover": f'gone = "{gone}"', "rest": f'[pipeline.{fleet.mark}_b]\npipeline.memory = "512MiB"'}
    fleet.define(**own).render()
    name = f"{fleet.mark}_b.toml"
    with fleet.lost("b"):
        if gone == "stop":
            assert fleet.plan() == (2, ["- F_b: its slot stays, and keeps WAL until somebody drops it"])
            for _ in range(2):  # nor does its section bring it back
                code, _, err = fleet.run("render", "--out", str(fleet.out))
                assert code == 0 and f"[pipeline.{fleet.mark}_b] is left out" in err
                assert name not in fleet.files() and len(fleet.files()) == 1
            return
        assert fleet.plan() == (0, ['  F_b: its database is gone; it stays, for gone = "keep"'])
        fleet.define(TEMPLATE + "tombstones = false").render()
        assert tomllib.loads(fleet.files()[name])["tombstones"] is False


def test_a_database_that_is_left_out_is_not_gone(fleet):
    fleet.render()
    fleet.define(found="a")
    assert fleet.plan() == (2, ["- F_b: its slot stays, and keeps WAL until somebody drops it"])


def test_a_server_that_is_in_the_definition_no_more(fleet):
    """Its pipelines stay until their files are removed."""
    fleet.render()
    text = (fleet.folder / "fleet.toml").read_text()
    (fleet.folder / "fleet.toml").write_text(text[:text.index("[discover.pg1]")])
    kept = "server is in no [discover.…]; it stays until its file is removed"
    assert fleet.plan() == (0, [f"  F_a: its {kept}", f"  F_b: its {kept}"])
    (fleet.out / f"{fleet.mark}_a.toml").unlink()
    assert fleet.plan() == (0, [f"  F_b: its {kept}"])


def test_one_that_is_renamed(fleet):
    """Nobody is told to drop the slot that the new name goes on with."""
    fleet.define(found="a").render()
    fleet.define(found="a", discover='name = "new_{database}"')
    assert fleet.plan() == (4, ["- F_a: its slot is that of new_F_a now; drop nothing", "!position new_F_a: new, with the slot of F_a"])


@pytest.mark.parametrize("change", ["server", "database", "host", "dbname", "variable", "unreadable", "user"])
def test_another_place_under_one_name(fleet, change):
    fleet.define(found="a").render()
    file, said = fleet.out / f"{fleet.mark}_a.toml", "source.postgres.connection"
    if change == "server":
        fleet.secret("pg2", dsn("postgres"))
        text = (fleet.folder / "fleet.toml").read_text().replace("pg1", "pg2").replace("{server}", "pg1")
        (fleet.folder / "fleet.toml").write_text(text)
        said = "its server"
    elif change == "database":
        file.write_text(file.read_text().replace(f", database {fleet.mark}_a", ", database other"))
        said = "its database"
    elif change == "variable":
        fleet.define("\n".join(line for line in TEMPLATE.splitlines() if "connection" not in line) + '\nsource.postgres.connection = "env:PG1"', found="a")
        said = "source.postgres.connection"
    elif change == "unreadable":
        file.write_text(file.read_text().replace("tables = ", "tabels = "))
        said = "what was made before is wrong"
    else:
        old, new = {"host": ("127.0.0.1 db", "127.0.0.2 db"), "dbname": ("dbname={database}", "dbname=other"), "user": ("someone", "other")}[change]
        fleet.define(TEMPLATE.replace(old, new), found="a")
    assert fleet.plan() == ((2, [f"~restart F_a: {said}"]) if change == "user" else (4, [f"!position F_a: {said}"]))


def test_a_server_that_is_away(fleet):
    """Each that is away is named; their databases do not count as gone."""
    fleet.render()
    fleet.secret("away", "host=127.0.0.1 port=1 dbname=postgres user=x")
    fleet.define(discover='gone = "stop"', rest="".join(
        f'[discover.{name}]\nconnection_file = "{fleet.folder}/away"\ngone = "stop"\n' for name in ("pg2", "pg3")))
    fleet.refused(69, "[discover.pg2]: ", "[discover.pg3]: ", "Connection refused", "nothing was done")
    fleet.secret("pg1", re.sub(r"://[^:@]*(:[^@]*)?@", "://nobody_there:wrong@", dsn("postgres")))
    fleet.define()
    assert "wrong" not in fleet.refused(77, "[discover.pg1]: ", "authentication failed")


REFUSED = {
    "a password in a connection string": (TEMPLATE.replace("user=someone", "user=someone password=canary"), "holds a password"),
    "a password of Kafka's": (TEMPLATE + 'sink.kafka.properties."sasl.password" = "canary"', "sasl.password"),
    "a secret of an option": (TEMPLATE + 'http.password = "canary"', "secrets are kept out of this file"),
    "an unknown option": (TEMPLATE + "tabels = []", 'unknown key "tabels"; did you mean "tables"'),
    "a wrong value": (TEMPLATE + 'pipeline.memory = "1KiB"', "pipeline.memory is out of range"),
    "an unknown word": (TEMPLATE + 'schema_topic = "{dbname}"', "{dbname} is not known; {name}, {database} and {server} are"),
    "a short word": (TEMPLATE + 'schema_topic = "{db}"', "{db} is not known"),
    "a word with capitals": (TEMPLATE + 'schema_topic = "{Name}"', "{Name} is not known"),
    "a word with a dash": (TEMPLATE + 'schema_topic = "{data-base}"', "{data-base} is not known"),
    "a fraction": (TEMPLATE + "sink.kafka.partitions = 1.5", "a whole number, true, false"),
    "one stored position": (TEMPLATE.replace('.{name}"', '"') + 'sink.kafka.state_name = "x"', "have one stored position"),
    "one slot": (TEMPLATE.replace("mr_{database}", "mr"), "have one slot"),
    "one transactional id": (TEMPLATE + 'sink.kafka.delivery = "exactly-once"\nsink.kafka.state_name = "x"', "have one transactional id"),
    "one slot, of two by hand": (TEMPLATE + '[pipeline.x]\ndatabase = "x"\nsource.postgres.slot_name = "y"\nsource.postgres.password = "file:/x"\n'
                                 '[pipeline.y]\ndatabase = "y"\nsource.postgres.password = "file:/x"\nsource.postgres.slot_name = "y"\n',
                                 "pipelines x and y have one slot"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(fleet, what):
    fleet.render()
    template, part = REFUSED[what]
    fleet.define(template)
    assert "canary" not in fleet.refused(78, part)


@pytest.mark.parametrize("change, parts", [
    ({"fleet": 'label = "x"'}, ['"label" is unknown in [fleet]']),
    ({"rest": "[templated]\n"}, ['"templated" is unknown in a fleet']),
    ({"rest": '[templates]\ntables = ["public.*"]\n'}, ["templates.tables must be a section"]),
    ({"rest": "[templates.a]\n", "discover": 'template = "b"'}, ["_a: there is no [templates.b]"]),
    ({"rest": '[templates.a]\ntemplate = "b"\n', "discover": 'template = "a"'}, ['unknown key "template"']),
    ({"discover": 'gone = "drop"'}, ['gone must be "keep" or "stop"']),
    ({"discover": 'name = "x"'}, ["two pipelines are called x", "{server}_{database}"]),
    ({"discover": 'name = "a b{database}"'}, ["names have letters, digits"]),
    ({"rest": "[discover.pg2]\n"}, ["[discover.pg2] needs connection_file"]),
    ({"rest": '[discover.pg2]\nconnection_file = "/no/such"\n'}, ["/no/such, which should hold the connection string, can't be read"]),
    ({"rest": '[[pipeline.by_hand]]\ndatabase = "x"\n'}, ["by_hand must be a section"]),
    ({"rest": '[pipeline.by_hand]\nserver = "pg1"\n'}, ["{database} is not known; set it in the pipeline's section"]),
    ({"fleet": "max_per_server = 1"}, ["server pg1 would have 2 pipelines", "max_per_server is 1"]),
    ({"discover": 'databases = "("'}, ['"databases"']),  # given twice: not TOML
])
def test_a_wrong_definition(fleet, change, parts):
    fleet.define(**change)
    fleet.refused(78, *parts)


def test_a_wrong_expression_is_the_servers_to_say(fleet):
    (fleet.folder / "fleet.toml").write_text((fleet.folder / "fleet.toml").read_text().replace(f"^{fleet.mark}_[ab]", "("))
    code, _, err = fleet.run("render", "--out", str(fleet.out))
    assert code == 78 and "[discover.pg1]: " in err and "parentheses () not balanced" in err


def test_a_database_whose_name_would_change_a_connection_string(fleet):
    fleet.define(found="")
    evil = f"{fleet.mark}_x host=evil"
    fleet.database.run(f'CREATE DATABASE "{evil}"', database="postgres")
    try:
        fleet.refused(78, f'database "{evil}": names have letters, digits, _ . and -')
    finally:
        fleet.database.run(f'DROP DATABASE "{evil}"', database="postgres")


@pytest.mark.parametrize("setting", ["max_replication_slots", "max_wal_senders"])
def test_room_on_the_server(fleet, setting):
    """By hand, so that there need not be as many databases."""
    most = int(fleet.database.run(f"SHOW {setting}", database="postgres")[0][0])
    fleet.define(fleet="max_per_server = 1000", rest="".join(f'[pipeline.p{n}]\nserver = "pg1"\ndatabase = "d{n}"\n' for n in range(most - 1)))
    err = fleet.refused(78, f"server pg1 has {setting} = {most}, of which others use ", f"{most + 1} pipelines need one each", "restart PostgreSQL")
    slots, senders = (int(fleet.database.run(f"SHOW {name}", database="postgres")[0][0]) for name in ("max_replication_slots", "max_wal_senders"))
    assert ("max_replication_slots" in err) == (most >= slots) and ("max_wal_senders" in err) == (most >= senders)


def test_own_slots_count_once(fleet):
    """Those that are there already are not of others."""
    most = int(fleet.database.run("SHOW max_replication_slots", database="postgres")[0][0])
    slot = f"mr_{fleet.names[0]}"
    fleet.database.run("SELECT pg_create_physical_replication_slot(%s)", [slot], database="postgres")
    try:
        others = fleet.database.run("SELECT count(*) FROM pg_replication_slots", database="postgres")[0][0] - 1
        fleet.define(fleet="max_per_server = 1000", rest="".join(f'[pipeline.p{n}]\nserver = "pg1"\ndatabase = "d{n}"\n' for n in range(most)))
        fleet.refused(78, f"max_replication_slots = {most}, of which others use {others}; {most + 2} pipelines need one each")
    finally:
        fleet.database.run("SELECT pg_drop_replication_slot(%s)", [slot], database="postgres")


def test_apply(fleet):
    """Says what a plan says, writes the folder, and prints what systemd is to do; a position only by a word of its own."""
    def apply(*arguments):
        code, out, err = fleet.run("apply", str(fleet.out), *arguments)
        return code, out.replace(fleet.mark, "F").splitlines(), err.replace(fleet.mark, "F")
    code, out, err = apply()
    assert (code, out) == (0, ["systemctl enable --now millrace@F_a", "systemctl enable --now millrace@F_b"]) and "+ F_a\n+ F_b\n" in err
    fleet.define(TEMPLATE.replace('["public.*", ', '["public.orders", '), rest=f'[pipeline.{fleet.mark}_b]\npipeline.memory = "512MiB"')
    assert apply()[:2] == (0, ["systemctl reload millrace@F_a", "systemctl restart millrace@F_b"])
    assert fleet.plan() == (0, []) and apply()[:2] == (0, [])
    before = fleet.files()
    fleet.define(TEMPLATE.replace('"mr_{database}"', '"cdc_{database}"'), found="a")
    code, out, err = apply()
    assert (code, out) == (4, []) and "--accept-position" in err and fleet.files() == before
    code, out, _ = apply("--accept-position")
    assert (code, out) == (0, ["systemctl disable --now millrace@F_b", "systemctl restart millrace@F_a"]) and len(fleet.files()) == 1
    # A check with files of secrets that are not here fails, and nothing is written.
    before = fleet.files()
    fleet.define(found="a")
    code, out, err = apply("--check", "--accept-position")
    assert code == 78 and out == [] and "does not pass its check; nothing was written" in err and fleet.files() == before


def test_a_folder_as_definition(fleet):
    """fleet.toml in it, and a file for each pipeline that differs."""
    folder = fleet.folder / "definition"
    folder.mkdir()
    (fleet.folder / "fleet.toml").rename(folder / "fleet.toml")
    (folder / f"{fleet.mark}_b.toml").write_text('pipeline.memory = "512MiB"\n')
    fleet.render("--config", str(folder))
    assert [name for name, text in sorted(fleet.files().items()) if "512MiB" in text] == [f"{fleet.mark}_b.toml"]
    (folder / "fleet.toml").write_text((folder / "fleet.toml").read_text() + f"[pipeline.{fleet.mark}_b]\ntombstones = false\n")
    code, _, err = fleet.run("plan", str(fleet.out), "--config", str(folder))
    assert code == 78 and "keep one of them" in err


def test_files_of_others_stay(fleet):
    fleet.define(found="a").out.mkdir()
    (fleet.out / "notes.toml").write_text("x = 1\n")
    (fleet.out / "README").write_text("mine")
    fleet.render()
    assert {"notes.toml", "README"} < set(fleet.files()) and fleet.plan() == (0, [])
    # Of another fleet, and by a person: neither is overwritten.
    for text in (fleet.files()[f"{fleet.mark}_a.toml"].replace("# fleet shop:", "# fleet other:"), "tables = []\n"):
        (fleet.out / f"{fleet.mark}_a.toml").write_text(text)
        fleet.define().refused(78, "was not made by this fleet")  # nor is that of b written
    (fleet.out / f"{fleet.mark}_a.toml").unlink()
    (fleet.out / f"{fleet.mark}_a.toml").symlink_to("not here")
    code, _, err = fleet.run("render", "--out", str(fleet.out))
    assert code == 64 and "can't be read" in err and not (fleet.out / f"{fleet.mark}_b.toml").exists()


def test_command_lines(fleet):
    for arguments, part in ((("render",), "wants --out DIR, or --helm"), (("plan",), "wants DIR"), ((), "fleet wants a word"),
                            (("applied",), "fleet has no applied"), (("plan", "x", "--helm"), "does not take one of these options"),
                            (("apply",), "wants DIR"), (("plan", "x", "y"), "unexpected argument"),
                            (("render", "--helm"), "give --out DIR, too")):
        code, _, err = fleet.run(*arguments)
        assert code == 64 and part in err, (arguments, code, err)


def from_yaml(text):
    """Read by PyYAML of the system's Python, which knows nothing of how it was written."""
    done = subprocess.run(["/usr/bin/python3", "-c",
                           "import json, sys, yaml; json.dump(list(yaml.load_all(sys.stdin, yaml.CSafeLoader)), sys.stdout)"],
                          input=text, capture_output=True, text=True, check=True)
    return [document for document in json.loads(done.stdout) if document is not None]


def test_values_for_the_chart(fleet):
    """Option by option what the files have."""
    fleet.define(TEMPLATE + """unavailable_value = "a 'b' \\"c\\" # d: é\\\\ = x"\n""")
    (values,) = from_yaml(fleet.render("--helm"))
    assert sorted(values["pipelines"]) == sorted(fleet.names)
    for name, pipeline in values["pipelines"].items():
        as_toml = "".join(f"{path} = {json.dumps(value)}\n" for path, value in pipeline["config"].items())
        assert list(pipeline) == ["config"] and tomllib.loads(as_toml) == tomllib.loads(fleet.files()[f"{name}.toml"])
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([BINARY, "fleet", "render", "--out", "out", "--helm"], cwd=fleet.folder, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 64 and b"the values can't be written: No space left on device" in done.stderr
    fleet.define(discover='gone = "stop"')
    assert from_yaml(fleet.run("render", "--helm")[1])[0]["pipelines"].keys() == values["pipelines"].keys()


def blocks(language):
    with open(os.path.join(ROOT, "docs", "fleet.md"), encoding="utf-8") as file:
        section = file.read().split("\n## First pipelines in five minutes\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def test_five_minutes(database, tmp_path, topic):
    """What docs/fleet.md says, in its order: servers, names and places of this test in place of the page's; millrace fleet render and
    plan, check and status, and rows of both pipelines in Kafka."""
    fleet = Fleet(database, tmp_path)
    names = [f"{fleet.mark}_{end}" for end in "abc"]
    url = re.fullmatch(r"\w+://(?P<user>[^:]+):(?P<password>[^@]+)@(?P<host>[^:]+):(?P<port>\d+)/x", dsn("x"))
    (fleet.folder / "pg1").unlink()

    def here(text):
        for old, new in (("shop_", f"{fleet.mark}_"), ("/etc/millrace/secrets", str(fleet.folder)), ("/tmp/{name}.sock", str(fleet.folder) + "/{name}.s"),
                         ("host=localhost", f"host={url['host']} port={url['port']}"), ("user=millrace", f"user={fleet.mark}"),
                         ("role=millrace", f"role={fleet.mark}"),
                         ("scripts/role.sql", os.path.join(ROOT, "scripts", "role.sql")),
                         ("localhost:9092", BOOTSTRAP)):
            text = text.replace(old, new)
        return text

    create, secrets, start, later = blocks("sh")
    (fleet.folder / "fleet.toml").write_text(here(blocks("toml")[0]))
    program = fleet.folder / "bin" / "millrace"
    program.parent.mkdir()
    program.symlink_to(BINARY)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['MILLRACE_PG_BIN']}:/usr/lib/postgresql/15/bin:{os.environ['PATH']}",
                   "PGHOST": url["host"], "PGPORT": url["port"], "PGUSER": url["user"], "PGPASSWORD": url["password"]}

    def run(text):
        with open(fleet.folder / "said", "w", encoding="utf-8") as said:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", here(text)], cwd=fleet.folder, env=environment, timeout=120, stdout=said,
                                  stderr=said, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0, (fleet.folder / "said").read_text()
        return (fleet.folder / "said").read_text()

    begin, insert = start.split("psql -qc")
    try:
        run(create)
        run(secrets)
        run(begin + "\njobs -p > pids")
        eventually(lambda: fleet.database.is_streamed(*(f"mr_{name}" for name in names[:2])), what="both streams")
        assert "streaming" in run("psql -qc" + insert)
        for name, row in ((names[0], "a"), (names[1], "b")):
            if row == "b":
                run(here(f"psql -qc \"INSERT INTO orders (v) VALUES ('b')\" {name}"))
            assert topic(f"{name}.public.orders").take(1)[0].json["after"]["v"] == row
        said = run(later)
        assert f"+ {fleet.mark}_c\nexit code 2\n" in said and "1 written, 0 removed, 2 as before" in said
    finally:
        for pid in (fleet.folder / "pids").read_text().split() if (fleet.folder / "pids").exists() else ():
            os.kill(int(pid), 15)
        for name in names:
            eventually(lambda name=name: not fleet.database.run("SELECT FROM pg_replication_slots WHERE slot_name = %s AND active", [f"mr_{name}"],
                                                                database="postgres"), what="the end of the streams")
            fleet.database.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [f"mr_{name}"],
                               database="postgres")
            fleet.database.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", database="postgres")
        fleet.database.run(f"DROP ROLE IF EXISTS {fleet.mark}", database="postgres")
