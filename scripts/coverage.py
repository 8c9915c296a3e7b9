#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage of src and include by the tests that ran in a build of the preset `coverage`: one figure and
a table by folder. Reads what gcov says of each object (gcov --json-format); a line counts once, however many
objects have it, and is covered if one of them ran it.

    coverage.py BUILD [--least PERCENT]     the status is 1 below PERCENT
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
    told = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)], cwd=notes.parent,
                          capture_output=True, check=False).stdout
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--least", type=float, default=0)
    arguments = parser.parse_args()
    lines = collections.defaultdict(dict)
    notes = sorted(arguments.build.resolve().rglob("*.gcno"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lines_of, notes):
            for file, of in found.items():
                for number, ran in of.items():
                    lines[file][number] = lines[file].get(number, False) or ran
    folders = collections.defaultdict(lambda: [0, 0])
    for file, of in lines.items():
        folders[folder_of(file)][0] += sum(of.values())
        folders[folder_of(file)][1] += len(of)
    if not folders:
        print("coverage: nothing was built with the preset coverage in " + str(arguments.build))
        return 1
    print(f"{'folder':28} {'lines':>7} {'covered':>8}")
    for folder, (ran, all_) in sorted(folders.items()):
        print(f"{folder:28} {all_:7} {100 * ran / all_:7.1f} %")
    ran, all_ = (sum(f[i] for f in folders.values()) for i in (0, 1))
    print(f"{'all':28} {all_:7} {100 * ran / all_:7.1f} %")
    return 0 if 100 * ran / all_ >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
