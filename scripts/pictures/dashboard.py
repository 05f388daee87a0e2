"""Panels of the Burst dashboard as a picture. Grafana is no package of Debian, npm or PyPI; so the dashboard's own queries are asked of
a real Prometheus, as Grafana asks them, and drawn here.

    dashboard.py ADDRESS PICTURE COMMAND...    scrapes the millrace at ADDRESS while COMMAND makes the load"""

import html
import json
import math
import os
import subprocess
import sys
import tempfile
import time

from prometheus import Prometheus

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Those that are drawn, and of each the lines that its scale shows.
PANELS = {"Records": ("received", "acknowledged"), "In flight": ("records",), "Flush time": ("p50", "p99"), "Lag": ("age",)}
# $__rate_interval is four scrapes, as Grafana takes it for a scrape each second.
VARIABLES = {"$__rate_interval": "4s", "$instance": ".*"}
BEFORE_S, AFTER_S = 8, 8

WIDTH, COLUMNS, PANEL_HEIGHT, TOP, GAP, EDGE = 960, 2, 218, 44, 14, 14
PANEL_WIDTH = (WIDTH - 2 * EDGE - (COLUMNS - 1) * GAP) / COLUMNS
CSS = ("text{font-family:Verdana,DejaVu Sans,sans-serif;font-size:12px;fill:#222}#ground{fill:#fdfdfb}.panel{fill:#fff;stroke:#ddd}"
       ".grid{stroke:#e4e4e4}.burst{fill:#1f6fd0;opacity:.08}.title{font-size:14px}.grey{fill:#666}path{fill:none;stroke-width:2}"
       ".line0{stroke:#1f6fd0}.line1{stroke:#c05a17;stroke-dasharray:7 4}.line2{stroke:#1b7f56;stroke-dasharray:2 3}"
       "@media(prefers-color-scheme:dark){#ground{fill:#182028}.panel{fill:#1e2730;stroke:#34404c}text{fill:#e4eaf0}.grey{fill:#97a6b4}"
       ".grid{stroke:#34404c}.burst{fill:#6aaaf5;opacity:.13}.line0{stroke:#6aaaf5}.line1{stroke:#f0954f}.line2{stroke:#4fc795}}")


# ---- what is asked ----

def panels():
    """(title, unit, [(legend, query)]) as the dashboard has them."""
    with open(os.path.join(ROOT, "grafana", "dashboards", "burst.json"), encoding="utf-8") as file:
        by_title = {panel["title"]: panel for panel in json.load(file)["panels"]}
    for title, legends in PANELS.items():
        panel, queries = by_title[title], []
        by_legend = {target["legendFormat"]: target["expr"] for target in panel["targets"]}
        for legend in legends:
            query = by_legend[legend]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            queries.append((legend, query))
        yield title, panel["fieldConfig"]["defaults"]["unit"], queries


def asked(prometheus, begin, end):
    """The same with [(legend, [(second, value)])]; what has no data has no line."""
    for title, unit, queries in panels():
        lines = []
        for legend, query in queries:
            answer = prometheus.api("query_range", query=query, start=begin, end=end, step=1)["result"]
            assert len(answer) <= 1, f"{title}: {query} has {len(answer)} lines"
            lines += [(legend, [(at - begin, float(value)) for at, value in one["values"] if math.isfinite(float(value))]) for one in answer]
        yield title, unit, lines


# ---- what is drawn ----

def step_of(most, count=4):
    """A round step with which `count` lines reach `most`."""
    power = 10 ** math.floor(math.log10(most / count))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * count >= most)


def rounded(value):
    """To three digits."""
    return float(f"{value:.3g}")


def worded(value, unit):
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return f"{value:,.0f}" + ("/s" if unit == "cps" else "")


def legend_svg(left, y, unit, lines):
    """Of each line its colour, its name, and the most it came to."""
    out = []
    for number, (legend, points) in enumerate(lines):
        said = f"{legend} up to {worded(rounded(max(value for _, value in points)), unit)}" if points else legend
        out.append(f'<path class="line{number}" d="M{left:.0f} {y - 4:.0f}h20"/><text class="grey" x="{left + 25:.0f}" y="{y:.0f}">{html.escape(said)}</text>\n')
        left += 45 + 7 * len(said)
    return "".join(out)


def panel_svg(left, top, span, panel):
    """`span`: seconds that are shown, and from when to when the burst lasted."""
    (seconds, first, last), (title, unit, lines) = span, panel
    x0, x1, y0, y1 = left + 76, left + PANEL_WIDTH - 14, top + PANEL_HEIGHT - 30, top + 62
    most = max((value for _, points in lines for _, value in points), default=1) or 1
    step = step_of(most)
    highest = step * math.ceil(most / step)

    def x_of(second):
        return x0 + (x1 - x0) * second / seconds

    def y_of(value):
        return y0 - (y0 - y1) * value / highest
    out = [f'<rect class="panel" x="{left:.0f}" y="{top:.0f}" width="{PANEL_WIDTH:.0f}" height="{PANEL_HEIGHT}" rx="6"/>\n'
           f'<rect class="burst" x="{x_of(first):.1f}" y="{y1}" width="{x_of(last) - x_of(first):.1f}" height="{y0 - y1}"/>\n'
           f'<text class="title" x="{left + 14:.0f}" y="{top + 22:.0f}">{html.escape(title)}</text>\n', legend_svg(left + 14, top + 43, unit, lines)]
    for number in range(round(highest / step) + 1):
        y = y_of(number * step)
        out.append(f'<path class="grid" style="stroke-width:1" d="M{x0:.0f} {y:.1f}H{x1:.0f}"/>'
                   f'<text class="grey" x="{x0 - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{worded(number * step, unit)}</text>\n')
    for second in range(0, int(seconds) + 1, 5 if seconds <= 40 else 10):
        anchor = "end" if x_of(second) > x1 - 12 else "middle"
        out.append(f'<text class="grey" x="{x_of(second):.0f}" y="{y0 + 18:.0f}" text-anchor="{anchor}">{second} s</text>\n')
    for number, (_, points) in enumerate(lines):
        path = "L".join(f"{x_of(second):.1f} {y_of(value):.1f}" for second, value in points)
        out.append(f'<path class="line{number}" d="M{path}"/>\n' if points else "")
    return "".join(out)


def draw(title, span, shown):
    """`shown`: (title, unit, [(legend, [(second, value)])]), two beside each other."""
    shown = list(shown)
    height = TOP + math.ceil(len(shown) / COLUMNS) * (PANEL_HEIGHT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">\n<style>{CSS}</style>\n'
           f'<rect id="ground" width="100%" height="100%"/>\n<text class="title" x="{EDGE}" y="28">{html.escape(title)}</text>\n']
    for number, panel in enumerate(shown):
        line, column = divmod(number, COLUMNS)
        out.append(panel_svg(EDGE + column * (PANEL_WIDTH + GAP), TOP + line * (PANEL_HEIGHT + GAP), span, panel))
    return "".join(out) + "</svg>\n"


def burst_of(report):
    """From when to when the burst lasted, by millrace-load's report: seconds since 1970."""
    begun = time.time() - time.monotonic() + report["begin_ns"] / 1e9
    return [begun + second for second in report["burst_s"]]


def main(address, picture, *command):
    with tempfile.TemporaryDirectory() as folder:
        prometheus = Prometheus(folder, {"millrace:9464": address})
        try:
            path = os.path.join(folder, "load.json")
            subprocess.run([*command, "--json", path], check=True, stdout=subprocess.DEVNULL)
            time.sleep(2)  # the last scrape
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            first, last = burst_of(report)
            begin, end = math.floor(first - BEFORE_S), math.ceil(last + AFTER_S)
            rows = int(command[command.index("--burst-events") + 1])
            svg = draw(f"A burst of {rows:,} rows (shaded), by the queries of the dashboard Burst",
                       (end - begin, first - begin, last - begin), asked(prometheus, begin, end))
        finally:
            prometheus.stop()
    with open(picture, "w", encoding="utf-8") as file:
        file.write(svg)


if __name__ == "__main__":
    main(*sys.argv[1:])
