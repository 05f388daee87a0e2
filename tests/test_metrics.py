"""/metrics on real servers: every figure where it should be, and the ones that count are exact."""

import os
import signal
import subprocess

import pytest

from kit import eventually, figures
from processes import broker_pid

ROWS = 20000


def when(process, check, limit_s=60, what="the metrics"):
    """The samples, once check(samples) is true."""
    def seen():
        samples = figures(process.get("/metrics").body)
        return samples if check(samples) else None
    return eventually(seen, limit_s, what)


def total(samples, name):
    """Of all label values."""
    return sum(value for key, value in samples.items() if key.startswith(name + "{"))


@pytest.fixture
def measured(database, millrace):
    """A millrace that streams table t."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.make_topic("t", 3)
    process = millrace(metrics__interval='"200ms"')
    return process.start().streaming()


def test_figures_of_a_burst_equal_what_happened(database, measured):
    database.run(f"INSERT INTO t SELECT g, 'v' FROM generate_series(1, {ROWS}) g; "
                 "UPDATE t SET v = 'w' WHERE id <= 100; DELETE FROM t WHERE id <= 10")
    records = ROWS + 100 + 2 * 10  # a delete has a tombstone
    samples = when(measured, lambda s: s["millrace_records_acknowledged_total"] == records
                   and s["millrace_lag_bytes"] == 0
                   and s['millrace_stage_seconds_count{stage="acknowledge"}'] > 0)
    assert samples["millrace_changes_total"] == ROWS + 110
    assert samples['millrace_events_total{table="public.t",operation="insert"}'] == ROWS
    assert samples['millrace_events_total{table="public.t",operation="update"}'] == 100
    assert samples['millrace_events_total{table="public.t",operation="delete"}'] == 10
    assert samples["millrace_record_bytes_total"] == samples["millrace_record_bytes_acknowledged_total"] > 0
    assert samples["millrace_messages_in_flight"] == samples["millrace_bytes_in_flight"] == 0
    assert samples["millrace_kafka_flush_seconds_count"] == samples["millrace_batch_records_count"] > 0
    assert samples["millrace_batch_records_sum"] == records
    assert samples["millrace_transaction_changes_sum"] == ROWS + 110
    for stage in ("receive", "decode", "encode", "produce", "flush", "acknowledge"):
        assert samples[f'millrace_stage_seconds_count{{stage="{stage}"}}'] > 0
    assert samples["millrace_lag_seconds"] == 0
    assert samples["millrace_confirmed_lsn"] >= samples["millrace_server_lsn"] > 0
    assert samples['millrace_state{state="streaming"}'] == samples["millrace_ready"] == 1
    assert total(samples, "millrace_bottleneck") == 1


def test_slot_and_client_figures_come(measured):
    samples = when(measured, lambda s: s.get('millrace_slot_wal_status{status="reserved"}') == 1
                   and "millrace_kafka_client_requests_total" in s)
    assert samples["millrace_slot_forecast_seconds"] == float("inf")
    assert samples["millrace_slot_retained_bytes"] >= 0
    assert samples["process_resident_memory_bytes"] > 1e6


def test_in_flight_counts_what_a_frozen_broker_holds(database, measured):
    """A broker that stands still acknowledges nothing, so what was sent is what is in flight."""
    database.run("INSERT INTO t VALUES (0, 'first')")
    when(measured, lambda s: s["millrace_records_acknowledged_total"] == 1)
    broker = broker_pid()
    os.kill(broker, signal.SIGSTOP)
    try:
        database.run("INSERT INTO t SELECT g, 'v' FROM generate_series(1, 300) g")
        # Not always all 300: what comes in more than two pieces waits in front of the sink.
        samples = when(measured, lambda s: s["millrace_messages_in_flight"] > 0 and s["millrace_stalled_seconds"] > 1)
        assert total(samples, "millrace_partition_messages_in_flight") == samples["millrace_messages_in_flight"] <= 300
        assert total(samples, "millrace_partition_bytes_in_flight") == samples["millrace_bytes_in_flight"] > 0
        assert samples["millrace_records_acknowledged_total"] == 1
        assert samples["millrace_lag_bytes"] > 0
    finally:
        os.kill(broker, signal.SIGCONT)
    samples = when(measured, lambda s: s["millrace_records_acknowledged_total"] == 301)
    assert samples["millrace_messages_in_flight"] == samples["millrace_bytes_in_flight"] == 0
    assert total(samples, "millrace_partition_messages_in_flight") == 0


def test_promtool_accepts_the_text(measured):
    checked = subprocess.run(["promtool", "check", "metrics"], input=measured.get("/metrics").body, text=True,
                             capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_lag_before_anything_is_confirmed(database, millrace):
    """The address of the log's end is no distance: none of the first looks takes it for one."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    assert database.run("SELECT pg_current_wal_lsn() - '0/0'")[0][0] > 8 << 20
    process = millrace().start()
    lags = []

    def confirmed():
        samples = figures(process.get("/metrics").body)
        lags.append(samples["millrace_lag_bytes"])
        return samples["millrace_confirmed_lsn"] > 0

    eventually(confirmed, 60, "a confirmed position")
    assert max(lags) < 8 << 20, lags
