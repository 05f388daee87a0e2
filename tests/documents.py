"""What Markdown documents say, read as text: their links, headings and commands. Knows nothing of the product."""

import json
import os
import re
import shlex
import subprocess
from typing import NamedTuple
from urllib.parse import urlsplit

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(https?:[^>\s]+)>|"
                  r"(?:href|src)=\"([^\"]+)\"|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


def prose(text):
    """The text without its code, so that an array's index is not taken for a link."""
    return re.sub(r"`[^`\n]+`", "``", FENCE.sub("", text))


def links(text):
    return [next(filter(None, found.groups())) for found in LINK.finditer(prose(text))]


def anchors(text):
    """Those of the headings, as GitHub makes them: the second of two alike gets a number."""
    found = {}
    for title in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = found.get(name, 0)
        found[name] = count + 1
        if count:
            found[f"{name}-{count}"] = 1
    return set(found)


def wrong_url(url):
    """What can be wrong with an address without asking for it; None when nothing is."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(\.[a-z]{2,}|\.\d+)|localhost", host):
        return "no host name"
    if parts.scheme != "https" and host != "localhost" and not host.startswith("127."):
        return "not https"
    return "characters that no address has" if re.search(r"[\\^`{}|]", url) else None


def wrong_links(path, read, exists):
    """Links of the document at `path` (relative to the repository) that lead nowhere, with the reason."""
    wrong = []
    for target in links(read(path)):
        if re.match(r"[a-z]+:", target):
            reason = None if target.startswith("mailto:") else wrong_url(target)
        else:
            name, _, section = target.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if to.startswith("..") or not exists(to):
                reason = "no such file"
            elif section and (not to.endswith(".md") or section not in anchors(read(to))):
                reason = "no such section"
            else:
                reason = None
        if reason:
            wrong.append(f"{path}: {target}: {reason}")
    return wrong


# ---- commands ----

class Block(NamedTuple):
    """Commands of a document; `mark` is "run by" (a test's file) or "not run" (why), or None: they are run as they stand."""

    place: str
    mark: str | None
    about: str
    text: str


MARK = re.compile(r"<!-- (run by|not run): ((?:(?!-->).)+) -->\n\Z", re.DOTALL)


def blocks(path, text):
    for found in FENCE.finditer(text):
        if found[1] in ("sh", "bash", "shell"):
            mark = MARK.search(text[:found.start()])
            yield Block(f"{path}:{text.count(chr(10), 0, found.start()) + 1}", mark and mark[1],
                        " ".join(mark[2].split()) if mark else "", found[2])


def commands(text):
    """The words of each command, without assignments before it and redirections behind it."""
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        lexer.wordchars += "…"
        words = []
        for word in [*lexer, ";"]:
            if re.fullmatch(r"[();|&]+", word):
                while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "export")):
                    words.pop(0)
                if words:
                    yield words
                words = []
            else:
                words.append(word)


class Programs:
    """What commands of documents may say: which programs and options exist. Help texts are asked for once."""

    def __init__(self, root, binary):
        self.root, self.binary, self.helps = root, binary, {}
        with open(os.path.join(root, "CMakePresets.json"), encoding="utf-8") as file:
            self.presets = {preset["name"] for preset in json.load(file)["configurePresets"]}
        self.subcommands = set(re.findall(r"^  ([a-z]+)  ", self.help(binary, "--help"), re.MULTILINE))

    def help(self, *command):
        if command not in self.helps:
            done = subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.helps[command] = done.stdout + done.stderr
        return self.helps[command]

    def wrong(self, words):
        """What is wrong with a command, None when nothing is that can be seen without running it."""
        program = words[0]
        options = [word.partition("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)]
        if program == "cmake":
            unknown = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--preset"
                       and words[at + 1] not in self.presets]
            return f"no preset {unknown[0]}" if unknown else None
        if program == "millrace" or re.fullmatch(r"build/\w+/millrace", program):
            subcommand = next((word for word in words[1:2] if word in self.subcommands), "run")
            known = self.help(self.binary, subcommand, "--help")
        elif re.match(r"(scripts|tests|benchmarks|load)/", program):
            path = os.path.join(self.root, program)
            if not os.access(path, os.X_OK):
                return "no such program"
            known = self.help(path, "--help")
            # Options of the Python program that the script starts.
            beside = path.removesuffix(".sh").replace("-", "_") + ".py"
            for path in (beside, os.path.join(self.root, "load", "options.c") if program.startswith("load/") else ""):
                if os.path.exists(path):
                    with open(path, encoding="utf-8") as file:
                        known += file.read()
        else:
            return None
        unknown = [option for option in options if option not in known and option != "--help"]
        return f"{program} has no {unknown[0]}" if unknown else None


def what_runs(words):
    """The word that a test's file holds when it runs this command: a script's name, a subcommand, an address' path.
    None for what every test stands on: the build and scripts/setup.sh."""
    if words[0].endswith("millrace"):
        return next((word for word in words[1:] if re.match(r"--skip|[a-z]+$", word)), "millrace")
    if words[0] == "curl":
        return urlsplit(next(word for word in words if "://" in word)).path
    if re.match(r"(scripts/(?!setup\.sh)|tests/|benchmarks/|load/)", words[0]):
        return os.path.basename(words[0])
    return None
