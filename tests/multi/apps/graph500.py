#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""graph500's output: the lines of the reference code 3.0.0, its roots and its edges; and what is refused.

Usage: graph500.py KASANE GRAPH500 RANKS
"""
import re
import subprocess
import sys

kasane, graph500, ranks = sys.argv[1:]
NUMBER = r"(?:\d+(?:\.\d+)?(?:e[+-]\d+)?)"

# What the reference code draws: the first and the last of its 64 roots, and their sum; edges at each.
REFERENCE = {
    8: ([53, 55, 31, 241], [52, 206, 42, 37], 7562, 4011),
    10: ([458, 214, 220, 966], [209, 825, 171, 149], 30710, 16239),
    14: ([7337, 3434, 3526, 2016], [3357, 13211, 2741, 2389], 507084, 261818),
}


def run(*arguments):
    return subprocess.run([kasane, "run", "-n", ranks, "--", graph500, *arguments], capture_output=True,
                          text=True, timeout=100)


def series(before, what):
    names = ("min", "firstquartile", "median", "thirdquartile", "max", "mean", "stddev")
    return [f"{before}{name}_{what}" for name in names]


def rates(before):
    names = ("min", "firstquartile", "median", "thirdquartile", "max", "harmonic_mean", "harmonic_stddev")
    return [f"{before}{name}_TEPS" for name in names]


def lines_of(kernels):
    lines = ["SCALE", "edgefactor", "NBFS", "graph_generation", "num_mpi_processes", "construction_time"]
    for kernel in kernels:
        lines += series(kernel, "time")
    lines += series("", "nedge")
    for kernel in kernels:
        lines += rates(kernel)
    for kernel in kernels:
        lines += series(kernel, "validate")
    return lines


def values_of(output, kernels):
    """The values of the lines, which are these and no others, with the value at the reference's column."""
    lines, expected = output.splitlines(), lines_of(kernels)
    assert len(lines) == len(expected), output
    values = {}
    for line, name in zip(lines, expected):
        mark = "!  " if name.endswith("harmonic_mean_TEPS") else ""
        head = (name + ":").ljust(32 - len(mark)) + mark
        assert line.startswith(head), f"{line!r} does not begin with {head!r}"
        assert re.fullmatch(NUMBER, line[32:]), line
        values[name] = float(line[32:])
    return values


def expect_order(values, before, what):
    least, first, median, third, most = (values[f"{before}{name}_{what}"] for name in
                                         ("min", "firstquartile", "median", "thirdquartile", "max"))
    assert 0 < least <= first <= median <= third <= most, values


def check_roots(scale):
    first, last, total, edges = REFERENCE[scale]
    done = run("--scale", str(scale))
    assert done.returncode == 0, done.stderr
    values = values_of(done.stdout, ["bfs  "])
    assert values["SCALE"] == scale and values["edgefactor"] == 16 and values["NBFS"] == 64
    assert values["num_mpi_processes"] == int(ranks)
    for name in series("", "nedge"):
        assert values[name] == (0 if name == "stddev_nedge" else edges), (name, values[name])
    expect_order(values, "bfs  ", "time")
    expect_order(values, "bfs  ", "TEPS")
    expect_order(values, "bfs  ", "validate")
    rows = [(int(root), float(seconds), int(n)) for root, seconds, n in
            re.findall(r"^BFS \d+ from root (\d+): ([-\d.e]+) s, (\d+) edges", done.stderr, re.M)]
    roots = [row[0] for row in rows]
    assert len(roots) == 64 and roots[:4] == first and roots[-4:] == last and sum(roots) == total, roots
    assert all(n == edges for _, _, n in rows)
    # The statistics are those of the runs.
    mean = sum(seconds for _, seconds, _ in rows) / 64
    assert abs(values["bfs  mean_time"] / mean - 1) < 1e-4, (values["bfs  mean_time"], mean)
    assert abs(edges / mean / values["bfs  harmonic_mean_TEPS"] - 1) < 1e-4


def check_kernels():
    done = run("--scale", "9", "--edgefactor", "8", "--kernel", "sssp", "--roots", "5", "--quiet")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    values = values_of(done.stdout, ["bfs  ", "sssp "])
    assert values["NBFS"] == 5 and values["edgefactor"] == 8
    for what in ("time", "TEPS", "validate"):
        expect_order(values, "sssp ", what)
    # Few vertices: as many roots as there are.
    done = run("--scale", "3", "--roots", "64")
    assert done.returncode == 0 and values_of(done.stdout, ["bfs  "])["NBFS"] <= 8, done.stdout
    done = run("--scale", "5", "--roots", "1", "--kernel", "sssp")
    assert done.returncode == 0 and values_of(done.stdout, ["bfs  ", "sssp "])["NBFS"] == 1, done.stdout


def check_refusals():
    for arguments, text in (
            ([], "give --scale N"),
            (["--scale", "31", "--edgefactor", "1024"],
             r"--scale 31 needs \d{14} bytes \(\d+\.\d GiB\) .* has \d+\.\d GiB: give kasane run --dram"),
            (["--scale", "40"], r"--scale 40 needs \d{15} bytes"),
            (["--scale", "64"], "--scale"),
            (["--scale", "-1"], "--scale"),
            (["--scale", "x"], "--scale"),
            (["--scale", "8", "--edgefactor", "0"], "--edgefactor"),
            (["--scale", "8", "--roots", "0"], "--roots"),
            (["--scale", "8", "--kernel", "dfs"], "--kernel"),
            (["--scale", "8", "more"], "more")):
        done = run(*arguments)
        assert done.returncode == 2, (arguments, done)
        assert re.search(text, done.stderr) and done.stdout == "", (arguments, done)
    done = run("--help")
    assert done.returncode == 0 and "reference code" in done.stdout, done


for s in REFERENCE:
    check_roots(s)
check_kernels()
check_refusals()
