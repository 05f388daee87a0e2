"""The checker on made-up records: it takes Debezium's events as they are, and finds what is wrong with them."""

import json
from collections import Counter

import pytest

from checker import Checker, Partition
from consume import murmur2
from forms import DebeziumForm, MillraceForm

TOPIC = "x.public."
COMMITS = {10: 1000, 11: 2000, 12: 3000}


class Record:
    def __init__(self, table, key, value, offset, headers=()):
        self._table, self._offset, self._headers = table, offset, list(headers)
        self._key = json.dumps(key).encode()
        self._value = None if value is None else json.dumps(value).encode()

    def topic(self):
        return TOPIC + self._table

    def key(self):
        return self._key

    def value(self):
        return self._value

    def offset(self):
        return self._offset

    def headers(self):
        return self._headers or None  # as the client has it


class Fed(Checker):
    """A checker that reads a list instead of Kafka; one partition a table."""

    def __init__(self, records, form):
        self.records = records
        super().__init__("", "x", ["ledger", "acct", "churn"], form)

    def _read(self, bootstrap, prefix):
        by_topic = {f"{prefix}.public.{table}": table for table in self.tables}
        for topic, table in by_topic.items():
            self.partitions[table].append(Partition(topic, 0, 1, self.report, self.form, self.keep_of(table)))
        for record in self.records:
            self.partitions[by_topic[record.topic()]][0].take(record)


class Log:
    """Records in the order in which they are appended; offsets count up."""

    def __init__(self):
        self.records = []

    def change(self, table, op, key, xid, lsn, before=None, after=None, headers=(), ts=1):
        value = {"op": op, "before": before, "after": after, "ts_ms": ts, "transaction": None,
                 "source": {"txId": xid, "lsn": lsn, "sequence": f"[null,\"{lsn}\"]", "ts_ms": 7}}
        self.records.append(Record(table, key, value, len(self.records), headers))
        return self

    def tombstone(self, table, key):
        self.records.append(Record(table, key, None, len(self.records)))
        return self

    def row(self, txno, opno, xid, lsn, **more):
        key = {"writer": 0, "txno": txno, "opno": opno}
        return self.change("ledger", "c", key, xid, lsn, after={**key, "nops": 2, "payload": "row"}, **more)

    def version(self, account, ver, xid, lsn):
        return self.change("acct", "u", {"id": account}, xid, lsn,
                           after={"id": account, "ver": ver, "bal": 1000, "filler": None})

    def judged(self):
        return Fed(self.records, DebeziumForm(COMMITS))


def two_transactions():
    return Log().row(1, 1, 10, 900).row(1, 2, 10, 910).row(2, 1, 11, 1100).row(2, 2, 11, 1110)


ROWS = {(0, 1): 2, (0, 2): 2}


def test_complete_events_pass():
    checker = two_transactions().judged()
    checker.check_rows(ROWS, [])
    checker.check_transactions()
    checker.report.expect_clean()
    assert checker.report.events == 4 and "ordinals of transactions" in checker.report.line()


def test_repeats_are_counted_not_blamed():
    log = two_transactions().row(1, 2, 10, 910, ts=2).row(2, 2, 11, 1110, ts=2).row(3, 1, 12, 2500)
    checker = log.judged()
    checker.check_rows({**ROWS, (0, 3): 1}, [])
    checker.report.expect_clean()
    assert checker.report.duplicates == 2 and checker.report.events == 5


@pytest.mark.parametrize("rows, kind", [({**ROWS, (0, 3): 1}, "lost"), ({(0, 1): 2}, "phantom")])
def test_rows_that_differ(rows, kind):
    checker = two_transactions().judged()
    checker.check_rows(rows, [])
    assert set(checker.report.problems) == {kind}


def test_first_appearance_out_of_order_is_no_loss():
    checker = Log().row(2, 1, 11, 1100).row(2, 2, 11, 1110).row(1, 1, 10, 900).row(1, 2, 10, 910).judged()
    checker.check_rows(ROWS, [])
    assert checker.report.problems == Counter({"order": 1})  # the second one follows the first one as it should


def test_a_changed_repeat():
    log = two_transactions()
    log.records.append(Record("ledger", {"writer": 0}, json.loads(log.records[0].value()), 4))
    assert log.judged().report.problems == Counter({"changed repeat": 1})


def test_a_transaction_that_never_committed():
    assert Log().row(1, 1, 99, 900).judged().report.problems == Counter({"transaction that never committed": 1})


def key_change():
    """One update of one LSN: delete and tombstone of the old key, create of the new one."""
    old, new = {"k": 1}, {"k": 2}
    log = Log().change("churn", "c", old, 10, 900, after={"k": 1, "v": "a"})
    log.change("churn", "d", old, 11, 1100, before={"k": 1, "v": None}, headers=[("__debezium.newkey", b"{}")])
    log.tombstone("churn", old)
    return log.change("churn", "c", new, 11, 1100, after={"k": 2, "v": "a"}, headers=[("__debezium.oldkey", b"{}")])


def test_a_changed_key():
    checker = key_change().judged()
    checker.check_parts()
    checker.check_fold("churn", "k", [{"k": "2", "v": "a"}])
    checker.report.expect_clean()
    assert checker.report.events == 4


def test_a_lost_tombstone():
    log = key_change()
    del log.records[2]
    checker = log.judged()
    checker.check_parts()
    assert set(checker.report.problems) == {"tombstone missing"}


def test_a_tombstone_alone():
    assert Log().tombstone("churn", {"k": 1}).judged().report.problems == Counter({"tombstone without its delete": 1})


def test_the_last_version_of_a_row_is_looked_for():
    checker = Log().version(1, 1, 10, 900).version(1, 2, 11, 1100).judged()
    checker.check_versions()
    checker.report.expect_clean()
    checker = Log().version(1, 1, 10, 900).version(1, 3, 11, 1100).judged()
    checker.check_versions()
    assert set(checker.report.problems) == {"order of versions"}


@pytest.mark.parametrize("confirmed, early", [(1999, 0), (2000, 1), (2001, 1)])
def test_early_confirm(confirmed, early):
    """At that sample the log ends before the second transaction's last row, whose commit ends at 2000."""
    checker = two_transactions().judged()
    checker.check_samples([(confirmed, {(TOPIC + "ledger", 0): 3})])
    assert checker.report.problems["early confirm"] == early and checker.report.samples == 1


def test_millrace_positions():
    """Out of order, a consumer that goes by positions drops it: it is lost for that one, too."""
    def record(position, opno, offset):
        key = {"writer": 0, "txno": 1, "opno": opno}
        value = {"op": "c", "before": None, "after": {**key, "payload": "row"}, "source": {"sequence": None}}
        return Record("ledger", key, value, offset, [("mr-pos", position), ("mr-xid", b"10")])
    first, second = b"00000000000003E8-0000000001-0", b"00000000000003E8-0000000002-0"
    checker = Fed([record(second, 2, 0), record(first, 1, 1)], MillraceForm())
    checker.check_rows({(0, 1): 2}, [])
    assert checker.report.problems == Counter({"order": 1, "lost": 1})
    assert Fed([record(first, 1, 0), record(second, 2, 1)], MillraceForm()).report.events == 2


def test_murmur2_as_kafka_has_it():
    assert murmur2(b"21") == 0xFFFFFFFF & -973932308
