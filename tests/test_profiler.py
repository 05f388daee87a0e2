"""The profiler inside: what it serves and writes, that it is fair, and that it never disturbs the flow."""

import http.client
import os
import re
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree

import pytest

from kit import BINARY, eventually, expect, is_linked_with, profile_command
from pprof_file import Profile, go_pprof

pytestmark = pytest.mark.timeout(240)

NOBODY = 65534
SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ


# The thread sanitizer keeps a signal back until the thread next calls the C library; where it was is then over.
LATE_SIGNALS = is_linked_with("libtsan")
# It also makes unwinding so slow that at 150 Hz the profiler's thread does not catch up with a busy flow.
AT_EASE = {"frequency": "10"} if LATE_SIGNALS else {}

# libc6-dbg, which scripts/setup.sh installs.
LIBC_NAMES = os.path.isdir("/usr/share/doc/libc6-dbg")


def fetch(url, timeout=60):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read()


def refusal(url):
    """Status and text of an answer that must not be good."""
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url)
    return error.value.code, error.value.read().decode()


def insert(database, rows):
    database.run(f"INSERT INTO t (name, note) SELECT 'name ' || g, repeat('x', 100) FROM generate_series(1, {rows}) g")


def delivered(database):
    """Waits until PostgreSQL has been told that all is delivered."""
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.run(
        "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
        [end, database.slot])[0][0], 120, "delivery")


def cpu_by_thread(pid):
    """CPU time of each thread by name, from the scheduler's nanoseconds."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
                name = file.read().strip()
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
                found[name] = found.get(name, 0) + int(file.read().split()[0]) / 1e9
        except FileNotFoundError:
            continue
    return found


def in_background(work, limit_s=120):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()), daemon=True)
    thread.start()

    def finish():
        thread.join(limit_s)
        assert result, "it did not end"
        return result[0]

    return finish


def profile_under_load(database, process, seconds):
    """A profile with all of the load inside it, and the least and most that each thread may have used during it,
    {name: (s, s)}, by its own clock; None: the load did not end in time, or the machine left the profiler waiting."""
    times = len(process.log("profile_started")) + 1
    before = cpu_by_thread(process.process.pid)
    finish = in_background(lambda: fetch(f"{process.url}/pprof/profile/report?seconds={seconds}&frequency=200", seconds + 60),
                           seconds + 60)
    process.wait_for("profile_started", times=times)
    began = cpu_by_thread(process.process.pid)
    half = time.monotonic() + seconds / 2
    while time.monotonic() < half:
        insert(database, 1000 if SANITIZED else 60000)
    delivered(database)
    ended, ended_s = cpu_by_thread(process.process.pid), time.time()
    profile = Profile(finish())
    after = cpu_by_thread(process.process.pid)
    counted = profile.counted()
    print(seconds, counted)
    if ended_s > profile.start_s + profile.duration_s or counted["lost"] > counted["samples"] / (2 if SANITIZED else 100):
        return None
    return profile, {name: (cpu - began.get(name, 0), after.get(name, cpu) - before.get(name, 0))
                     for name, cpu in ended.items()}


def test_cpu_profile_is_fair_rooted_named_and_labelled(database, profiled):
    process = profiled(endpoints="true")
    insert(database, 1000)
    delivered(database)
    profile, used = next(filter(None, (profile_under_load(database, process, seconds) for seconds in (10, 20, 40, 80))))
    checked = []
    for name, (least_s, most_s) in used.items():
        if least_s < 0.2 or name in ("mr-http", "mr-profiler"):
            continue
        # A thread of librdkafka takes its final name during its first seconds.
        got_s = profile.total(1, thread=name) / 1e9
        print(f"{name}: {got_s:.3f} s sampled of {least_s:.3f} s to {most_s:.3f} s")
        part = 0.2 if SANITIZED else 0.10 if name.startswith("rdk:") else 0.05
        slack_s = 0.1 if SANITIZED else 0.02
        assert (1 - part) * least_s - slack_s <= got_s <= (1 + part) * most_s + slack_s, f"{name}: {got_s:.3f} s sampled"
        checked.append(name)
    # What our own threads use of a small machine in that time may be little; prof_test holds them to 5 %.
    assert profile.total(1, thread="mr-source") > 0
    assert SANITIZED or any(name.startswith("rdk:broker") for name in checked)
    counted = profile.counted()
    print(profile.frames_named(), profile.frames_named(("libdw-", "libelf-")))
    assert counted["samples"] > 0
    assert LATE_SIGNALS or counted["rooted"] >= 0.99 * counted["samples"]
    # Debian's libraries are stripped; names come from archives (docs/built-in-profiler.md) and libc6-dbg, if there.
    # The profiler's own naming happens once and weighs only in so short a profile.
    left_out = ("libdw-", "libelf-") + (() if LIBC_NAMES else ("librdkafka.so", "libjemalloc.so", "libc.so"))
    assert LATE_SIGNALS or profile.frames_named(left_out) >= 0.90
    # A stage that takes little may have no sample; which function belongs to which is src/profiler/draw's to test.
    assert "flush" in profile.labelled("stage")
    assert profile.labelled("stage") <= {"receive", "decode", "encode", "produce", "flush", "acknowledge", "http",
                                         "profiler", "other"}
    assert profile.labelled("table") <= {"public.t"}
    assert all(profile.texts[mapping[6]] for mapping in profile.mappings
               if "millrace" in profile.texts[mapping[5]] or ".so" in profile.texts[mapping[5]])


def test_go_tool_pprof_takes_report_and_alias(database, profiled, tmp_path):
    process = profiled(endpoints="true")
    insert(database, 20000)
    report = tmp_path / "profile.pb.gz"
    report.write_bytes(fetch(f"{process.url}/pprof/profile/report?seconds=2"))
    assert "flat%" in go_pprof("-top", str(report))
    insert(database, 20000)
    assert "flat%" in go_pprof("-top", f"{process.url}/debug/pprof/profile?seconds=2")
    insert(database, 20000)
    folded = fetch(f"{process.url}/pprof/profile/folded?seconds=2").decode()
    assert re.fullmatch(r"(.+;.+ \d+\n)+", folded)
    picture = fetch(f"{process.url}/pprof/profile/flamegraph?seconds=1&image_width=900")
    assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")


@pytest.mark.skipif(os.geteuid() != 0, reason="is an ordinary user's already")
def test_an_ordinary_user_gets_all_profiles(database, millrace):
    """A uid of nobody's, no group, no capability; files and folders of its own."""
    # pytest's folders are root's alone.
    with tempfile.TemporaryDirectory(prefix="millrace-nobody-") as home:
        os.chmod(home, 0o755)
        process = unprivileged(database, millrace, home)
        url = "http://" + process.address()
        with open(f"/proc/{process.process.pid}/status", encoding="ascii") as file:
            status = file.read()
        assert re.search(r"^Uid:\s+65534\s+65534\s+65534\s+65534$", status, re.M)
        assert re.search(r"^CapEff:\s+0+$", status, re.M)

        def sampled():
            insert(database, 5000 if SANITIZED else 60000)
            return Profile(fetch(f"{url}/pprof/profile/report?seconds=2&frequency=1000")).total(1) > 0

        eventually(sampled, 120, "samples")
        if not SANITIZED:
            assert Profile(fetch(url + "/pprof/heap/report")).total(3) > 0
        assert Profile(eventually(lambda: fetch(url + "/pprof/last-minute/report"), 60, not_yet=OSError)).total(1) > 0
        assert process.stop(200) == 0
        files = os.listdir(os.path.join(home, "profiles"))
        assert any(name.endswith(".pb.gz") for name in files) and any(name.endswith(".svg") for name in files)


def unprivileged(database, millrace, home):
    """A running millrace of user nobody, with everything of the profiler on."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, name text, note text)")
    binary = shutil.copy(BINARY, os.path.join(home, "millrace"))  # wherever it was built, nobody may not come
    folder = os.path.join(home, "profiles")
    os.mkdir(folder)
    os.chown(folder, NOBODY, NOBODY)
    process = millrace(profiling__endpoints="true", profiling__recorder="true", profiling__path=f'"{folder}"',
                       profiling__interval='"2s"', **({} if SANITIZED else {"profiling__heap": "true"}))
    process.path = shutil.copy(process.path, os.path.join(home, "config.toml"))
    os.chmod(process.path, 0o644)
    process.environment["TMPDIR"] = home
    process.start(executable=binary, user=NOBODY, group=NOBODY, extra_groups=[], cwd=home)
    return process.streaming()


def test_limits_and_one_at_a_time(profiled):
    process = profiled(endpoints="true")
    report = process.url + "/pprof/profile/report"
    for query in ("seconds=0", "seconds=601", "seconds=x", "frequency=0", "frequency=1001"):
        assert refusal(f"{report}?{query}")[0] == 400
    finish = in_background(lambda: fetch(f"{report}?seconds=3"))
    process.wait_for("profile_started")
    assert refusal(f"{report}?seconds=1")[0] == 429
    assert Profile(finish()).types[1] == ("cpu", "nanoseconds")
    assert refusal(process.url + "/pprof/nothing")[0] == 404


def test_session_ends_when_the_client_leaves(profiled):
    process = profiled(endpoints="true")
    with pytest.raises(OSError):
        fetch(f"{process.url}/pprof/profile/report?seconds=600", timeout=1)

    def free_again():
        try:
            return fetch(f"{process.url}/pprof/profile/report?seconds=1")
        except urllib.error.HTTPError as error:
            assert error.code == 429
            return None

    assert eventually(free_again, 30, "the end of a session nobody waits for")


def test_sigterm_is_obeyed_while_a_profile_runs(database, profiled):
    process = profiled(endpoints="true", recorder="true", frequency="1000")
    insert(database, 5000)

    def fetch_in_vain():
        """True: no empty answer was given for a profile; a 503 is an OSError, too."""
        try:
            fetch(f"{process.url}/pprof/profile/report?seconds=600&frequency=1000", 120)
        except (OSError, http.client.HTTPException):
            return True
        return False

    finish = in_background(fetch_in_vain)
    process.wait_for("profile_started")
    start = time.monotonic()
    assert process.stop(200) == 0
    # Unwinding what the rings still hold is slow under a sanitizer.
    assert time.monotonic() - start < (150 if SANITIZED else 30)
    assert finish()


def test_nothing_is_lost_at_1000_hz(database, profiled, topic):
    process = profiled(recorder="true", frequency="1000")
    for _ in range(10):
        insert(database, 3000)
    delivered(database)
    assert process.stop() == 0
    reader = topic(database.topic("t"))
    ids = []

    def all_read():
        ids.extend(record.json["after"]["id"] for record in reader.read())
        return len(ids) >= 30000

    eventually(all_read, 60, "all rows in the topic")
    assert sorted(ids) == list(range(1, 30001))


def test_heap_profile(database, profiled, millrace, tmp_path):
    if SANITIZED:  # a sanitizer brings its own allocator; what asks for heap profiles must be told
        database.run("CREATE TABLE t (id bigserial PRIMARY KEY)")
        text = expect(millrace(profiling__heap="true").run_to_end(), 78)
        assert "MILLRACE_JEMALLOC=ON" in text
        return
    process = profiled(endpoints="true", heap="true")
    insert(database, 20000)
    delivered(database)
    start = time.monotonic()
    report = fetch(process.url + "/pprof/heap/report")
    print(f"heap report after {time.monotonic() - start:.3f} s")
    profile = Profile(report)
    # Names were looked up for the report above; what that took is not millrace's.
    folded = fetch(process.url + "/pprof/heap/folded").decode()
    assert "mr_symbols_" not in folded and "mr_profile_" not in folded and "mr-" in folded
    assert "mr_symbols_" in fetch(process.url + "/pprof/heap/folded?stage=profiler&sample=alloc_space").decode()
    assert [name for name, _ in profile.types] == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
    assert profile.total(3) > 0
    path = tmp_path / "heap.pb.gz"
    path.write_bytes(report)
    assert "inuse_space" in go_pprof("-top", str(path))
    assert b"<svg" in fetch(process.url + "/pprof/heap/flamegraph?sample=alloc_space")
    assert refusal(process.url + "/pprof/heap/report?sample=nothing")[0] == 400
    taken = profile_command("--address", process.address(), "--heap", "--out", "heap.pb.gz", folder=tmp_path)
    assert taken.returncode == 0, taken.stderr
    assert Profile((tmp_path / "heap.pb.gz").read_bytes()).total(3) > 0


WORDS = ["receive", "decode", "encode", "produce", "flush", "acknowledge", "malloc", "http", "profiler", "other"]


def test_one_word_for_each_stage(database, profiled):
    """Legend, ?stage=, labels, metrics, the bottleneck and the documents say the same."""
    process = profiled(endpoints="true", recorder="true")
    insert(database, 5000)
    delivered(database)
    picture = eventually(lambda: fetch(process.url + "/pprof/last-minute/flamegraph"), 60, not_yet=OSError).decode()
    legend = re.findall(r'">([a-z]+) [0-9.]+ %</text>', picture)
    assert legend and [word for word in WORDS if word in legend] == legend
    for word in WORDS:
        assert fetch(f"{process.url}/pprof/last-minute/report?stage={word}")
    metrics = process.get("/metrics").body
    for name, words in (("millrace_stage_cpu_seconds_total", [word for word in WORDS if word != "malloc"]),
                        ("millrace_bottleneck", ["none", *WORDS[:5]])):
        assert re.findall(rf'^{name}{{stage="([a-z]+)"}}', metrics, re.M) == words
    assert list(dict.fromkeys(re.findall(r'^millrace_stage_seconds_count{stage="([a-z]+)"}', metrics, re.M))) == WORDS[:6]
    docs = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
    with open(os.path.join(docs, "built-in-profiler.md"), encoding="utf-8") as file:
        text = file.read()
    assert ", ".join(WORDS) in " ".join(text.split())


def test_unknown_parameters_are_refused(profiled):
    process = profiled(endpoints="true", recorder="true")
    for query, says in (("profile/report?secnds=1", "secnds"), ("heap/report?frequency=9", "frequency"),
                        ("last-minute/folded?seconds=1", "seconds")):
        expect(refusal(f"{process.url}/pprof/{query}"), 400, f"no parameter {says} here", "image_width")
    # What is wrong about the picture is said at once, not after ten minutes.
    for name in ("image_width", "min_width", "inverted"):
        expect(refusal(f"{process.url}/pprof/profile/flamegraph?seconds=600&{name}=no"), 400, f"parameter {name} must be")


def test_heap_profile_that_is_off_says_so(profiled):
    process = profiled(endpoints="true")
    text = expect(refusal(process.url + "/pprof/heap/report"), 403)
    assert "not activated" in text


def test_continuous_files_hold_their_interval_and_old_ones_go(database, profiled, tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "profile-notes.txt").write_text("somebody else's")
    # What a process that was killed may leave.
    (folder / ".profile-2026-01-01-00_00_00.pb.gz.part").write_bytes(b"half")
    (folder / ".flamegraph-2026-01-01-00_00_00.svg.part").write_bytes(b"half")
    process = profiled(path=f'"{folder}"', interval='"2s"', keep_size='"1KiB"', **AT_EASE)

    def files(pattern):
        return sorted(folder.glob(pattern))

    seen = {}

    def five_intervals():
        insert(database, 2000)
        for file in files("profile-*.pb.gz"):
            if file.name not in seen:
                try:
                    seen[file.name] = Profile(file.read_bytes())
                except FileNotFoundError:
                    continue
        return len(seen) >= 5

    eventually(five_intervals, 90, "five files")
    for profile in seen.values():
        assert profile.duration_s > 1.9
    ordered = [seen[name] for name in sorted(seen)]
    for earlier, later in zip(ordered, ordered[1:]):
        assert later.start_s >= earlier.start_s + earlier.duration_s - 0.2, "each file has its own interval only"
    assert len(files("profile-*.pb.gz")) <= 2, "the newest, and the one before while that is written"
    assert b"millrace" in files("flamegraph-*.svg")[0].read_bytes()
    assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")
    assert process.stop() == 0
    assert not list(folder.glob(".*"))
    assert (folder / "profile-notes.txt").exists()


def test_last_minute_is_there_at_once(database, profiled):
    process = profiled(endpoints="true", recorder="true")
    insert(database, 20000)
    delivered(database)
    assert b"<svg" in eventually(lambda: fetch(process.url + "/pprof/last-minute/flamegraph"))
    profile = Profile(fetch(process.url + "/pprof/last-minute/report"))
    assert profile.total(1) > 0
    metrics = eventually(lambda: (lambda text: text if re.search(
        r'^millrace_stage_cpu_seconds_total\{stage="flush"\} [0-9.e-]*[1-9]', text, re.M) else None)(
            fetch(process.url + "/metrics").decode()), 60, "time by stage")
    assert re.search(r"^millrace_profiler_samples_total [1-9]", metrics, re.M)


def test_endpoints_are_refused_where_anyone_can_ask(database, millrace):
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY)")
    process = millrace(http__address='"0.0.0.0:0"', profiling__endpoints="true")
    text = expect(process.run_to_end(), 78)
    assert "http.username" in text


def test_endpoints_are_off_by_default(profiled):
    process = profiled()
    assert refusal(process.url + "/pprof/profile/report?seconds=1")[0] == 404
    assert process.process.poll() is None
