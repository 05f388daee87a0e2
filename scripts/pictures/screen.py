"""A terminal's screen as a picture: commands and what they said, as they said it."""

import html
import textwrap

COLUMNS, LINE, LETTER, EDGE, BAR = 112, 19, 8.0, 18, 34
CSS = ("text{font-family:DejaVu Sans Mono,Menlo,Consolas,monospace;font-size:13px;fill:#d7dee6;white-space:pre}#ground{fill:#161c22}"
       "#bar{fill:#29323b}.grey{fill:#97a6b4}.command{fill:#fff;font-weight:bold}.prompt{fill:#5cc795}.bad{fill:#ff8f80}.good{fill:#5cc795}"
       "@media(prefers-color-scheme:dark){#ground{stroke:#3a4550}}")


def wrapped(line, columns=COLUMNS):
    """As a terminal breaks it, but between words."""
    return textwrap.wrap(line, columns, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=True,
                         replace_whitespace=False) or [""]


def class_of(line, words):
    """`words`: {class: words}; the first that a line has decides how it is coloured."""
    return next((name for name, found in words.items() if any(word in line for word in found)), None)


def draw(title, said, words):
    """`said`: (command, [line]) one after another."""
    rows = []
    for command, lines in said:
        rows.append(f'<tspan class="prompt">$ </tspan><tspan class="command">{html.escape(command, quote=False)}</tspan>')
        for line in lines:
            coloured = class_of(line, words)
            for part in wrapped(line):
                text = html.escape(part, quote=False)
                rows.append(f'<tspan class="{coloured}">{text}</tspan>' if coloured else text)
        rows.append("")
    rows.pop()
    width, height = round(COLUMNS * LETTER + 2 * EDGE), BAR + LINE * len(rows) + 2 * EDGE - 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n<style>{CSS}</style>\n'
           f'<rect id="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
           f'<path id="bar" d="M.5 {BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5}a8 8 0 0 1 8 8V{BAR}z"/>\n'
           '<circle cx="20" cy="17" r="5" fill="#e5746a"/><circle cx="38" cy="17" r="5" fill="#dd9a3c"/><circle cx="56" cy="17" r="5" fill="#43b98b"/>\n'
           f'<text class="grey" x="{width / 2:.0f}" y="22" text-anchor="middle">{html.escape(title)}</text>\n']
    out += [f'<text x="{EDGE}" y="{BAR + EDGE + LINE * number + 8}" xml:space="preserve">{row}</text>\n' for number, row in enumerate(rows) if row]
    return "".join(out) + "</svg>\n"
