"""How the checker learns an event's place in the stream from the event itself: one class for each program judged.

`place` answers (position, transaction id) of a record. A position is (commit LSN, place in the transaction, part): of
the same change always the same, and in commit order. `unjudged` names what the events don't tell and nobody promised;
it is reported as such, never as passed."""


def parse_position(text):
    """mr-pos as (commit LSN, ordinal, part); it must have the width that makes bytes compare."""
    commit, ordinal, part = text.split(b"-")
    assert (len(commit), len(ordinal), len(part)) == (16, 10, 1), text
    return int(commit, 16), int(ordinal, 16), int(part)


class MillraceForm:
    """The position is the header mr-pos (docs/events.md)."""

    unjudged = ()
    drops_by_position = True  # consumers may drop whatever is not above the highest position

    @staticmethod
    def place(_partition, _key, _value, headers):
        return parse_position(headers["mr-pos"]), int(headers["mr-xid"])


class DebeziumForm:
    """Debezium's events have the LSN of the change and the transaction's id; the commit's LSN is looked up.

    `commits`: {transaction id: LSN of the commit's end}, from a slot of the kit's own. A tombstone says nothing but its
    key: it is placed behind the delete that stands directly before it in its partition."""

    unjudged = ("ordinals of transactions", "whole replays", "rows in logs")
    drops_by_position = False

    def __init__(self, commits):
        self.commits = commits
        self.deletes = {}  # partition -> (key, position, transaction id) of the record before, if it is a delete

    def place(self, partition, key, value, headers):
        before = self.deletes.pop(partition, None)
        if value is None:
            if before is None or before[0] != key:
                raise LookupError("tombstone without its delete")
            (commit, lsn, part), xid = before[1:]
            return (commit, lsn, part + 1), xid
        source = value["source"]
        xid = source["txId"]
        if xid not in self.commits:
            raise LookupError("transaction that never committed")
        # A changed key is delete, tombstone and create of one LSN; the create has its header.
        part = 2 if "__debezium.oldkey" in headers else 0
        # One less than its end: a slot confirmed up to the end has confirmed this transaction.
        position = self.commits[xid] - 1, source["lsn"], part
        if value["op"] == "d":
            self.deletes[partition] = key, position, xid
        return position, xid
