#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws benchmark results: a panel for each case, a line or bar for each system.

A file is a list of {suite, case, system, ranks, threads, bytes, value, unit, repetitions}. Along the x axis goes what varies
within the case: bytes, else ranks, else threads; where nothing does, systems are compared by bars.
"""
import argparse
import collections
import json
import math
import os
import sys

FIELDS = ("suite", "case", "system", "value", "unit")
AXES = ("bytes", "ranks", "threads")


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


def panels(rows):
    """Results by (suite, case, unit), in the order in which they came."""
    found = collections.OrderedDict()
    for row in rows:
        found.setdefault((row["suite"], row["case"], row["unit"]), []).append(row)
    return found


def axis_of(rows):
    for axis in AXES:
        if len({row.get(axis) for row in rows}) > 1:
            return axis
    return None


def label_of(row, axis):
    """The system, with what else tells lines of one panel apart."""
    rest = [f"{row[a]} {a if row[a] != 1 else a[:-1]}" for a in ("ranks", "threads") if a != axis and row.get(a)]
    return f"{row['system']}, {', '.join(rest)}" if rest else row["system"]


def draw_lines(axes, rows, axis):
    lines = collections.OrderedDict()
    for row in rows:
        lines.setdefault(label_of(row, axis), []).append((row.get(axis) or 0, row["value"]))
    for label, points in lines.items():
        points.sort()
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
    if axis == "bytes":
        axes.set_xscale("symlog", base=2)
    else:
        axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
    values = [row["value"] for row in rows]
    if min(values) > 0 and max(values) / min(values) > 20:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(axis)
    axes.legend(fontsize="small")


def draw_bars(axes, rows):
    labels = [label_of(row, None) for row in rows]
    bars = axes.barh(range(len(rows)), [row["value"] for row in rows])
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.bar_label(bars, fmt="%.4g", padding=2)
    axes.margins(x=0.15)


def draw(rows, output):
    try:
        import matplotlib
    except ImportError:
        sys.exit("kasane: plot needs Python's matplotlib: apt-get install python3-matplotlib")
    matplotlib.use("Agg")  # no display needed
    import matplotlib.pyplot as plt

    found = panels(rows)
    columns = min(3, math.ceil(math.sqrt(len(found))))
    lines = math.ceil(len(found) / columns)
    figure, grid = plt.subplots(lines, columns, figsize=(6 * columns, 4 * lines), squeeze=False, layout="constrained")
    for axes, ((suite, case, unit), panel) in zip(grid.flat, found.items()):
        axis = axis_of(panel)
        if axis is None:
            draw_bars(axes, panel)
            axes.set_xlabel(unit)
        else:
            draw_lines(axes, panel, axis)
            axes.set_ylabel(unit)
        axes.set_title(f"{suite}: {case}")
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    for axes in list(grid.flat)[len(found):]:
        axes.remove()
    try:
        figure.savefig(output)
    except (OSError, ValueError) as error:
        sys.exit(f"kasane: {output}: {error}")


def main():
    parser = argparse.ArgumentParser(prog="kasane plot", description="Draw benchmark results.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    rows = [row for path in arguments.files for row in read_rows(path)]
    output = arguments.output or os.path.splitext(arguments.files[0])[0] + ".png"
    draw(rows, output)
    print(output)


if __name__ == "__main__":
    main()
