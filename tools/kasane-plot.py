#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws benchmark results: a panel for each case, a line or bar for each system; one image (by matplotlib) and one HTML page (by itself).

A file is a list of {suite, case, system, ranks, threads, bytes, N?, value, unit, repetitions, spread?, low?, high?}. Along the x axis goes what varies
within the case: bytes, else N (the size of a problem), else ranks, else threads; where nothing does, systems are compared by bars. The case that a suite measures for several numbers of
threads and sizes, such as a pingpong, gets a panel for each number of threads, as the figures of Odajima, Lee and Sato have it; operations measured for several
numbers of requesters get one panel along them, as those of Endo's thesis do.
"""
import argparse
import collections
import html
import json
import math
import os
import sys

FIELDS = ("suite", "case", "system", "value", "unit")
AXES = ("bytes", "N", "ranks", "threads")
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
           "#003f5c", "#ffa600", "#58508d", "#ff6361")


def read_rows(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"kasane: {path}: {error}")
    if not isinstance(rows, list) or not rows:
        sys.exit(f"kasane: {path}: expected a list of results, not empty")
    for number, row in enumerate(rows):
        missing = [f for f in FIELDS if not isinstance(row, dict) or f not in row]
        if missing:
            sys.exit(f"kasane: {path}: result {number} lacks {', '.join(missing)}")
        if not isinstance(row["value"], (int, float)):
            sys.exit(f"kasane: {path}: result {number}: value is no number")
    return rows


def case_of(row):
    """Its panel. Those of the suite gas compare cases, a panel for each system: as figures 5.7 (accesses) and 5.8 (moves) of Endo's thesis do."""
    if row["suite"] != "gas":
        return row["case"]
    moves = row["case"] == "am-round-trip" or row["case"].startswith("own")
    return f"{'moving a page' if moves else 'access of 8 bytes'}, {row['system']}"


def panels(rows):
    """Results by (suite, case, unit, threads or None), in the order in which they came."""
    cases = collections.OrderedDict()
    for row in rows:
        cases.setdefault((row["suite"], case_of(row), row["unit"]), []).append(row)
    found = collections.OrderedDict()
    for key, case in cases.items():
        if key[0] == "gas":  # bars: what is moved has another size than the message beside it
            found[key + (None,)] = case
            continue
        several = {a for a in ("bytes", "threads") if len({row.get(a) for row in case}) > 1}
        if len(several) < 2:
            found[key + (None,)] = case
            continue
        for threads in sorted({row.get("threads") or 0 for row in case}):
            found[key + (threads,)] = [row for row in case if (row.get("threads") or 0) == threads]
    return found


def title_of(suite, case, threads):
    return f"{suite}: {case}" + (f", {threads} thread{'s' if threads != 1 else ''}" if threads is not None else "")


def axis_of(rows):
    if rows[0]["suite"] == "gas":
        return None
    for axis in AXES:
        if len({row.get(axis) for row in rows}) > 1:
            return axis
    return None


def rises(rows):
    """Whether the values span so much that only a logarithmic axis shows them all."""
    values = [row["value"] for row in rows]
    return min(values) > 0 and max(values) / min(values) > 20


def label_of(row, axis):
    """The system, with what else tells lines of one panel apart."""
    if row["suite"] == "gas":  # the system is in the title
        return row["case"]
    if row["suite"] in ("pingpong", "comm"):  # always two ranks; the threads are the axis, or in the title
        return row["system"]
    rest = [f"{row[a]} {a if row[a] != 1 else a[:-1]}" for a in ("ranks", "threads") if a != axis and row.get(a)]
    return f"{row['system']}, {', '.join(rest)}" if rest else row["system"]


def lines_of(rows, axis):
    """label → [(x, median, lower quartile, upper quartile)]"""
    lines = collections.OrderedDict()
    for row in rows:
        value = row["value"]
        lines.setdefault(label_of(row, axis), []).append((row.get(axis) or 0, value, row.get("low", value), row.get("high", value)))
    for points in lines.values():
        points.sort()
    return lines


def marks_of(rows, axis):
    """[(x, text)]: places along the axis. Of the stencil: from which N on a grid, 8 N^2 bytes, or the two of plain steps are larger than the budget of DRAM."""
    if rows[0]["suite"] != "stencil" or axis != "N":
        return []
    budgets = sorted({row["budget_bytes"] for row in rows if row.get("budget_bytes")})
    return [(math.sqrt(budget / (8 * grids)), f"{grids} {'grid' if grids == 1 else 'grids'} = {size_text(budget)}B of DRAM") for budget in budgets for grids in (1, 2)]


def draw_lines(axes, rows, axis):
    lines = lines_of(rows, axis)
    for number, (label, points) in enumerate(lines.items()):
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        below, above = [max(0, p[1] - p[2]) for p in points], [max(0, p[3] - p[1]) for p in points]
        style = "-" if label.startswith("kasane") else ":" if label == "raw" else "--"
        axes.errorbar(xs, ys, yerr=[below, above], linestyle=style, color=COLOURS[number % len(COLOURS)], marker="o", markersize=3, capsize=2, label=label)
    if axis == "bytes":
        axes.set_xscale("symlog", base=2)
    else:
        axes.set_xticks(sorted({p[0] for points in lines.values() for p in points}))
    if rises(rows):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(axis)
    for x, text in marks_of(rows, axis):
        axes.axvline(x, color="#555", linestyle=":", linewidth=1)
        axes.text(x, 0.99, text + " ", transform=axes.get_xaxis_transform(), rotation=90, va="top", ha="right", fontsize="small", color="#555")
    if len(lines) > 6:  # beside the panel, where they hide nothing
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    else:
        axes.legend(fontsize="small")


def draw_bars(axes, rows):
    labels = [label_of(row, None) for row in rows]
    bars = axes.barh(range(len(rows)), [row["value"] for row in rows])
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.bar_label(bars, fmt="%.4g", padding=2)
    axes.margins(x=0.15)


def draw_image(rows, output):
    """False if there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # no display needed
    import matplotlib.pyplot as plt

    found = panels(rows)
    columns = min(3, math.ceil(math.sqrt(len(found))))
    lines = math.ceil(len(found) / columns)
    figure, grid = plt.subplots(lines, columns, figsize=(6 * columns, 4 * lines), squeeze=False, layout="constrained")
    for axes, ((suite, case, unit, threads), panel) in zip(grid.flat, found.items()):
        axis = axis_of(panel)
        if axis is None:
            draw_bars(axes, panel)
            axes.set_xlabel(unit)
        else:
            draw_lines(axes, panel, axis)
            axes.set_ylabel(unit)
        axes.set_title(title_of(suite, case, threads))
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    for axes in list(grid.flat)[len(found):]:
        axes.remove()
    try:
        figure.savefig(output)
    except (OSError, ValueError) as error:
        sys.exit(f"kasane: {output}: {error}")
    return True


# ---- the HTML page: figures as SVG, numbers as tables; no library, no network ----

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, LEGEND = 640, 360, 62, 44, 16, 170


def number_text(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def size_text(value):
    for unit, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


class Scale:
    """Maps [low, high] to [first, last] pixels, straight or by logarithm."""

    def __init__(self, low, high, first, last, logarithmic):
        self.low, self.high, self.first, self.last, self.logarithmic = low, high, first, last, logarithmic

    def __call__(self, value):
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.first + share * (self.last - self.first)

    def ticks(self):
        if not self.logarithmic:
            return [self.low + (self.high - self.low) * i / 5 for i in range(6)]
        powers = [10.0 ** e for e in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)]
        return [p for p in powers if self.low <= p <= self.high] or [self.low, self.high]


def svg_lines(rows, axis, unit):
    lines = lines_of(rows, axis)
    xs = sorted({p[0] for points in lines.values() for p in points})
    values = [row["value"] for row in rows]
    logarithmic = rises(rows)
    across = Scale(max(xs[0], 1), xs[-1], LEFT, WIDTH - LEGEND, axis == "bytes")
    up = Scale(min(values) * 0.8 if logarithmic else 0, max(values) * 1.1, HEIGHT - BOTTOM, TOP, logarithmic)
    parts = []
    for tick in up.ticks():
        y = up(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - LEGEND}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                     f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number_text(tick)}</text>')
    for x in xs[::max(1, math.ceil(len(xs) / 11))]:
        parts.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{size_text(x) if axis == "bytes" else x}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - LEGEND) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{axis}</text>')
    parts.append(f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 12 {HEIGHT / 2})">{html.escape(unit)}</text>')
    for mark, text in marks_of(rows, axis):
        if xs[0] <= mark <= xs[-1]:
            x = across(mark)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="mark"/>'
                         f'<text x="{x - 4:.1f}" y="{TOP + 4}" text-anchor="end" transform="rotate(-90 {x - 4:.1f} {TOP + 4})">{html.escape(text)}</text>')
    for i, (label, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        dashes = "" if label.startswith("kasane") else ' stroke-dasharray="2 3"' if label == "raw" else ' stroke-dasharray="7 3"'
        path = " ".join(f"{across(max(x, 1)):.1f},{up(y):.1f}" for x, y, _, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>')
        for x, y, low, high in points:
            parts.append(f'<circle cx="{across(max(x, 1)):.1f}" cy="{up(y):.1f}" r="2.5" fill="{colour}"><title>{html.escape(label)}, {axis} {x}: '
                         f'{number_text(y)} {html.escape(unit)} ({number_text(low)} to {number_text(high)})</title></circle>')
        y = TOP + 8 + 15 * i
        parts.append(f'<line x1="{WIDTH - LEGEND + 10}" x2="{WIDTH - LEGEND + 34}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="1.8"{dashes}/>'
                     f'<text x="{WIDTH - LEGEND + 40}" y="{y + 4}">{html.escape(label)}</text>')
    height = max(HEIGHT, TOP + 20 + 15 * len(lines))
    width = WIDTH - LEGEND + max(LEGEND, 46 + 6 * max(len(label) for label in lines))
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}">{"".join(parts)}</svg>'


def svg_bars(rows, unit):
    most = max(max(row["value"] for row in rows), 1e-300)
    parts = []
    for i, row in enumerate(rows):
        y = TOP + 22 * i
        length = max(1.0, (WIDTH - 280) * row["value"] / most)
        parts.append(f'<text x="190" y="{y + 12}" text-anchor="end">{html.escape(label_of(row, None))}</text>'
                     f'<rect x="196" y="{y}" width="{length:.1f}" height="16" fill="{COLOURS[i % len(COLOURS)]}"/>'
                     f'<text x="{200 + length:.1f}" y="{y + 12}">{number_text(row["value"])} {html.escape(unit)}</text>')
    height = TOP + 22 * len(rows) + 8
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">{"".join(parts)}</svg>'


def table(rows, axis):
    lines = lines_of(rows, axis)
    xs = sorted({p[0] for points in lines.values() for p in points})
    head = "".join(f"<th>{size_text(x) if axis == 'bytes' else x}</th>" for x in xs)
    body = ""
    for label, points in lines.items():
        by_x = {p[0]: p[1] for p in points}
        body += f"<tr><th>{html.escape(label)}</th>" + "".join(f"<td>{number_text(by_x[x]) if x in by_x else ''}</td>" for x in xs) + "</tr>"
    return f"<details><summary>numbers</summary><table><tr><th>{axis}</th>{head}</tr>{body}</table></details>"


def draw_page(rows, output, sources):
    figures = []
    for (suite, case, unit, threads), panel in panels(rows).items():
        axis = axis_of(panel)
        drawing = svg_lines(panel, axis, unit) + table(panel, axis) if axis else svg_bars(panel, unit)
        figures.append(f"<figure><figcaption>{html.escape(title_of(suite, case, threads))}</figcaption>{drawing}</figure>")
    style = ("body{font:14px sans-serif;margin:1.5em} main{display:flex;flex-wrap:wrap;gap:1.5em} figure{margin:0} figcaption{font-weight:bold} svg text{font-size:11px} "
             ".grid{stroke:#ddd} .mark{stroke:#555;stroke-dasharray:2 3} table{border-collapse:collapse;font-size:11px} td,th{padding:1px 5px;text-align:right}")
    page = (f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Kasane: benchmark results</title><style>{style}</style>'
            f"<h1>Benchmark results</h1><p>{html.escape(', '.join(sources))}. Points are medians; pointing at one shows its quartiles. "
            f"Kasane's systems have full lines, peers broken ones, the limit a dotted one.</p><main>{''.join(figures)}</main></html>\n")
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        sys.exit(f"kasane: {output}: {error}")


def main():
    parser = argparse.ArgumentParser(prog="kasane plot", description="Draw benchmark results.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    rows = [row for path in arguments.files for row in read_rows(path)]
    output = arguments.output or os.path.splitext(arguments.files[0])[0] + ".png"
    page = os.path.splitext(output)[0] + ".html"
    draw_page(rows, page, arguments.files)
    print(page)
    if output == page:
        return None
    if not draw_image(rows, output):
        # Who did not ask for the image has what there is.
        complain = sys.exit if arguments.output else lambda text: print(text, file=sys.stderr)
        return complain(f"kasane: {output} not drawn: it needs Python's matplotlib (apt-get install python3-matplotlib, or pip install matplotlib in a "
                 "virtual environment whose python3 is first in PATH); the page has the same figures")
    print(output)
    return None


if __name__ == "__main__":
    sys.exit(main())
