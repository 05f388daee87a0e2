#!/usr/bin/env python3
"""Usage: benchmarks/start-template.py

One of the programs that matrix.sh compares: one that reads a file of configuration. Started by `--peer NAME=BINARY,TEMPLATE`: PEER_BINARY
and PEER_TEMPLATE say which. In the template ${PEER_SLOT} and so on are filled in: the variables of benchmarks/start-millrace.sh, and
PEER_HOST, PEER_PORT, PEER_USER, PEER_PASSWORD and PEER_DATABASE of its URL, PEER_TABLE_NAME without the schema, PEER_TOPIC, and PEER_CONFIG,
the file that comes of it. A line "# run: WORDS" has the program's arguments. The lines between "# for each table" and "# end" are there once
for each table. (A line "# tombstones: no" is for peers.py: after a delete comes no other record.)"""

import os
import re
import shlex
import string
import sys
import urllib.parse


def of_table(peer, table):
    return {"PEER_TABLE_NAME": table.partition(".")[2], "PEER_TOPIC": f"{peer['PEER_TOPIC_PREFIX']}.{table}"}


def main():
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    peer = {name: value for name, value in os.environ.items() if name.startswith("PEER_")}
    url = urllib.parse.urlsplit(peer["PEER_PG_URL"])
    with open(peer["PEER_TEMPLATE"], encoding="utf-8") as file:
        text = file.read()
    config = os.path.join(peer["PEER_FOLDER"], "config" + os.path.splitext(peer["PEER_TEMPLATE"])[1])
    peer |= {"PEER_HOST": url.hostname or "", "PEER_PORT": str(url.port or ""), "PEER_USER": url.username or "",
             "PEER_PASSWORD": urllib.parse.unquote(url.password or ""), "PEER_DATABASE": url.path[1:], "PEER_CONFIG": config,
             **of_table(peer, peer["PEER_TABLE"])}
    try:
        text = re.sub(r"^# for each table\n(.*?)^# end$", lambda found: "".join(
            string.Template(found[1]).substitute(peer | of_table(peer, table)) for table in peer["PEER_TABLE"].split(",")),
                      text, flags=re.MULTILINE | re.DOTALL)
        text = string.Template(text).substitute(peer)
    except (KeyError, ValueError) as error:
        raise SystemExit(f"{peer['PEER_TEMPLATE']}: {error} is not one of {', '.join(sorted(peer))}") from None
    run = re.search(r"^# run: (.*)$", text, re.MULTILINE)
    with open(config, "w", encoding="utf-8") as file:
        file.write(text)
    words = shlex.split(run[1]) if run else []
    os.execve(peer["PEER_BINARY"], [peer["PEER_BINARY"], *words], {**os.environ, **peer})


main()
