#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage of src and include by the tests that ran in a build of the preset `coverage`: one figure, a
table by folder, and the files with the most lines that did not run. Reads what gcov says of each object (gcov
--json-format); a line counts once, however many objects have it, and is covered if one of them ran it.

    coverage.py BUILD [--least PERCENT]     the status is 1 below PERCENT
    coverage.py BUILD --of src/gas          every file of these, with the lines that did not run
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines_of(notes):
    """{file: {line: whether it ran}} of an object."""
    found = collections.defaultdict(dict)
    told = subprocess.run(["gcov", "-s", str(ROOT), "-r", "--json-format", "--stdout", str(notes)],
                          cwd=notes.parent, capture_output=True, check=False).stdout   # of our sources alone
    for text in told.splitlines():
        try:
            record = json.loads(text)
        except ValueError:
            continue
        for file in record["files"]:
            path = os.path.normpath(os.path.join(record["current_working_directory"], file["file"]))
            relative = os.path.relpath(path, ROOT)
            if not relative.startswith(("src/", "include/")):
                continue
            lines = found[relative]
            for line in file["lines"]:
                number = line["line_number"]
                lines[number] = lines.get(number, False) or line["count"] > 0
    return found


def folder_of(path):
    parts = path.split("/")[:-1]
    return "/".join(parts[:3] if parts[:2] in (["src", "comm"], ["src", "runtime"]) else parts[:2])


def ranges_of(numbers):
    """"3-5 9" of 3, 4, 5 and 9."""
    ranges = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def table(title, rows):
    """rows: (name, lines that ran, lines)"""
    width = max(28, *(len(name) for name, _, _ in rows))
    print(f"{title:{width}} {'lines':>7} {'not run':>8} {'covered':>9}")
    for name, ran, of in rows:
        print(f"{name:{width}} {of:7} {of - ran:8} {100 * ran / of:7.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--of", help="a folder or file: lines of it that did not run")
    arguments = parser.parse_args()
    lines = collections.defaultdict(dict)
    notes = sorted(arguments.build.resolve().rglob("*.gcno"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lines_of, notes):
            for file, of in found.items():
                for number, ran in of.items():
                    lines[file][number] = lines[file].get(number, False) or ran
    if not lines:
        print("coverage: nothing was built with the preset coverage in " + str(arguments.build))
        return 1
    files = sorted(((file, sum(of.values()), len(of)) for file, of in lines.items()),
                   key=lambda row: row[1] - row[2])
    if arguments.of:
        for file, ran, of in files:
            if file.startswith(arguments.of):
                left = ranges_of(number for number, hit in lines[file].items() if not hit)
                print(f"{file}: {of - ran} of {of}: {left}")
        return 0
    folders = collections.defaultdict(lambda: [0, 0])
    for file, ran, of in files:
        folders[folder_of(file)][0] += ran
        folders[folder_of(file)][1] += of
    table("most not run", files[:40])
    print()
    ran, all_ = (sum(f[i] for f in folders.values()) for i in (0, 1))
    table("folder", [(name, *of) for name, of in sorted(folders.items())] + [("all", ran, all_)])
    missing = sorted({os.path.relpath(path, ROOT) for path in (ROOT / "src").rglob("*.cpp")} - set(lines))
    if missing:
        print("\nnot in this build, and not counted: " + " ".join(missing))
    return 0 if 100 * ran / all_ >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
