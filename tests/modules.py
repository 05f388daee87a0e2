"""Which tests look at which module: `tests/modules.py --write` puts the table into tests/README.md; test_scripts.py fails where
it is stale.

A unit test looks at what it includes. A file of C counts as tested where a unit test has its name or includes its header (that of
its name, else the one that it includes first). What a system test goes through is no matter of includes; SYSTEM says what it
is about."""

import os
import re
import sys

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
README = os.path.join(TESTS, "README.md")
BEGIN, END = "<!-- made by tests/modules.py --write -->\n", "<!-- end of what it makes -->\n"

# What judges documents, packages, measurements and the tests themselves, and no module.
OF_NO_MODULE = """test_benchmarks test_deploy test_docs test_fresh_machine test_idle test_grafana test_hardening test_load test_packages test_pictures test_pr_check test_scripts
    test_site test_supply_chain test_verdict faults/test_checker faults/test_documents""".split()

SYSTEM = {
    "ask": "test_admin test_http_oddities test_profile_command",
    "base": "test_limits test_errors test_canary test_clock test_passwords",
    "cli": "test_check test_recover test_runbook test_admin test_profile_command test_operations",
    "config": "test_bad_inputs test_errors test_confinement",
    "confine": "test_confinement",
    "control": "test_slot_cost test_admin test_http_oddities test_live_page test_metrics test_signals test_reload",
    "convert": "test_convert test_migrating test_there_and_back",
    "copy": "test_snapshot test_left_out test_incremental test_moved test_repair test_recover test_signals test_reload test_copying_role test_beginning test_debezium_rows "
            "faults/test_copying_place test_wide",
    "daemon": "test_reload test_operations test_profiler test_limits",
    "encode": "test_operations test_debezium test_debezium_rows test_formats test_outbox test_routing test_keys test_hostile_messages",
    "encode/forms": "test_debezium test_formats test_outbox",
    "encode/hidden": "test_tables test_reselect",
    "encode/values": "test_types test_debezium faults/test_values",
    "event": "test_state test_delivery test_context",
    "fleet": "test_fleet test_systemd faults/test_hosts test_helm test_kubernetes_plane",
    "flow": "test_delivery test_state test_faults test_memory test_topics test_wide test_heartbeat faults/test_policies faults/test_storm "
            "faults/test_standstill",
    "kafka": "test_security test_tokens test_kerberos test_state test_verify faults/test_hanging lies/test_lying_kafka lies/test_lies",
    "ledger": "test_ledger",
    "metrics": "test_metrics faults/test_standstill",
    "options": "test_bad_inputs test_errors test_passwords test_reload test_canary",
    "ports": "test_delivery",
    "postgres/catalog": "test_catalog test_keys test_tables test_publication test_hostile_settings test_version_18 test_check",
    "postgres/conn": "test_conditions test_pooler test_security test_passwords test_kerberos lies/test_lying_postgres lies/test_lies faults/test_network faults/test_languages test_canary",
    "postgres/server": "test_managed test_slot_cost test_state test_publication test_strangers test_beginning test_left_out faults/test_slot faults/test_failover faults/test_standby_source faults/test_restored_source test_moving faults/test_move",
    "profiler": "test_profiler test_profiling test_profile_readers",
    "profiler/draw": "test_profile_command test_profile_readers",
    "record": "test_record",
    "registry": "test_formats lies/test_lies",
    "resolved": "test_resolved",
    "sink": "test_operations test_delivery test_topics test_consumers test_shadow_run",
    "sink/kafka": "test_faults test_refused test_topics test_security test_state lies/test_lying_kafka lies/test_joint_answers lies/test_lies faults/test_broker "
                  "faults/test_cluster faults/test_far_broker faults/test_hanging test_kerberos test_tokens",
    "stream": "test_operations test_reselect test_schema_changes test_logical_messages test_tables test_keys test_hostile_role lies/test_lying_postgres "
              "lies/test_lies test_version_18",
    "terminal": "test_runbook test_errors",
    "verify": "test_every test_programs test_verify test_verify_values test_repair test_recover faults/test_standby_verify",
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def includes(path):
    return re.findall(r'^#include "([^"]+)"', read(path), re.MULTILINE)


def sources():
    """{room: [its files of C]}, and [(path of a unit test, what it includes)]."""
    rooms, units = {}, []
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "src"))):
        room = os.path.relpath(folder, os.path.join(ROOT, "src"))
        if room == "." or room.split("/")[0] in ("cmake", "testing"):
            continue
        for name in sorted(names):
            if name.endswith("_test.c"):
                units.append((f"{room}/{name}", includes(os.path.join(folder, name))))
            elif name.endswith((".c", ".cpp")):
                rooms.setdefault(room, []).append(name)
            elif name.endswith(".h"):
                rooms.setdefault(room, [])
    return rooms, units


def header_of(room, name):
    stem = f"{room}/{name.rsplit('.', 1)[0]}.h"
    if os.path.exists(os.path.join(ROOT, "src", stem)):
        return stem
    return next(iter(includes(os.path.join(ROOT, "src", room, name))), None)


def row(room, files, units):
    """The tests of a room, and which of its files no unit test looks at."""
    own = [os.path.basename(path)[:-len(".c")] for path, _ in units if os.path.dirname(path) == room]
    others = [os.path.basename(path)[:-len(".c")] for path, named in units
              if os.path.dirname(path) != room and room != "base" and any(os.path.dirname(one) == room for one in named)]
    seen = {one for _, named in units for one in named}
    tested = {name for name in files if header_of(room, name) in seen or f"{name.rsplit('.', 1)[0]}_test" in own}
    without = [name.rsplit(".", 1)[0] for name in files if name not in tested]
    beside = f"; by the way: {', '.join(others)}" if others else ""
    system = [name for name in SYSTEM.get(room, "").split() if os.path.exists(os.path.join(TESTS, name + ".py"))]
    return (f"| `{room}` | {', '.join(own) or 'none'}{beside} | {', '.join(system) or 'none'} | "
            f"{len(tested)} of {len(files)}{'; not: ' + ', '.join(without) if without else ''} |\n")


def table():
    rooms, units = sources()
    return ("| room of `src` | unit tests | system tests | files that a unit test looks at |\n|---|---|---|---|\n"
            + "".join(row(room, files, units) for room, files in sorted(rooms.items())))


def written(text):
    """README with the table as it is now."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + table() + END + rest.split(END)[1]


def main(*arguments):
    text = read(README)
    if arguments == ("--write",):
        with open(README, "w", encoding="utf-8") as file:
            file.write(written(text))
        return 0
    print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
