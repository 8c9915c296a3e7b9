#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what each rank did, from the JSON reports that applications write. Usage: demo_table.py REPORT…"""
import json
import sys

# heading, width, what of a rank's counters it shows
COLUMNS = [
    ("threads", 9, lambda c: c["threads"]),
    ("steals in", 10, lambda c: c["steals_local"]),
    ("across", 7, lambda c: c["steals_remote"]),
    ("faults", 8, lambda c: c["faults_read"] + c["faults_write"]),
    ("fetched MB", 11, lambda c: c["bytes_fetched"] / 1e6),
    ("diffs", 8, lambda c: c["diffs"]),
    ("put MB", 8, lambda c: c["bytes_put"] / 1e6),
    ("fault s", 8, lambda c: c["ns_fault"] / 1e9),
    ("release s", 10, lambda c: c["ns_release"] / 1e9),
    ("acquire s", 10, lambda c: c["ns_acquire"] / 1e9),
    ("steal s", 8, lambda c: c["ns_steal"] / 1e9),
    ("idle s", 8, lambda c: c["ns_idle"] / 1e9),
]


def cell(value, width):
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return " " + text.rjust(width - 1)


def print_report(report):
    for number, counters in enumerate(report["per_rank"]):
        first = f"{report['ranks']:>5}{report['seconds']:>9.3f}" if number == 0 else " " * 14
        print(f"{first}{counters.get('rank', number):>6}" + "".join(cell(f(counters), w) for _, w, f in COLUMNS))


def main():
    print(f"{'ranks':>5}{'seconds':>9}{'rank':>6}" + "".join(f"{name:>{width}}" for name, width, _ in COLUMNS))
    reports = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    for report in sorted(reports, key=lambda r: r["ranks"]):
        print_report(report)
    return 0 if reports and all(r["verified"] for r in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
