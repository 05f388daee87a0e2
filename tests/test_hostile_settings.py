"""Settings that a role, or a database's owner, may give to millrace's sessions: none of them changes an event."""

import json
import os
import time

from kit import check, expect
from test_hostile_role import fixture_roles, fixture_scene  # pylint: disable=unused-import
from test_incremental import command, copies

COLUMNS = {
    "at": ("timestamptz", "'2024-02-29 23:59:59.123456+05:30'"), "local": ("timestamp", "'0044-03-15 12:00:00 BC'"),
    "day": ("date", "'2024-02-03'"), "span": ("interval", "'-1 year 2 days -03:04:05.6'"), "of_day": ("timetz", "'23:59:59+03'"),
    "single": ("real", "'0.1'"), "double": ("double precision", "1.0 / 3"), "exact": ("numeric", "'12345678901234567890.10'"),
    "money": ("money", "'-1234.56'"), "bytes": ("bytea", "'\\x00ff5c27'"), "words": ("text", "E'a\\\\b''c\"d\\tz\\u00fc'"),
    "doc": ("jsonb", "'{\"a\": [null, 1.50]}'"), "list": ("text[]", "ARRAY[NULL, 'NULL', 'a b']"), "tree": ("xml", "'<a>&lt;</a>x'"),
    "table": ("regclass", "'s.t'::regclass"), "routine": ("regproc", "'s.spy'::regproc"), "days": ("tstzrange", "'[2024-01-01 00:00+00,)'"),
    "bits": ("varbit", "B'101'"), "place": ("point", "'(0.1,1e300)'"), "letter": ('"char"', "'\u00fc'"), "search": ("tsvector", "'the fat cats'"),
}
# Values of settings that are texts; of those not listed, one that makes no sense.
TEXTS = {"datestyle": ["SQL, DMY", "German"], "timezone": ["Asia/Kathmandu"], "intervalstyle": ["iso_8601"], "search_path": ["s, public, pg_catalog"],
         "client_encoding": ["latin1", "sql_ascii"], "timezone_abbreviations": ["India"], "lc_monetary": ["en_US.utf8", "C"],
         "lc_numeric": ["en_US.utf8", "C"], "lc_time": ["en_US.utf8", "C"], "role": ["none"], "session_authorization": ["default"],
         "default_text_search_config": ["pg_catalog.german"]}
# Ends each session before it can be asked anything; with what is said of it.
REFUSED = {"local_preload_libraries": "could not access file"}

# With them no event was another one either, but the test took half a minute longer; which of them does it is not known.
SLOW = ("_cost", "wal_sender_timeout")


def values_of(name, kind, current, least, most, choices):
    if kind == "bool":
        return ["off" if current == "on" else "on"]
    if kind == "enum":
        return [choice for choice in choices if choice != current]
    if kind in ("integer", "real"):
        return [value for value in (least if least != current else str(int(float(least)) + 1), most) if value != current]
    return TEXTS.get(name.lower(), ["no such thing"])


class Sweep:
    def __init__(self, scene):
        self.scene, self.reader, self.number = scene, scene.roles.reader, 0
        names, kinds, values = zip(*((f'"{name}"', kind, value) for name, (kind, value) in COLUMNS.items()))
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds))
        scene.by_owner(f"CREATE TABLE s.all (id int PRIMARY KEY, {columns}); ALTER TABLE s.all REPLICA IDENTITY FULL;"
                       f"GRANT SELECT ON s.all TO {self.reader}")
        self.insert = f"INSERT INTO s.all SELECT %s, {', '.join(values)}"
        scene.database.run(f"ALTER PUBLICATION {scene.database.publication} SET TABLE s.all")
        for number in (1, 2, 3):
            scene.database.run(self.insert % number)
        self.process = scene.process(tables=("s.all",), sink__kafka__brokers=None, snapshot__mode='"always"', source__postgres__adopt_slot="true")
        self.outcome = {}

    def settings(self):
        rows = self.scene.database.run("SELECT name, vartype, setting, min_val, max_val, enumvals FROM pg_settings WHERE context IN ('user', 'backend')"
                                       " ORDER BY name")
        return [(name, value) for name, *about in rows for value in values_of(name, *about)]

    def set(self, settings):
        """Those that the server refuses are none of the attacker's."""
        taken = []
        for name, value in settings:
            try:
                self.scene.database.run(f'ALTER ROLE {self.reader} SET "{name}" = \'{value}\'' if "," not in value or name.lower() != "search_path"
                                        else f"ALTER ROLE {self.reader} SET search_path = {value}")
                taken.append((name, value))
            except Exception as error:  # pylint: disable=broad-except
                self.outcome[name, value] = f"the server: {error}"
        return taken

    def events(self):
        """What a whole run writes: the first copy, an insert, an update and a delete, a copy beside them."""
        process, database = self.process, self.scene.database
        path = os.path.join(process.folder, "out")
        expect(check(process), 0)
        with open(path, "w", encoding="utf-8") as out:
            process.start(stdout=out)
        try:
            process.streaming()
            database.run(self.insert % 4)
            database.run("UPDATE s.all SET id = 5 WHERE id = 4; DELETE FROM s.all WHERE id = 5")
            expect(command(process, "s.all"), 0)
            ends = time.monotonic() + 20
            while copies(process)["s.all"]["state"] not in ("done", "failed"):
                assert time.monotonic() < ends and process.process.poll() is None, "".join(process.lines)
                time.sleep(0.01)
            assert copies(process)["s.all"]["state"] == "done", copies(process)
            assert process.stop() == 0
        finally:
            database.run("DELETE FROM s.all WHERE id > 3")
            if process.process.poll() is None:
                process.kill()
        events = []
        with open(path, encoding="utf-8") as out:
            for line in out:
                event = json.loads(line)
                event = event.get("payload", event)
                event = event.get("value", event)
                if event is None:
                    continue  # a tombstone
                events.append(json.dumps([event["op"], event["before"], event["after"]], sort_keys=True))
        return sorted(events)

    def attempt(self, settings, expected):
        """By halves, until each that changes anything stands alone."""
        begin = time.monotonic()
        taken = self.set(settings)
        try:
            events, said = self.events(), None
        except AssertionError as error:
            events, said = None, str(error)
        finally:
            self.scene.database.run(f"ALTER ROLE {self.reader} RESET ALL")
            print(f"{time.monotonic() - begin:.1f} s", taken, flush=True)
        if events == expected:
            return
        if len(taken) > 1:
            middle = len(taken) // 2
            self.attempt(taken[:middle], expected)
            self.attempt(taken[middle:], expected)
        elif taken:
            self.outcome[taken[0]] = said or f"other events: {sorted(set(events) ^ set(expected))[:4]}"


def test_no_setting_changes_an_event(scene):
    sweep = Sweep(scene)
    expected = sweep.events()
    assert len(expected) >= 3 + 1 + 2 + 1 + 3
    settings = [one for one in sweep.settings() if one[0] not in REFUSED and not one[0].endswith(SLOW)]
    by_turn, seen = {}, {}
    for name, value in settings:
        turn = seen[name] = seen.get(name, -1) + 1
        by_turn.setdefault(turn, []).append((name, value))
    for turn in by_turn.values():
        for at in range(0, len(turn), 48):
            sweep.attempt(turn[at:at + 48], expected)
    wrong = {one: said for one, said in sweep.outcome.items() if not said.startswith("the server: ")}
    for one, said in sweep.outcome.items():
        print(one, said[:300])
    assert not wrong, wrong


def test_settings_that_end_each_session_are_named(scene):
    sweep = Sweep(scene)
    for name, said in REFUSED.items():
        assert sweep.set([(name, "no such thing")])
        expect(check(sweep.process), 69, said)
        sweep.scene.database.run(f"ALTER ROLE {sweep.reader} RESET ALL")
