"""Reads profile.proto as its public description says, with nothing of the product's: enough to count."""

import gzip
import subprocess

from kit import GO


def go_pprof(*arguments):
    """What `go tool pprof` prints; it must take the file."""
    result = subprocess.run([GO, "tool", "pprof", *arguments], capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            assert tag & 7 == 2, "a wire type that profile.proto does not have"
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def numbers(packed):
    if isinstance(packed, int):
        return [packed]
    found, at = [], 0
    while at < len(packed):
        value, at = varint(packed, at)
        found.append(value)
    return found


class Profile:
    """`samples` are (location ids, values, labels)."""

    def __init__(self, gzipped):
        messages = {}
        for number, value in fields(gzip.decompress(gzipped)):
            messages.setdefault(number, []).append(value)
        self.texts = [text.decode() for text in messages[6]]
        self.types = [self._pair(value) for value in messages[1]]
        self.comments = [self.texts[n] for value in messages.get(13, []) for n in numbers(value)]
        self.duration_s = messages.get(10, [0])[0] / 1e9
        self.start_s = messages.get(9, [0])[0] / 1e9
        self.mappings = [dict(fields(value)) for value in messages.get(3, [])]
        self.functions = {}
        for value in messages.get(5, []):
            function = dict(fields(value))
            self.functions[function[1]] = self.texts[function.get(2, 0)]
        objects = {mapping[1]: self.texts[mapping.get(5, 0)] for mapping in self.mappings}
        self.locations, self.objects = {}, {}
        for value in messages.get(4, []):
            names, key, mapping = [], 0, 0
            for number, part in fields(value):
                if number == 1:
                    key = part
                elif number == 2:
                    mapping = part
                elif number == 4:
                    names.append(self.functions[dict(fields(part))[1]])
            self.locations[key] = names
            self.objects[key] = objects.get(mapping, "")
        self.samples = [self._sample(value) for value in messages.get(2, [])]

    def _pair(self, value):
        pair = dict(fields(value))
        return self.texts[pair.get(1, 0)], self.texts[pair.get(2, 0)]

    def _sample(self, data):
        locations, values, labels = [], [], {}
        for number, value in fields(data):
            if number == 1:
                locations += numbers(value)
            elif number == 2:
                values += [signed(v) for v in numbers(value)]
            elif number == 3:
                label = dict(fields(value))
                labels[self.texts[label[1]]] = self.texts[label[2]]
        return locations, values, labels

    def total(self, value, **labels):
        return sum(values[value] for _, values, has in self.samples
                   if all(has.get(name) == wanted for name, wanted in labels.items()))

    def labelled(self, name):
        return {labels[name] for _, _, labels in self.samples if name in labels}

    def frames_named(self, without=()):
        """Part of all frames of all samples, by weight, that have a function's name and not only an object's; frames in objects with
        such names are left out."""
        named = seen = 0
        for locations, values, _ in self.samples:
            for location in locations:
                if any(name in self.objects[location] for name in without):
                    continue
                seen += values[0]
                named += values[0] if self.locations[location] else 0
        return named / seen

    def counted(self):
        """What the comment tells: {"samples": …, "rooted": …, "lost": …}."""
        line = next(text for text in self.comments if text.startswith("samples "))
        return {part.rsplit(" ", 1)[0]: int(part.rsplit(" ", 1)[1]) for part in line.split(", ")}
