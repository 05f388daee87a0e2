#!/usr/bin/env python3
"""Makes the dashboards in grafana/dashboards from the lists below.

    grafana/make_dashboards.py            writes them
    grafana/make_dashboards.py --check    says which differ from the committed files; exit code 1 if any

Metric names are those of src/metrics/metrics.def; tool:… are the recording rules of grafana/prometheus/rules.yml."""

import json
import os
import re
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dashboards")
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}  # a variable: dashboards fit any Grafana
COLUMNS = 24
MILLRACE = 'job="millrace",instance=~"$instance"'


# ---- queries ----

def metric(name, labels=""):
    return f'{name}{{{MILLRACE}{"," + labels if labels else ""}}}'


def rate(name, labels=""):
    return f"rate({metric(name, labels)}[$__rate_interval])"


def total(name, by="instance", labels=""):
    """Sum of a counter's rates."""
    return f"sum by ({by}) ({rate(name, labels)})"


def or_zero(query):
    """Counters of trouble have no line before there was any."""
    return f"({query}) or sum by (instance) (0 * {metric('millrace_ready')})"


def quantile(q, name, by="", labels=""):
    """Of a histogram."""
    return f'histogram_quantile({q}, sum by (le{", " + by if by else ""}) ({rate(name + "_bucket", labels)}))'


def quantiles(name, labels="", of=(0.5, 0.99)):
    return [(f"p{q * 100:g}", quantile(q, name, labels=labels)) for q in of]


def buckets(name, labels=""):
    """Of a histogram, for a heat map."""
    return f"sum by (le) (increase({metric(name + '_bucket', labels)}[$__rate_interval]))"


# The container's memory and CPU as cAdvisor sees them; without cAdvisor the process's own.
MEMORY = f'max(tool:memory_bytes{{tool="millrace"}}) or max({metric("process_resident_memory_bytes")})'
CPU = f'max(tool:cpu_seconds:rate30s{{tool="millrace"}}) or max({rate("process_cpu_seconds_total")})'


# ---- panels ----

# What a panel says in place of a line when none of its queries has data.
WITHOUT_DATA = [
    (r"millrace_slot_safe_wal_bytes|millrace_slot_forecast_seconds",
     "No limit: max_slot_wal_keep_size is -1, or the slot is safe"),
    (r"tool:|pg_\w+_", "Needs the exporters of docker-compose.yml"),
    (r"millrace_kafka_", "No data: is the sink Kafka?"),
]


def panel(kind, title, text, queries, width, height, unit="short", **more):
    """queries: (legend, query) pairs."""
    made = {
        "type": kind, "title": title, "description": text, "datasource": PROMETHEUS,
        "gridPos": {"w": width, "h": height},
        "targets": [{"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend, "datasource": PROMETHEUS,
                     "range": True} for i, (legend, query) in enumerate(queries)],
        "fieldConfig": {"defaults": {"unit": unit, "custom": {}}, "overrides": []},
        "options": {},
    }
    for pattern, said in WITHOUT_DATA:
        if all(re.search(pattern, query) for _, query in queries):
            more.setdefault("noValue", said)
    for key, value in more.items():
        made["fieldConfig"]["defaults"][key] = value
    return made


def graph(title, text, queries, unit="short", width=12, height=8, stacked=False, **more):
    made = panel("timeseries", title, text, queries, width, height, unit, **more)
    made["fieldConfig"]["defaults"].setdefault("min", 0)
    made["fieldConfig"]["defaults"]["custom"] = {
        "drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if stacked else 10, "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none"}}
    made["options"] = {"legend": {"displayMode": "list", "placement": "bottom"},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
    return made


def steps(*pairs):
    """Colours from a value on: steps(("green", None), ("red", 60))."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in pairs]}


def stat(title, text, query, unit="short", legend="", width=3, thresholds=None, name=False):
    """One figure; name: show the series' name in place of its value."""
    made = panel("stat", title, text, [(legend, query)], width, 4, unit)
    made["fieldConfig"]["defaults"]["thresholds"] = thresholds or steps(("green", None))
    made["targets"][0].update({"instant": True, "range": False})
    made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none",
                       "textMode": "name" if name else "auto"}
    return made


def heatmap(title, text, query, width=12, height=8):
    made = panel("heatmap", title, text, [("{{le}}", query)], width, height, "s")
    made["targets"][0]["format"] = "heatmap"
    made["options"] = {"calculate": False, "yAxis": {"unit": "s"}, "color": {"mode": "scheme", "scheme": "Turbo"},
                       "cellGap": 0, "tooltip": {"mode": "single"}, "legend": {"show": True}}
    return made


def timeline(title, text, query, legend, width=12, height=8):
    """Which of several words holds, over time."""
    made = panel("state-timeline", title, text, [(legend, query)], width, height)
    made["fieldConfig"]["defaults"]["thresholds"] = steps(("transparent", None), ("blue", 1))
    made["fieldConfig"]["defaults"]["color"] = {"mode": "thresholds"}
    made["options"] = {"showValue": "never", "mergeValues": True, "rowHeight": 0.8, "legend": {"showLegend": False}}
    return made


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "gridPos": {"w": COLUMNS, "h": 1}, "panels": []}


# ---- dashboards ----

def label_variable(name, label, query, **more):
    made = {"name": name, "label": label, "type": "query", "datasource": PROMETHEUS, "refresh": 2, "sort": 1,
            "query": {"query": query, "refId": name}, "definition": query, "hide": 0}
    made.update(more)
    return made


DATASOURCE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
              "hide": 0, "current": {}, "options": []}
INSTANCE = label_variable("instance", "Instance", 'label_values(up{job="millrace"}, instance)', multi=True,
                          includeAll=True, allValue=".*", current={"text": "All", "value": "$__all"})
STAGE = label_variable("stage", "Stage", "label_values(millrace_stage_seconds_bucket, stage)",
                       current={"text": "acknowledged", "value": "acknowledged"})

# load/run-load.sh posts these through Grafana's API.
LOAD_MARKS = {"name": "Load", "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True,
              "iconColor": "orange", "target": {"type": "tags", "tags": ["millrace-load"], "matchAny": True,
                                                "limit": 200}}
ALERT_MARKS = {"name": "Alerts", "datasource": PROMETHEUS, "enable": True, "iconColor": "red",
               "expr": 'ALERTS{alertname=~"Millrace.*",alertstate="firing"}', "titleFormat": "{{alertname}}",
               "step": "10s"}


def dashboard(uid, title, text, panels, variables=(), refresh="5s", span="now-15m"):
    x = y = line_height = 0
    for number, each in enumerate(panels, 1):
        place = each["gridPos"]
        if x + place["w"] > COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        place.update({"x": x, "y": y})
        x, line_height = x + place["w"], max(line_height, place["h"])
        each["id"] = number
    return {
        "uid": uid, "title": title, "description": text, "tags": ["millrace"], "schemaVersion": 41, "version": 1,
        "editable": True, "graphTooltip": 1, "refresh": refresh, "time": {"from": span, "to": "now"},
        "timepicker": {"refresh_intervals": ["1s", "5s", "10s", "30s", "1m"]}, "timezone": "browser",
        "annotations": {"list": [LOAD_MARKS, ALERT_MARKS]}, "templating": {"list": [DATASOURCE, *variables]},
        "links": [{"type": "dashboards", "title": "millrace", "tags": ["millrace"], "keepTime": True}],
        "panels": panels,
    }


def summary():
    minute, hour = 60, 3600
    return [
        stat("State", "What millrace is doing.", f'{metric("millrace_state")} == 1', legend="{{state}}", name=True),
        stat("Bottleneck", "The stage that holds the flow now; none: it keeps up.",
             f'{metric("millrace_bottleneck")} == 1', legend="{{stage}}", name=True),
        stat("Acknowledged", "Records a second that Kafka has taken.", f"sum({rate('millrace_records_acknowledged_total')})",
             "cps"),
        stat("In flight", "Records handed to the sink and not acknowledged.",
             f'sum({metric("millrace_messages_in_flight")})'),
        stat("Lag", "Age of the oldest change that is not confirmed.", f'max({metric("millrace_lag_seconds")})', "s",
             thresholds=steps(("green", None), ("orange", 10), ("red", minute))),
        stat("Slot lost in", "At the last minute's pace; infinite when the slot is safe.",
             f'min({metric("millrace_slot_forecast_seconds")})', "s",
             thresholds=steps(("red", None), ("orange", hour), ("green", 6 * hour))),
        stat("Memory", "Of the container (cAdvisor), or else of the process.", MEMORY, "bytes",
             thresholds=steps(("green", None), ("orange", 200 << 20), ("red", 256 << 20))),
        stat("CPU", "Cores in use.", CPU, "none"),
    ]


def flow():
    return [
        row("Flow"),
        graph("Changes and records", "Received from PostgreSQL, handed to the sink, acknowledged. The three lie on "
              "each other while the flow keeps up.",
              [("received", total("millrace_changes_total")), ("handed over", total("millrace_records_total")),
               ("acknowledged", total("millrace_records_acknowledged_total"))], "cps"),
        graph("Bytes", "The stream from PostgreSQL, the records made of it, and what went to brokers compressed.",
              [("received", total("millrace_received_bytes_total")),
               ("acknowledged", total("millrace_record_bytes_acknowledged_total")),
               ("sent, compressed", total("millrace_kafka_client_sent_bytes_total"))], "Bps"),
        graph("Events by table", "The ten busiest tables and operations.",
              [("{{table}} {{operation}}", f'topk(10, {total("millrace_events_total", "table, operation")})')], "cps",
              stacked=True),
        graph("Transactions", "A large one arrives only after its commit: a burst of lag.",
              [("transactions/s", f"sum({rate('millrace_transactions_total')})"),
               ("changes, p50", quantile(0.5, "millrace_transaction_changes")),
               ("changes, p99", quantile(0.99, "millrace_transaction_changes"))]),
        graph("Batches", "Records and fill when handed over. Small under load: the socket runs empty between them.",
              [("records, p50", quantile(0.5, "millrace_batch_records")),
               ("records, p99", quantile(0.99, "millrace_batch_records"))]),
        graph("Batch fill", "Near 1 under load, near 0 when quiet.", quantiles("millrace_batch_fill_ratio"),
              "percentunit", max=1),
    ]


def in_flight():
    return [
        row("In flight and backpressure"),
        graph("Messages in flight", "Handed to the sink and not acknowledged; exact.",
              [("all", f'sum by (instance) ({metric("millrace_messages_in_flight")})'),
               ("{{topic}} {{partition}}", f'topk(5, {metric("millrace_partition_messages_in_flight")})')]),
        graph("Bytes in flight", "Bounded by the pool.",
              [("in flight", f'sum by (instance) ({metric("millrace_bytes_in_flight")})'),
               ("batches' memory in use", metric("millrace_arena_used_bytes")),
               ("batches' memory", metric("millrace_arena_bytes"))], "bytes"),
        graph("Pool", "No free batch is backpressure.",
              [("free", metric("millrace_pool_free_batches")), ("in flight", metric("millrace_batches_in_flight")),
               ("all", metric("millrace_pool_batches"))]),
        graph("Where the source thread's time goes", "Share of time it waited for a free batch (the sink holds up the "
              "flow) and for PostgreSQL (nothing to read).",
              [("backpressure", rate("millrace_backpressure_seconds_total")),
               ("waits for PostgreSQL", rate("millrace_source_wait_seconds_total"))], "percentunit", max=1),
    ]


def times():
    return [
        row("Time"),
        graph("Commit to acknowledgement", "What a consumer waits for a row.",
              quantiles("millrace_latency_seconds", of=(0.5, 0.9, 0.99, 0.999)), "s"),
        graph("Flush time", "First record of a batch handed over to its last acknowledgement.",
              quantiles("millrace_kafka_flush_seconds", of=(0.5, 0.9, 0.99)), "s"),
        heatmap("Stage $stage", "Batches by the time they took to this stage from the one before.",
                buckets("millrace_stage_seconds", 'stage="$stage"')),
        heatmap("Flush time", "Batches by flush time.",
                buckets("millrace_kafka_flush_seconds")),
        graph("Stages, p99", "Where the time goes on the way from commit to confirmation.",
              [("{{stage}}", quantile(0.99, "millrace_stage_seconds", "stage"))], "s"),
        graph("Broker", "The brokers' and the network's part of the flush time.",
              [("{{broker}} round trip {{stat}}", metric("millrace_kafka_broker_rtt_seconds")),
               ("{{broker}} queue {{stat}}", metric("millrace_kafka_broker_queue_seconds"))], "s"),
    ]


def lag_and_slot():
    return [
        row("Lag and slot"),
        graph("Lag in time", "Age of the oldest committed change that is not confirmed.",
              [("{{instance}}", metric("millrace_lag_seconds"))], "s"),
        graph("Lag in WAL", "Written by PostgreSQL and not confirmed; kept on its disk for the slot.",
              [("not confirmed", metric("millrace_lag_bytes")), ("kept", metric("millrace_slot_retained_bytes")),
               ("kept, by the exporter", "max by (slot_name) (pg_replication_slots_pg_wal_lsn_diff)")], "bytes"),
        graph("Slot: WAL until it is lost", "What can still be written (max_slot_wal_keep_size).",
              [("{{instance}}", metric("millrace_slot_safe_wal_bytes"))], "bytes"),
        graph("Slot: forecast", "Time until the slot is lost at the last minute's pace. No line: it is safe.",
              [("{{instance}}", metric("millrace_slot_forecast_seconds"))], "s"),
        timeline("wal_status", "reserved and extended are fine; unreserved: about to be lost; lost: rows are gone.",
                 metric("millrace_slot_wal_status"), "{{status}}"),
        graph("Positions", "Bytes a second: written by PostgreSQL, received, confirmed.",
              [("written", rate("millrace_server_lsn")), ("received", rate("millrace_received_lsn")),
               ("confirmed", rate("millrace_confirmed_lsn"))], "Bps"),
        graph("Age of positions", "How long ago PostgreSQL's WAL ended at each; the step at which it jumps is the slow one.",
              [("{{position}}", metric("millrace_behind_seconds"))], "s"),
        graph("Kept although confirmed", "For an open transaction, which /status names.",
              [("{{instance}}", metric("millrace_slot_held_bytes"))], "bytes"),
        graph("Age of catalog rows", "In transactions: VACUUM keeps older rows of catalogs for the slot.",
              [("{{instance}}", metric("millrace_slot_catalog_xmin_age"))], "short"),
    ]


def bottleneck():
    return [
        row("Bottleneck"),
        timeline("Bottleneck", "The stage that holds the flow.", metric("millrace_bottleneck"), "{{stage}}"),
        timeline("State", "What millrace is doing.", metric("millrace_state"), "{{state}}"),
        graph("CPU by thread", "A thread near 1 is at its limit.",
              [("{{thread}}", rate("millrace_thread_cpu_seconds_total"))], "percentunit", stacked=True),
        graph("Waiting for a CPU", "High: the machine has too few CPUs, or a limit throttles.",
              [("{{thread}}", rate("millrace_thread_runqueue_seconds_total"))], "percentunit"),
    ]


def none_is_zero(query):
    """What has a value only while a copy is under way."""
    return f"({query} >= 0) or sum by (instance) (0 * {metric('millrace_ready')})"


def copies():
    def part(done, of):
        return none_is_zero(f"{metric(done)} / {metric(of)}")
    return [
        row("Copies of existing rows"),
        timeline("First copy", "none: nothing was to be copied. broken_off: the next attempt begins again.",
                 metric("millrace_snapshot_state"), "{{state}}"),
        graph("First copy: progress", "Part of the tables' files that is read, in all and of the tables under way.",
              [("all", part("millrace_snapshot_bytes", "millrace_snapshot_bytes_estimated")),
               ("{{table}}", part("millrace_snapshot_table_bytes", "millrace_snapshot_table_bytes_estimated"))],
              "percentunit", max=1),
        graph("First copy: time", "What it will take yet, by the bytes read so far, beside how long the slot lasts at the last "
              "minute's pace: raise max_slot_wal_keep_size where the second is the shorter.",
              [("left", none_is_zero(metric("millrace_snapshot_seconds_left"))),
               ("so far", metric("millrace_snapshot_seconds")),
               ("until the slot is lost", none_is_zero(f"{metric('millrace_slot_forecast_seconds')} < Inf"))], "s"),
        graph("Rows", "Existing rows a second: of the first copy, and beside the stream; rows that the stream had in a newer form "
              "are passed over.",
              [("first copy", none_is_zero(f"deriv({metric('millrace_snapshot_rows')}[$__rate_interval])")),
               ("beside the stream", total("millrace_incremental_rows_total")),
               ("passed over", total("millrace_incremental_rows_passed_over_total"))], "cps"),
        graph("Tables", "To be copied, done, and those that are copied beside the stream or wait for it.",
              [("first copy", metric("millrace_snapshot_tables")), ("done", metric("millrace_snapshot_tables_done")),
               ("beside the stream", metric("millrace_incremental_tables"))]),
        graph("Chunks", "Read beside the stream. Many that are read again: a table is altered, or an old transaction is under "
              "way.",
              [("sent", total("millrace_incremental_chunks_total")),
               ("read again", total("millrace_incremental_chunks_repeated_total"))], "cps"),
    ]


def memory_and_cpu():
    return [
        row("Memory and CPU"),
        graph("Memory", "The container as cAdvisor sees it (without cAdvisor: the process), resident, and jemalloc's.",
              [("container", MEMORY), ("resident", metric("process_resident_memory_bytes")),
               ("resident, peak", metric("millrace_resident_memory_peak_bytes")),
               ("jemalloc allocated", metric("millrace_jemalloc_allocated_bytes")),
               ("jemalloc active", metric("millrace_jemalloc_active_bytes")),
               ("jemalloc resident", metric("millrace_jemalloc_resident_bytes"))], "bytes"),
        graph("Batches' memory", "What holds rows.",
              [("all", metric("millrace_arena_bytes")), ("most so far", metric("millrace_arena_high_water_bytes")),
               ("in use", metric("millrace_arena_used_bytes"))], "bytes"),
        graph("CPU", "Cores.", [("container", CPU), ("process", rate("process_cpu_seconds_total"))], "none"),
        graph("Descriptors and allocations", "Allocations stand still while rows flow.",
              [("descriptors", metric("process_open_fds")), ("threads", metric("millrace_threads")),
               ("allocations/s", rate("millrace_allocations_total"))]),
    ]


def trouble():
    return [
        row("Trouble"),
        graph("Errors", "By the source's kind and by librdkafka's name.",
              [("source {{code}}", or_zero(total("millrace_source_errors_total", "instance, code"))),
               ("Kafka {{code}}", or_zero(total("millrace_kafka_errors_total", "instance, code")))], "cps"),
        graph("Reconnects and rebuilds", "Each rebuild repeats rows that were not yet confirmed.",
              [("reconnects {{reason}}", or_zero(total("millrace_reconnects_total", "instance, reason"))),
               ("rebuilds {{reason}}", or_zero(total("millrace_producer_rebuilds_total", "instance, reason"))),
               ("repeated rows skipped", total("millrace_replayed_skipped_total"))], "cps"),
        graph("Kafka client", "Queue and requests.",
              [("queued records", metric("millrace_kafka_client_queue_messages")),
               ("{{broker}} requests in flight", metric("millrace_kafka_broker_requests_in_flight")),
               ("retries/s", or_zero(total("millrace_kafka_retries_total"))),
               ("timeouts/s", or_zero(total("millrace_kafka_broker_timeouts_total")))]),
        graph("Standing still", "Seconds since the last acknowledgement while records are in flight; age of the slot's "
              "figures; log lines dropped.",
              [("stalled", metric("millrace_stalled_seconds")), ("slot's figures", metric("millrace_slot_age_seconds")),
               ("log lines dropped/s", rate("millrace_log_dropped_total"))], "s"),
    ]


def pipeline():
    return dashboard("millrace-pipeline", "millrace: Pipeline", "Rows from PostgreSQL to Kafka, and what holds them up.",
                     [*summary(), *flow(), *in_flight(), *times(), *lag_and_slot(), *bottleneck(), *copies(), *memory_and_cpu(),
                      *trouble()], [INSTANCE, STAGE])


def burst():
    def wide(title, text, queries, unit, **more):
        return graph(title, text, queries, unit, width=COLUMNS, height=6, **more)
    panels = [
        wide("WAL", "Written by PostgreSQL, received, confirmed.",
             [("written", rate("millrace_server_lsn")),
              ("written, by the exporter", "max(rate(pg_stat_replication_pg_current_wal_lsn_bytes[$__rate_interval]))"),
              ("received", rate("millrace_received_lsn")), ("confirmed", rate("millrace_confirmed_lsn"))], "Bps"),
        wide("Records", "Received changes, records handed over, records acknowledged.",
             [("received", total("millrace_changes_total")), ("handed over", total("millrace_records_total")),
              ("acknowledged", total("millrace_records_acknowledged_total"))], "cps"),
        wide("In flight", "Records handed over and not acknowledged; free batches.",
             [("records", metric("millrace_messages_in_flight")), ("free batches", metric("millrace_pool_free_batches"))],
             "short"),
        wide("Flush time", "Of a batch, to its last acknowledgement.",
             quantiles("millrace_kafka_flush_seconds", of=(0.5, 0.99, 1)), "s"),
        wide("Lag", "Time is what consumers see.", [("age", metric("millrace_lag_seconds"))], "s"),
        wide("Backlog", "WAL that is written and not confirmed.", [("not confirmed", metric("millrace_lag_bytes"))],
             "bytes"),
        wide("Waiting", "Share of the source thread's time.",
             [("backpressure", rate("millrace_backpressure_seconds_total")),
              ("waits for PostgreSQL", rate("millrace_source_wait_seconds_total"))], "percentunit", max=1),
        wide("Memory", "Container (or process) and batches.",
             [("container", MEMORY), ("resident", metric("process_resident_memory_bytes")),
              ("batches in use", metric("millrace_arena_used_bytes"))], "bytes"),
        wide("CPU by thread", "A thread near 1 is at its limit.",
             [("{{thread}}", rate("millrace_thread_cpu_seconds_total"))], "percentunit", stacked=True),
    ]
    return dashboard("millrace-burst", "millrace: Burst", "For load/run-load.sh burst: everything on one time axis.",
                     panels, [INSTANCE], refresh="1s", span="now-5m")


def compare():
    by_tool = "{{tool}}"
    return dashboard(
        "millrace-compare", "millrace: Compare",
        "millrace beside Debezium and others on the same stand. A tool is known by its slot, its topics' first part, "
        "and its container or scrape job; all figures come from outside it.",
        [
            graph("Throughput", "Records a second that arrive in the tool's topics.",
                  [(by_tool, "tool:records:rate30s")], "cps"),
            graph("Backlog", "WAL that PostgreSQL keeps for the tool's slot.", [(by_tool, "tool:slot_bytes")], "bytes"),
            graph("Memory", "Of the container (cAdvisor), or else of the process.", [(by_tool, "tool:memory_bytes")],
                  "bytes"),
            graph("CPU", "Cores.", [(by_tool, "tool:cpu_seconds:rate30s")], "none"),
            graph("CPU per record", "Seconds of CPU for each record that arrived.",
                  [(by_tool, "tool:cpu_seconds:rate30s / (tool:records:rate30s > 0)")], "s"),
            graph("Records in topics", "All so far: the lines meet when a tool has caught up.",
                  [(by_tool, "tool:records")]),
        ], span="now-30m")


def fleet():
    """Many pipelines, each a target: of a chart's PodMonitor with the label pipeline, else told apart by instance."""
    each = "{{pipeline}} {{instance}}"

    def worst(name):
        return [(each, f"topk(10, max by (pipeline, instance) ({metric(name)}))")]

    def used(name):
        return [(each, f"topk(10, {total(name, 'pipeline, instance')})")]
    panels = [
        stat("Pipelines", "That Prometheus reaches.", f'count({metric("millrace_ready")})'),
        stat("Ready", "They pass rows on.", f'sum({metric("millrace_ready")})'),
        stat("Standing by", "Another instance has their stream.", f"""sum({metric("millrace_state", 'state="standby"')}) or vector(0)"""),
        stat("Not ready", "Nothing flows: each one's own dashboard and log say why.",
             f'count({metric("millrace_ready")} == 0) or vector(0)', thresholds=steps(("green", None), ("red", 1))),
        stat("Lag", "Age of the oldest change that is not confirmed, of the worst pipeline.",
             f"max({metric('millrace_lag_seconds')})", "s", thresholds=steps(("green", None), ("orange", 10), ("red", 60))),
        stat("Slot lost in", "At the last minute's pace, the first one; infinite when all slots are safe.",
             f"min({metric('millrace_slot_forecast_seconds')})", "s",
             thresholds=steps(("red", None), ("orange", 3600), ("green", 6 * 3600))),
        graph("Lag", "The ten worst pipelines: what consumers see.", worst("millrace_lag_seconds"), "s"),
        graph("WAL kept", "The ten slots that keep the most.", worst("millrace_slot_retained_bytes"), "bytes"),
        row("The bill"),
        graph("CPU", "Cores, the ten pipelines that use most.", used("process_cpu_seconds_total"), "none", stacked=True),
        graph("Memory", "Resident, the ten largest.", worst("process_resident_memory_bytes"), "bytes", stacked=True),
        graph("Records", "The ten busiest pipelines.", used("millrace_records_acknowledged_total"), "cps", stacked=True),
        graph("Bytes", "Of their records.", used("millrace_record_bytes_acknowledged_total"), "Bps", stacked=True),
    ]
    return dashboard("millrace-fleet", "millrace: Fleet", "Many pipelines: the worst, and what they cost.", panels, [INSTANCE])


MADE = {"fleet.json": fleet, "pipeline.json": pipeline, "burst.json": burst, "compare.json": compare}


def main():
    check = sys.argv[1:] == ["--check"]
    differing = []
    for name, make in MADE.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        path = os.path.join(FOLDER, name)
        if check:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    differing.append(name)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if differing:
        sys.exit(f"not what make_dashboards.py makes: {', '.join(differing)}; run it and commit")


if __name__ == "__main__":
    main()
