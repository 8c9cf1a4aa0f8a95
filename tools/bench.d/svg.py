"""Pictures of figures by what grows: lines over a logarithmic axis. SVG 1.1 in plain shapes and text."""

import math
import xml.sax.saxutils

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 160, 50, 50
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad")


def text(x, y, words, anchor="middle", size=12, more=""):
    words = xml.sax.saxutils.escape(words)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>{words}</text>'


def short(value):
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g}"


def ticks_of(most):
    """From 0 on, 4 to 8 of them, round numbers."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if most / (step * factor) <= 8)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def chart(title, x_name, y_name, series):
    """`series`: name to [(x, y), …], x above 0. The y axis begins at 0, so that what looks level is."""
    xs = [x for points in series.values() for x, _ in points]
    ticks = ticks_of(max(y for points in series.values() for _, y in points))
    low, high = math.log10(min(xs)), math.log10(max(xs))

    def at(x, y):
        share = (math.log10(x) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / ticks[-1] * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             text(WIDTH / 2, 24, title, size=16), text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_name),
             text(18, HEIGHT / 2, y_name, more=f'transform="rotate(-90 18 {HEIGHT / 2})"')]
    for tick in ticks:
        _, y = at(min(xs), tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, short(tick), anchor="end"))
    for x in sorted(set(xs)):
        parts.append(text(at(x, 0)[0], HEIGHT - BOTTOM + 18, short(x)))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(text(WIDTH - RIGHT + 12, TOP + 20 * number + 12, name, anchor="start", more=f'fill="{colour}"'))
    return "\n".join(parts + ["</svg>"]) + "\n"
