#!/usr/bin/python3
"""Draws recall-NAME.svg from the JSON files of curves.py: recall@10 against reads per query and against queries/s.

One line per memory budget; the setting nobody has to choose (recall 0.95) has a larger mark. Where a data set of
peers.json has the same rows, dimension and type, the peers' points are marks without a line, and the figure says
whose implementation they are, and that they are of another run and machine. Nothing is measured here, so a figure can
be redrawn at any time.
"""
import argparse
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 1000, 400, 320, 70, 62, 100
LINE_COLOURS = ["#0b5fa5", "#d1495b", "#2a9d5c", "#7b4fa3", "#c77d0a"]
PEER_COLOUR = "#555555"
PEER_SHAPES = ["square", "diamond", "triangle", "cross", "square-full", "diamond-full"]
DEFAULT_RECALL = 0.95


class Axis:
    """Values to pixels; logarithmic (ticks 1, 2, 5; more within a decade) or linear (ticks every `step`)."""

    def __init__(self, low, high, start, end, step=None):
        self.start, self.end, self.step = start, end, step
        self.low, self.high = (low, high) if step else (math.log10(low), math.log10(high))

    def at(self, value):
        share = ((value if self.step else math.log10(value)) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        if self.step:
            n = round((self.high - self.low) / self.step)
            return [self.low + i * self.step for i in range(n + 1)]
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        steps = (1, 2, 5) if self.high - self.low > 1 else (1, 1.5, 2, 3, 4, 5, 7)
        every = [m * 10.0**p for p in powers for m in steps]
        return [v for v in every if self.low - 1e-9 <= math.log10(v) <= self.high + 1e-9]


def shape(kind, x, y, colour, size=4.5):
    """A mark as SVG."""
    fill = colour if kind.endswith("full") or kind == "dot" else "#ffffff"
    style = f'fill="{fill}" stroke="{colour}" stroke-width="1.5"'
    if kind == "dot":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {style}/>'
    if kind == "cross":
        full = 2 * size
        return f'<path d="M{x - size:.1f} {y - size:.1f}l{full} {full}m0 {-full}l{-full} {full}" {style}/>'
    corners = {"square": [(-1, -1), (1, -1), (1, 1), (-1, 1)], "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
               "triangle": [(0, -1.2), (1.2, 1), (-1.2, 1)]}[kind.removesuffix("-full")]
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {style}/>'


def text(x, y, words, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(words)}</text>'


def budget_lines(data):
    """(label, points by rising effort) of every budget that was measured."""
    out = []
    for budget in dict.fromkeys(point["budget"] for point in data["points"]):
        points = sorted((p for p in data["points"] if p["budget"] == budget), key=lambda p: p["effort"])
        resident = max(p["resident_bytes"] for p in points)
        name = "all codes" if budget == "all" else f"--memory {budget}"
        out.append((f"Quire, {name}: {points[0]['code_bits']}-bit codes, {resident / 1e6:.0f} MB"
                    f" ({100 * resident / data['build']['raw_bytes']:.0f} % of raw)", points))
    return out


def peer_series(data, peers):
    same = ("rows", "dim", "type")
    return [one for known in peers["sets"] if all(known[key] == data["build"][key] for key in same)
            for one in known["series"]]


def frame(x_axis, y_axis, title, left):
    """Grid, ticks and labels of one panel."""
    bottom, right = TOP + PANEL_HEIGHT, left + PANEL_WIDTH
    out = [f'<rect x="{left}" y="{TOP}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#888888"/>']
    for value in x_axis.ticks():
        x = x_axis.at(value)
        out.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#e4e4e4"/>')
        out.append(text(x, bottom + 18, f"{value:,g}", "middle"))
    for value in y_axis.ticks():
        y = y_axis.at(value)
        out.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#e4e4e4"/>')
        out.append(text(left - 8, y + 4, f"{value:.2f}", "end"))
    middle = TOP + PANEL_HEIGHT / 2
    out.append(text((left + right) / 2, bottom + 38, title, "middle", 13))
    out.append(text(left - 46, middle, "recall@10", "middle", 13,
                    f'transform="rotate(-90 {left - 46:.1f} {middle:.1f})"'))
    return out


def panel(lines, marks, key, title, left, recall_min):
    """One panel: `key` of the points against recall, both kinds of marks within it."""
    values = [p[key] for _, points in lines for p in points if p["recall_at_k"] >= recall_min]
    values += [v for one in marks for v, recall in zip(one[key], one["recall_at_k"]) if recall >= recall_min]
    if not values:
        raise SystemExit(f"figures.py: no point reaches recall {recall_min}: give --recall-min")
    x_axis = Axis(min(values) / 1.15, max(values) * 1.15, left, left + PANEL_WIDTH)
    steps = max(1, round((1 - recall_min) / 0.05))
    y_axis = Axis(1 - 0.05 * steps, 1.0, TOP + PANEL_HEIGHT, TOP, 0.01 if steps == 1 else 0.05 if steps > 3 else 0.025)
    out = frame(x_axis, y_axis, title, left)
    for (_, points), colour in zip(lines, LINE_COLOURS):
        seen = [(x_axis.at(p[key]), y_axis.at(p["recall_at_k"]), p) for p in points if p["recall_at_k"] >= y_axis.low]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in seen)
        out.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for x, y, p in seen:
            out.append(shape("dot", x, y, colour, 5.5 if (p["by"], p["value"]) == ("recall", DEFAULT_RECALL) else 2.5))
    for one, kind in zip(marks, PEER_SHAPES):
        for value, recall in zip(one[key], one["recall_at_k"]):
            if recall >= y_axis.low:
                out.append(shape(kind, x_axis.at(value), y_axis.at(recall), PEER_COLOUR))
    return out


def legend(lines, marks, y):
    """Two columns below the panels: Quire's lines, and the peers; then the height they took."""
    out = []
    for row, ((label, _), colour) in enumerate(zip(lines, LINE_COLOURS)):
        at = y + 20 * row
        out.append(f'<path d="M{LEFT} {at - 4}h28" stroke="{colour}" stroke-width="1.8"/>')
        out += [shape("dot", LEFT + 14, at - 4, colour, 2.5), text(LEFT + 36, at, label)]
    at = y + 20 * len(lines)
    out += [shape("dot", LEFT + 14, at - 4, "#222222", 5.5),
            text(LEFT + 36, at, f"the default: what recall {DEFAULT_RECALL} asks for")]
    for row, (one, kind) in enumerate(zip(marks, PEER_SHAPES)):
        right = LEFT + PANEL_WIDTH + GAP
        out += [shape(kind, right, y - 4 + 20 * row, PEER_COLOUR), text(right + 16, y + 20 * row, one["label"])]
    return out, 20 * max(len(lines) + 1, len(marks))


def notes(data, marks, peers):
    machine, built = data["machine"], data["build"]
    yield (f"Quire: reads of {built['block_bytes'] // 1024} KiB; queries/s on {data['throughput']},"
           f" {machine['processors']} processors ({machine['processor']}), medians of {data['rounds']} rounds;"
           " memory is the whole process's.")
    if marks:
        systems = " and ".join(dict.fromkeys(one["system"] for one in marks))
        yield f"{systems}: their authors' implementations, same data, reads of {peers['read_bytes'] // 1024} KiB," \
              " direct I/O;"
        yield f"measured on {peers['machine']}: reads compare, queries/s only roughly."
    for one in data["refused"]:
        yield f"--memory {one['budget']} is refused: the narrowest codes need more."
    if data["quick"]:
        yield "A quick run: settings and time too few for a figure to be relied on."


def draw(data, peers, recall_min):
    lines, marks = budget_lines(data), peer_series(data, peers)
    built = data["build"]
    out = [text(LEFT, 28, f"{data['name']}: {built['rows']:,} x {built['dim']} {built['type']}, {built['metric']}",
                size=16, extra='font-weight="bold"')]
    out += panel(lines, marks, "reads_per_query", "reads per query (left is better)", LEFT, recall_min)
    out += panel(lines, marks, "qps", "queries/s (right is better)", LEFT + PANEL_WIDTH + GAP, recall_min)
    y = TOP + PANEL_HEIGHT + 74
    rows, height = legend(lines, marks, y)
    out += rows
    y += height + 8
    for words in notes(data, marks, peers):
        out.append(text(LEFT, y, words, size=11, extra='fill="#555555"'))
        y += 16
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
            f' font-family="sans-serif" fill="#222222">\n<title>{escape(data["name"])}: recall@10 against reads'
            f' per query and queries/s</title>\n<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>\n'
            + "\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", metavar="JSON", type=Path, nargs="+", help="files of curves.py")
    parser.add_argument("--out", type=Path, help="folder of the figures (beside each JSON file)")
    parser.add_argument("--recall-min", type=float, default=0.8, help="where the recall axis begins (0.8)")
    parser.add_argument("--peers", type=Path, default=Path(__file__).with_name("peers.json"),
                        help="points of other systems (peers.json beside this script)")
    options = parser.parse_args()
    for path in (*options.points, options.peers):
        if not path.is_file():
            sys.exit(f"figures.py: {path}: no such file; curves.py writes the points")
    peers = json.loads(options.peers.read_text(encoding="utf-8"))
    for path in options.points:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "points" not in data:
            sys.exit(f"figures.py: {path}: not a file of curves.py")
        figure = (options.out or path.parent) / f"recall-{data['name']}.svg"
        figure.write_text(draw(data, peers, options.recall_min), encoding="utf-8")
        print(figure)


if __name__ == "__main__":
    main()
