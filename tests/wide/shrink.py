"""A failing plan made small: whole units first, then single statements, then tables; what still fails in the same way stays."""

import copy
import dataclasses
import re
import time


class Shrinker:
    """`fails(plan)` says whether the plan still shows the fault, of which `hint` says in words where it was seen. Gives up
    improving after `limit_s`."""

    def __init__(self, plan, fails, limit_s, hint=""):
        self.best, self.fails, self.hint = plan, fails, hint
        self.deadline = time.monotonic() + limit_s
        self.runs = 0

    def left(self):
        return time.monotonic() < self.deadline

    def try_plan(self, plan):
        self.runs += 1
        if self.fails(plan):
            self.best = plan
            return True
        return False

    def with_steps(self, keep):
        """The best plan, but only those steps; phases that have none are gone."""
        phases = [[step for step in phase if keep(step)] for phase in self.best.phases]
        return dataclasses.replace(self.best, phases=[phase for phase in phases if phase] or [[]])

    def reduce(self, things, candidate):
        """Delta debugging: `candidate(kept)` is the plan that has only those."""
        parts = 2
        while self.left() and things:
            size = max(1, len(things) // parts)
            for at in range(0, len(things), size):
                kept = things[:at] + things[at + size:]
                if not self.left():
                    break
                if self.try_plan(candidate(kept)):
                    things = kept
                    parts = max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(len(things), parts * 2)
        return things

    def shrink(self):
        if self.best.threads:
            self.try_plan(dataclasses.replace(self.best, threads=False))
        self.about_the_hint()
        units = list(dict.fromkeys(step.unit for phase in self.best.phases for step in phase))
        self.reduce(units, lambda kept: self.with_steps(lambda step, kept=set(kept): step.unit in kept))
        for name in list(self.best.options):
            if self.left() and name in ("settings", "small_batches", "via_root", "prefixes") and self.best.options[name]:
                self.try_plan(dataclasses.replace(self.best, options={**self.best.options, name: type(self.best.options[name])()}))
        if self.left() and self.best.options["partitions"] != 1:
            self.try_plan(dataclasses.replace(self.best, options={**self.best.options, "partitions": 1}))
        self.without_unused_tables()
        steps = [id(step) for phase in self.best.phases for step in phase]
        self.reduce(steps, lambda kept: self.with_steps(lambda step, kept=set(kept): id(step) in kept))
        self.without_tables()
        return self.best

    def about_the_hint(self):
        """Only the units with statements on the tables that the hint names; renamed ones under all their names."""
        text = [step.sql for phase in self.best.phases for step in phase]
        found = set(re.findall(r'CREATE TABLE ("(?:[^"]|"")*"\."(?:[^"]|"")*")', "\n".join(self.best.setup + text)))
        names = {name for name in found if name.split('"."')[1].strip('"').replace('""', '"') in self.hint}
        for old, new in re.findall(r'ALTER TABLE ("(?:[^"]|"")*"\."(?:[^"]|"")*") RENAME TO ("(?:[^"]|"")*")', "\n".join(text)):
            if old in names or new.strip('"') in self.hint:
                names |= {old, old.split('"."')[0] + '".' + new}
        units = {step.unit for phase in self.best.phases for step in phase if any(name in step.sql for name in names)}
        if units:
            self.try_plan(self.with_steps(lambda step: step.unit in units))
            self.without_unused_tables()

    def without_unused_tables(self):
        """At once all statements of tables that no step names; partitions are named by none."""
        text = "\n".join(step.sql for phase in self.best.phases for step in phase)
        plan = copy.copy(self.best)
        for statement in self.best.setup[1:]:
            found = re.match(r'CREATE TABLE ("(?:[^"]|"")*"\."(?:[^"]|"")*")', statement)
            if found and found[1] not in text and "PARTITION" not in statement:
                plan.setup = [other for other in plan.setup if found[1] not in other]
                plan.publication = without_table(plan.publication, found[1])
        if self.left():
            self.try_plan(plan)

    def without_tables(self):
        """Tables of the setup that nothing needs; the publication goes without them."""
        for statement in reversed(self.best.setup[1:]):
            if not self.left():
                return
            plan = copy.copy(self.best)
            plan.setup = [other for other in plan.setup if other is not statement]
            if statement.startswith("CREATE TABLE "):
                plan.publication = without_table(plan.publication, statement[13:])
            self.try_plan(plan)


def without_table(publication, rest):
    """Takes the table that `rest` begins with out of a list FOR TABLE."""
    head, found, listed = publication.partition("FOR TABLE ")
    if not found:
        return publication
    listed, with_, options = listed.rpartition(" WITH (")
    parts = [part for part in split_outside_quotes(listed) if not rest.startswith(part.removeprefix("ONLY ").split('" (')[0].split('" WHERE')[0])]
    return head + found + ", ".join(parts) + with_ + options


def split_outside_quotes(text):
    parts, depth, quoted, at = [], 0, False, 0
    for index, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "()":
            depth += 1 if letter == "(" else -1
        elif not quoted and letter == "," and depth == 0:
            parts.append(text[at:index].strip())
            at = index + 1
    return parts + [text[at:].strip()]


def listing(plan):
    """The plan for a reader."""
    lines = [f"-- {statement}" if statement.startswith("\nCREATE SCHEMA w") else f"{statement};" for statement in plan.setup[1:]]
    lines.append(plan.publication + ";")
    for setting in plan.options.get("settings") or ():
        lines.append(f"ALTER DATABASE … SET {setting};")
    for phase in plan.phases:
        for step in phase:
            if step.kind == "moment":
                lines.append(f"/* {step.session} */ -- picture of {', '.join(step.tables)}")
            else:
                lines.append(f"/* {step.session} */ {shortened(step.sql)};{' ' + repr(step.data[:200]) if step.data else ''}")
        lines.append("-- picture of all")
    options = {name: value for name, value in plan.options.items() if value and name != "settings"}
    return "\n".join([f"-- {options}{', sessions in threads' if plan.threads else ''}", *lines])


def shortened(sql):
    return sql if len(sql) < 1500 else f"{sql[:1000]} … {sql[-400:]}"
