"""The one chart: latencies over the offered rate, and four figures beside it. An SVG that shows as an image too, in light and dark."""

import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 380, 62, 560, 46, 330
STYLES = (("#1f6fd0", ""), ("#1f6fd0", "6 4"), ("#d2641e", ""), ("#d2641e", "6 4"))
CSS = ("text{font-family:Verdana,DejaVu Sans,sans-serif;font-size:12px;fill:#222}#ground{fill:#fdfdfb}.grid{stroke:#ddd}.title{font-size:14px}"
       ".grey{fill:#666}.large{font-size:17px}@media(prefers-color-scheme:dark){#ground{fill:#182028}text{fill:#e4eaf0}.grey{fill:#97a6b4}"
       ".grid{stroke:#34404c}}")


def text(x, y, words, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{words}</text>\n'


def spread(wanted, least):
    """Heights as near to the wanted ones as no two overlap; {name: y}."""
    found, last = {}, -math.inf
    for y, name in sorted((y, name) for name, y in wanted.items()):
        last = found[name] = max(y, last + least)
    return found


def draw(lines, figures):
    """`lines`: {name: [(rows/s, ms)]}, p50 and p99 of one program after another; `figures`: (what, of the first, of the second)."""
    lines = {name: points for name, points in lines.items() if points}
    rates = sorted({rate for points in lines.values() for rate, _ in points}) or [1]
    values = [ms for points in lines.values() for _, ms in points] or [1]
    low, high = math.floor(math.log10(max(min(values), 0.1))), math.ceil(math.log10(max(*values, 10)))

    def x_of(rate):
        return LEFT + 30 + (RIGHT - LEFT - 170) * rates.index(rate) / max(1, len(rates) - 1)

    def y_of(ms):
        return BOTTOM - (BOTTOM - TOP) * (math.log10(max(ms, 0.1)) - low) / max(1, high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">\n<style>{CSS}</style>\n'
           '<rect id="ground" width="100%" height="100%"/>\n', text(LEFT, 24, "COMMIT to a consumer, ms, at equal load", ' class="title"')]
    for power in range(low, high + 1):
        y = y_of(10 ** power)
        out += [f'<line class="grid" x1="{LEFT}" x2="{RIGHT - 130}" y1="{y:.0f}" y2="{y:.0f}"/>\n',
                text(LEFT - 8, y + 4, f"{10 ** power:,g}", ' class="grey" text-anchor="end"')]
    out += [text(x_of(rate), BOTTOM + 20, f"{rate:,}", ' class="grey" text-anchor="middle"') for rate in rates]
    out.append(text((LEFT + RIGHT - 130) / 2, BOTTOM + 40, "rows/s offered", ' class="grey" text-anchor="middle"'))
    labels = spread({name: y_of(points[-1][1]) for name, points in lines.items()}, 15)
    for (name, points), (colour, dashes) in zip(lines.items(), STYLES):
        path = " ".join(f"{x_of(rate):.1f},{y_of(ms):.1f}" for rate, ms in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>\n')
        out += [f'<circle cx="{x_of(rate):.1f}" cy="{y_of(ms):.1f}" r="3" fill="{colour}"/>\n' for rate, ms in points]
        out.append(text(x_of(points[-1][0]) + 10, labels[name] + 4, name, f' style="fill:{colour}"'))
    out += [text(RIGHT + 30, 24, "The same run", ' class="title"'), text(RIGHT + 300, 60, "millrace", ' text-anchor="end" style="fill:#1f6fd0"'),
            text(RIGHT + 385, 60, "Debezium", ' text-anchor="end" style="fill:#d2641e"')]
    for at, (what, ours, theirs) in enumerate(figures):
        y = 100 + 60 * at
        out += [text(RIGHT + 30, y, what), text(RIGHT + 300, y, ours, ' class="large" text-anchor="end"'),
                text(RIGHT + 385, y, theirs, ' class="large" text-anchor="end"')]
    return "".join(out) + "</svg>\n"
