#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws benchmark results by matplotlib: a panel for each case, a line or bar for each system. Writes a page
that needs no other file: for each suite its panels, as SVG, and a table of its rows; or, where --output names
an image, all panels as one.

A file is a list of {suite, case, system, ranks, threads, bytes, N?, value, unit, repetitions, spread?, low?,
high?}. The x axis shows what varies within the case: bytes, else N (the size of a problem), else multiplicity
(of k-mers), else distance (in a graph), else ranks, else threads; where nothing varies, bars compare the
systems. A case with several numbers of threads and several sizes, such as a pingpong, has a panel for each
number of threads, as the figures of Odajima, Lee and Sato; operations with several numbers of requesters have
one panel along these, as the figures of Endo's thesis. Triad has the figures of Yasui and Fujisawa: bandwidth
over N for each way of placing the arrays, and, of the largest N, a matrix of nodes. Scale has the efficiency
of all programs over the ranks, and for each program where its time went.
"""
import argparse
import collections
import errno
import html
import io
import json
import math
import os
import stat
import sys

try:
    import matplotlib
except ImportError:
    # The distribution's Python may have it where another Python comes first in PATH.
    system = "/usr/bin/python3"
    if os.path.exists(system) and not os.path.samefile(system, sys.executable):
        os.execv(system, [system, *sys.argv])
    sys.exit("kasane: plot needs Python's matplotlib: install the package python3-matplotlib"
             f" (for a Python of your own, {sys.executable}: pip install matplotlib)")
matplotlib.use("Agg")  # no display needed
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
import matplotlib.pyplot as plt

FIELDS = ("suite", "case", "system", "value", "unit")
PARTS = ("compute", "misses", "transfers", "fences", "steals", "locks", "idle")
AXES = ("bytes", "N", "multiplicity", "distance", "ranks", "threads")
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
           "#17becf", "#003f5c", "#ffa600", "#58508d", "#ff6361")


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
    """The row's panel. Panels of the suite gas compare the cases of a system, as figures 5.7 (accesses) and
    5.8 (moves) of Endo's thesis."""
    if row["suite"] == "scale":  # a panel for each network
        return f"efficiency, {row['system']}"
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
    plural = "s" if threads != 1 else ""
    return f"{suite}: {case}" + (f", {threads} thread{plural}" if threads is not None else "")


def axis_of(rows):
    if rows[0]["suite"] in ("gas", "containers", "bfs"):
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
    if row["suite"] == "scale":
        return row["case"]
    if row["suite"] == "containers":  # its name says how many ranks
        return row["system"] + (f", {row['threads']} threads" if row["threads"] > 1 else "")
    if row["suite"] in ("pingpong", "comm", "ga"):  # the threads are the axis, in the title, or always one
        return row["system"]
    if row["suite"] == "triad" and "memory_node" in row:
        return row["system"]
    if row["suite"] == "triad":  # a row of STREAM has the ranks of the job beside which it ran
        job = f"{row['ranks']} x {row['threads'] // row['ranks']}"
        return row["system"] + (" beside " if row["system"] == "stream" else ", ") + job
    rest = [f"{row[a]} {a if row[a] != 1 else a[:-1]}"
            for a in ("ranks", "threads") if a != axis and row.get(a)]
    return f"{row['system']}, {', '.join(rest)}" if rest else row["system"]


def lines_of(rows, axis):
    """label → [(x, median, lower quartile, upper quartile)]"""
    lines = collections.OrderedDict()
    for row in rows:
        value = row["value"]
        point = (row.get(axis) or 0, value, row.get("low", value), row.get("high", value))
        lines.setdefault(label_of(row, axis), []).append(point)
    for points in lines.values():
        points.sort()
    return lines


def size_text(value):
    for unit, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def marks_of(rows, axis):
    """[(x, text)]: marks on the axis. For the stencil: the N from which one grid (8 N^2 bytes), or the two
    grids of plain steps, are larger than the budget of DRAM. For Global Arrays: from which all arrays
    are."""
    if rows[0]["suite"] == "ga" and axis == "N":
        return [(row["N"] * math.sqrt(row["budget_bytes"] / row["data_bytes"]),
                 f"arrays = {size_text(row['budget_bytes'])}B of DRAM") for row in rows[:1]]
    if rows[0]["suite"] != "stencil" or axis != "N":
        return []
    budgets = sorted({row["budget_bytes"] for row in rows if row.get("budget_bytes")})
    return [(math.sqrt(budget / (8 * grids)), f"{grids} grid{'s'[:grids - 1]} = {size_text(budget)}B of DRAM")
            for budget in budgets for grids in (1, 2)]


def draw_lines(axes, rows, axis):
    lines = lines_of(rows, axis)
    for number, (label, points) in enumerate(lines.items()):
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        below, above = [max(0, p[1] - p[2]) for p in points], [max(0, p[3] - p[1]) for p in points]
        style = "-" if label.startswith("kasane") else ":" if label == "raw" else "--"
        axes.errorbar(xs, ys, yerr=[below, above], linestyle=style, color=COLOURS[number % len(COLOURS)],
                      marker="o", markersize=3, capsize=2, label=label)
    if axis == "bytes":
        axes.set_xscale("symlog", base=2)
    elif rows[0]["suite"] in ("triad", "scale"):
        axes.set_xscale("log", base=2)
    elif axis != "multiplicity":
        axes.set_xticks(sorted({p[0] for points in lines.values() for p in points}))
    if rises(rows):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(axis)
    for x, text in marks_of(rows, axis):
        axes.axvline(x, color="#555", linestyle=":", linewidth=1)
        axes.text(x, 0.99, text + " ", transform=axes.get_xaxis_transform(), rotation=90, va="top",
                  ha="right", fontsize="small", color="#555")
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
    if rises(rows):
        axes.set_xscale("log")


def with_matrices(found):
    """Adds a panel behind each that has rows by node, for a matrix of them: those of the largest N."""
    added = collections.OrderedDict()
    for (suite, case, unit, threads), panel in found.items():
        added[suite, case, unit, threads] = panel
        if all("memory_node" in row for row in panel):
            largest = max(row["N"] for row in panel)
            key = suite, f"{case}, N = {size_text(largest)}", unit, "matrix"
            added[key] = [row for row in panel if row["N"] == largest]
    return added


def with_parts(found):
    """Adds panels behind those of the suite scale: the parts of each program's time, on each network."""
    added = collections.OrderedDict()
    for key, panel in found.items():
        added[key] = panel
        for row in panel if key[0] == "scale" else ():
            added.setdefault((key[0], f"{row['case']}, {row['system']}", "ms", "parts"), []).append(row)
    return added


def draw_parts(axes, rows):
    """The median rank's time, stacked."""
    rows = sorted(rows, key=lambda row: row["ranks"])
    below = [0.0] * len(rows)
    for part, colour in zip(PARTS, COLOURS):
        share = [row[f"ms_{part}"] / row["ms"] for row in rows]
        axes.bar(range(len(rows)), share, bottom=below, color=colour, label=part)
        below = [b + s for b, s in zip(below, share)]
    axes.set_xticks(range(len(rows)), [f"{row['ranks']}\n{row['ms']:.3g} ms" for row in rows])
    axes.set_xlabel("ranks")
    axes.set_ylabel("share of the time")
    axes.legend(fontsize="small")


def draw_matrix(axes, rows):
    """From the threads of a node (down) to the memory of a node (across)."""
    froms, tos = (sorted({row[side] for row in rows}) for side in ("threads_node", "memory_node"))
    values = [[math.nan] * len(tos) for _ in froms]
    for row in rows:
        values[froms.index(row["threads_node"])][tos.index(row["memory_node"])] = row["value"]
    # From 0, so that the colours say how many times as fast.
    axes.imshow(values, cmap="Blues", vmin=0, vmax=2 * max(row["value"] for row in rows), aspect="auto")
    axes.set_xticks(range(len(tos)), [f"memory of node {n}" for n in tos])
    axes.set_yticks(range(len(froms)), [f"threads on node {n}" for n in froms])
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            axes.text(x, y, f"{value:.3g}", ha="center", va="center")


def figure_of(rows):
    found = with_parts(with_matrices(panels(rows)))
    columns = min(3, math.ceil(math.sqrt(len(found))))
    lines = math.ceil(len(found) / columns)
    figure, grid = plt.subplots(lines, columns, figsize=(6 * columns, 4 * lines), squeeze=False,
                                layout="constrained")
    for axes, ((suite, case, unit, threads), panel) in zip(grid.flat, found.items()):
        axis = axis_of(panel)
        if threads == "parts":
            draw_parts(axes, panel)
            axes.set_title(f"{suite}: {case}")
            continue
        if threads == "matrix":
            draw_matrix(axes, panel)
            axes.set_title(f"{suite}: {case}, {unit}")
            continue
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
    return figure


STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem }
svg { background: #fff; width: 100%; height: auto; border-radius: 4px }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .1rem .8rem .1rem 0; text-align: left; border-bottom: 1px solid #8884 }
"""


def svg_of(rows):
    figure, text = figure_of(rows), io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue().partition("<svg")[2]


def table_of(rows):
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "suite"]
    def cell(value):
        return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
    lines = ["".join(f"<td>{cell(row.get(name, ''))}</td>" for name in columns) for row in rows]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table>"


def page_of(rows):
    suites = collections.OrderedDict()
    for row in rows:
        suites.setdefault(row["suite"], []).append(row)
    names = {suite: html.escape(suite) for suite in suites}
    links = " ".join(f'<a href="#{name}">{name}</a>' for name in names.values())
    parts = [f'<h2 id="{names[suite]}">{names[suite]}</h2>\n<svg{svg_of(some)}\n'
             f"<details><summary>{len(some)} rows</summary>{table_of(some)}</details>"
             for suite, some in suites.items()]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><title>kasane bench</title>'
            f"<style>{STYLE}</style></head><body>\n<h1>kasane bench</h1>\n<p>{links}</p>\n"
            + "\n".join(parts) + "\n</body></html>\n")


def opened(output):
    """The file, to be written. As everywhere in Kasane (src/base/output_file.h), no link of another user is
    followed in a folder like /tmp."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        return os.fdopen(os.open(output, flags | os.O_NOFOLLOW, 0o666), "wb")
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    folder, link = os.stat(os.path.dirname(output) or "."), os.lstat(output)
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and link.st_uid not in (folder.st_uid, os.geteuid()):
        raise PermissionError(errno.EACCES, "a link of another user", output)
    return os.fdopen(os.open(output, flags, 0o666), "wb")


def draw(rows, output):
    kind = os.path.splitext(output)[1].lower()[1:]
    try:
        if kind != "html" and kind not in plt.gcf().canvas.get_supported_filetypes():
            raise ValueError("not a name of a page or an image: .html, .svg, .png, .pdf")
        page = page_of(rows).encode() if kind == "html" else None
        with opened(output) as file:
            if kind == "html":
                file.write(page)
            else:
                figure_of(rows).savefig(file, format=kind)
    except (OSError, ValueError) as error:
        sys.exit(f"kasane: {output}: {error}")


def main():
    parser = argparse.ArgumentParser(prog="kasane plot", description="Draw benchmark results.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    output = arguments.output or os.path.splitext(arguments.files[0])[0] + ".html"
    draw([row for path in arguments.files for row in read_rows(path)], output)
    print(output)


if __name__ == "__main__":
    main()
