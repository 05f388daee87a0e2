"""docs/runbook.md: a section for each exit code, error and alert, both ways, and the program that shows it."""

import os
import re
import subprocess

import pytest

import kit
from documents import anchors
from kit import BINARY, expect
from test_docs import files, read

PAGE = read("docs/runbook.md")
PARTS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
SECTIONS = dict(re.findall(r"^### (\S+)\n((?:(?!##).*\n)*)", PAGE, re.MULTILINE))
SEEN = {name: re.findall(r"^- seen as `([^`\n]+)`(.*)$", text, re.MULTILINE) for name, text in SECTIONS.items()}
STRING = r'"(?:[^"\\\n]|\\.)*"'
VERDICTS = {int(code) for code in re.findall(r"\bMR_VERIFY_CODE_\w+ = (\d+)", read("src/terminal/terminal.h"))} - {0}
# An abort is no exit code of millrace's own, an orderly end is what no error says.
NEVER_LOGGED = {"E-exit-0", "E-exit-1", "E-exit-134"} | {f"E-exit-{code}" for code in VERDICTS}


def names_of(part):
    return re.findall(r"^### (\S+)$", PARTS[part], re.MULTILINE)


def sources():
    return {path: read(path) for path in files("src/**/*.c", "src/**/*.h")
            if not path.endswith("_test.c") and not path.startswith("src/testing/")}


def sentences():
    """Texts of the source; neighbours are one, as for the compiler."""
    for text in sources().values():
        for found in re.findall(rf"{STRING}(?:\s*{STRING})*", text.replace("\\\n", "\n")):
            yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found))


def helped(topic):
    return subprocess.run([BINARY, "help", topic], capture_output=True, text=True, timeout=20, check=False)


# ---- what there is ----

def test_every_exit_code_has_a_section():
    codes = {int(code) for code in re.findall(r'\[MR_\w+\] = \{"\w+", (\d+)\}', read("src/base/status.c"))} | {1} | VERDICTS
    listed = [int(code) for code in re.findall(r"^- `(\d+)`", SECTIONS["exit-codes"], re.MULTILINE)]
    assert set(listed) == codes and listed == sorted(listed)
    sections = [name for name in names_of("Exit codes") if name != "exit-codes"]
    assert sections[0] == "E-exit-10"  # what a person looks for at night comes first
    assert {int(name.removeprefix("E-exit-")) for name in sections} == codes | {134}
    for code in codes - {0, 1} - VERDICTS:
        assert [part for part, _ in SEEN[f"E-exit-{code}"]][:2] == [f"exit_code={code}", f'exit_code":{code}']


def test_every_alert_has_a_section_and_says_where():
    rules = read("grafana/prometheus/rules.yml")
    alerts = dict(re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*? +runbook: (.+)", rules))
    assert sorted(alerts) == sorted(re.findall(r"- alert: (\w+)", rules)) == sorted(names_of("Alerts"))
    for alert, command in alerts.items():
        assert command == f"millrace help {alert}" and helped(alert).returncode == 0


def test_every_cause_of_a_standstill_has_a_section():
    for cause in set(re.findall(r'\[MR_CAUSE_\w+\] = "(\w+)"', read("src/base/standstill.c"))) - {"none", "ended"}:
        assert any(part == cause for seen in SEEN.values() for part, _ in seen) or f"`{cause}`" in SECTIONS["MillraceNotReady"], cause


def test_what_sections_say_is_what_the_program_says():
    said = "\n".join(sentences())
    parts = [(name, part, rest) for name, seen in SEEN.items() for part, rest in seen]
    assert len({part for _, part, _ in parts}) == len(parts)
    for name, part, rest in parts:
        if "words)" not in rest and not part.startswith("exit_code"):
            assert part.replace('"', '\\"') in said, f"{name}: nothing says {part}"
    for name in SECTIONS:
        assert name == "exit-codes" or SEEN[name] or name.startswith("Millrace") or name in NEVER_LOGGED, name


def test_an_error_is_found_before_its_exit_code():
    """The longest part decides: those of errors that end millrace are longer than the exit code's."""
    for name, seen in SEEN.items():
        for part, rest in seen:
            assert name.startswith("E-exit") or re.fullmatch(r"[a-z_]+", part) or len(part) > len('exit_code":10'), (name, part)


ERRORS_OF_HISTORY = re.compile(rf"MR_ERR_HISTORY,\s*(?:subject, remedy,\s*)?((?:{STRING}|\s|MR_\w+|RECIPE)+)")


def test_every_end_with_exit_code_10_has_a_section_of_its_own():
    parts = [part for seen in SEEN.values() for part, _ in seen]
    texts = [(path, "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found)))
             for path, text in sources().items() for found in ERRORS_OF_HISTORY.findall(text)]
    assert len(texts) > 12
    for path, text in texts:
        if " " in text:
            assert any(part in text for part in parts), f"{path}: {text}"


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_say_what_to_do_and_what_is_lost(name):
    text = SECTIONS[name]
    assert name.lower() in anchors(PAGE)  # of the name alone, so that it stays
    if name != "exit-codes":
        assert text.lstrip().startswith("**") and re.search(r"^\*\*Do[.,]", text, re.MULTILINE) and "\n**Lost.**" in text


STATEMENTS = [statement for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
              for statement in re.findall(r"(?:'[^']*'|[^;'])+;", re.sub(r"--.*", "", block))]
CHANGES_SERVER = ("ALTER SYSTEM", "SELECT pg_reload_conf", "SELECT pg_create_logical_replication_slot", "ALTER ROLE", "CREATE PUBLICATION",
                  "ALTER PUBLICATION", "BEGIN", "COMMIT", "GRANT USAGE ON SCHEMA public TO millrace", "GRANT SELECT ON public.orders")


def test_questions_of_the_page_are_answered(database):
    """SQL that only looks, as it stands there; what changes server or role is left out."""
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY)")
    asked = [" ".join(statement.split()) for statement in STATEMENTS if not " ".join(statement.split()).startswith(CHANGES_SERVER)]
    assert len(asked) >= 6
    for statement in asked:
        database.run(statement)


def test_the_limit_is_raised_and_never_lowered(database, millrace):
    """As printed, by the page and by `check`: after it a checkpoint leaves the slot alone. A literal that was once there ends it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    assert process.stop() == 0
    kept = f"SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
    (look,) = [statement for statement in STATEMENTS if "AS run" in statement]
    with database.setting("max_slot_wal_keep_size", "'400MB'"):
        while database.run(kept)[0][0] < 210e6:
            database.run("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 10000000))")
        command = database.run(look)[0][0]
        raised = int(re.fullmatch(r"ALTER SYSTEM SET max_slot_wal_keep_size = '(\d+)MB';", command)[1])
        assert raised in range(600, 640)
        _, told = kit.check(process)
        told_mb = int(re.search(r"ALTER SYSTEM SET max_slot_wal_keep_size = '(\d+)MB'; SELECT pg_reload_conf\(\);", told)[1])
        assert raised <= told_mb <= raised + 8, (raised, told_mb)
        for statement, lost in ((command, False), ("ALTER SYSTEM SET max_slot_wal_keep_size = '50MB'", True)):
            database.run(statement)
            database.run("SELECT pg_reload_conf()")
            kit.eventually(lambda: database.run("SHOW max_slot_wal_keep_size")[0][0] in statement, what="the limit")
            for _ in range(2):
                database.run("CHECKPOINT")
            assert (database.slot_row("wal_status") == "lost") == lost
        assert int(re.search(r"'(\d+)MB'", database.run(look)[0][0])[1]) >= 114
    assert database.run(look) == []  # no limit: none to raise


# ---- what the program shows ----

@pytest.mark.parametrize("name", SECTIONS)
def test_help_prints_the_section_as_plain_text(name):
    done = helped(name)
    assert (done.returncode, done.stderr) == (0, "")
    assert helped(name.upper()).stdout == done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"\*\*|```|<!--|\]\(", done.stdout) and "`" not in done.stdout
    words = re.sub(r"(?s)<!--.*?-->|```\w*|`|\*\*|\[([^\]]+)\]\([^)]+\)", r"\1", SECTIONS[name]).split()
    assert done.stdout.split() == words


@pytest.mark.parametrize("word, name", [("poison", "E-exit-65"), ("reload_refused", "E-reload-refused"), ("disk", "E-disk-full")])
def test_help_knows_what_a_person_looks_for(word, name):
    assert helped(word).stdout == helped(name).stdout != ""


@pytest.mark.parametrize("name", [name for name in SECTIONS if SEEN[name]])
def test_help_finds_a_section_by_what_is_seen(name):
    for part, _ in SEEN[name]:
        assert helped(part).stdout == helped(f"x {part} y").stdout == helped(name).stdout != "", part


def test_help_finds_a_section_by_a_part_of_what_is_seen():
    """In whole words: a mistyped option is none of these."""
    assert helped("space left on").stdout == helped("E-disk-full").stdout != ""
    assert helped("o space left on dev").returncode == 64
    assert helped("surely the").returncode == 64


def test_help_lists_the_sections():
    assert helped("runbook").stdout.split() == list(SECTIONS)


def test_help_of_options_and_manual_pages_have_no_markdown():
    for text in (helped("options").stdout, *(subprocess.run([BINARY, "reference", part], capture_output=True, text=True, timeout=20,
                                                            check=True).stdout for part in ("man", "man-config"))):
        assert "formats.md)" in text or "E\\-slot\\-lost" in text
        assert not re.search(r"\]\(|`", text)


def test_check_names_the_section():
    done = subprocess.run([BINARY, "check"], env={**os.environ, "DATABASE_URL": "postgresql://x@127.0.0.1:1/x", "MILLRACE_TABLES": "t"},
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 69 and "see: millrace help E-postgresql-away" in done.stdout


def test_a_wrong_file_names_the_section(tmp_path):
    done = subprocess.run([BINARY, "check", "--config", str(tmp_path / "none")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and done.stderr.endswith("see millrace help E-exit-78\n")


def test_another_program_at_the_address_names_its_section(tmp_path):
    with kit.served(tmp_path) as url:
        done = subprocess.run([BINARY, "status", "--address", url.split("/")[2]], capture_output=True, text=True, timeout=60, check=False)
        health = [subprocess.run([BINARY, "health", *more, "--address", url.split("/")[2]], capture_output=True, text=True, timeout=60, check=False)
                  for more in ((), ("--ready",))]
    assert done.returncode == 78 and "not millrace" in done.stderr and "see millrace help E-http-unavailable" in done.stderr, done.stderr
    assert all((one.returncode, "<" in one.stdout) == (1, False) and "not millrace" in one.stdout for one in health), health


def test_a_dropped_slot_names_its_section(database, millrace):
    """The last line of the log, and check before the next start."""
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY)")
    process = millrace(("public.orders",)).start().streaming()
    database.run("INSERT INTO orders DEFAULT VALUES")
    assert process.stop() == 0
    database.run(f"SELECT pg_drop_replication_slot('{database.slot}')")
    assert process.run_to_end()[0] == 10
    assert process.log("stopped")[-1]["see"] == "millrace help E-slot-gone"
    expect(kit.check(process), 10, "see: millrace help E-slot-gone")


def test_kafka_away_names_its_section(database, millrace):
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY)")
    process = millrace(("public.orders",), sink__kafka__brokers='["127.0.0.1:1"]').start()
    process.wait_for("kafka_unreachable")
    assert process.log("kafka_unreachable")[0]["see"] == "millrace help E-kafka-away"
    process.stop()


# ---- events of the log ----

def arguments(text, begin):
    """Of the call whose bracket is at `begin`."""
    depth, found = 0, [""]
    for token in re.findall(rf"{STRING}|.", text[begin:], re.DOTALL):
        depth += token in "([{"
        depth -= token in ")]}"
        if depth == 0:
            return found
        if token == "," and depth == 1:
            found.append("")
        else:
            found[-1] += token
    return found


def events_of(text):
    """Events that are logged there; of a function that is handed one (`event`), those of its callers."""
    found = set()
    for call in re.finditer(r"\bmr_log(?:_write)?(?=\()", text):
        event = arguments(text, call.end())[1:2]
        names = re.findall(r'"([a-z_]+)"', event[0]) if event else []
        if not names and event and re.fullmatch(r"\s*event", event[0]):
            wrapper = re.findall(r"\b(\w+)\([^;{}]*\bevent\b[^;{}]*\)\s*\{", text[:call.start()])[-1]
            names = re.findall(rf'\b{wrapper}\([^;{{"]*"([a-z_]+)"', text)
        found.update(names)
    return found


def logged_events():
    found = {"log_dropped"}  # the log's own
    for path, text in sources().items():
        if not path.startswith("src/base/log."):
            found |= events_of(re.sub(r"\bMR_MONITOR_MEMORY_EVENT\b", '"memory"', text))
    return found


def test_the_table_of_log_events_is_that_of_the_source():
    pages = [path for path in files("docs/*.md") if "\n| event | when |\n" in read(path)]
    assert len(pages) == 1, pages
    table = read(pages[0]).split("\n| event | when |\n", 1)[1].split("\n\n", 1)[0]
    told = [name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)`", row.split(" | ")[0])]
    assert len(told) == len(set(told))
    assert set(told) == logged_events()


def test_an_event_is_found_however_it_is_logged():
    text = """static void warn(struct x *x, const char *event, const char *text)
{
    mr_log(MR_LOG_WARN, event, text, MR_LOG_STR("no_event", x->name));
}
{
    warn(f(x), "by_a_function", "text");
    mr_log(good ? MR_LOG_INFO : MR_LOG_WARN, good ? "one" : "other", "no_event");
    mr_log(
        MR_LOG_INFO, "alone", "a, (b");
}
"""
    assert events_of(text) == {"by_a_function", "one", "other", "alone"}
