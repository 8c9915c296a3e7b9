#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""again.py BUILD [--match REGEX] [--runs N] [--dram SIZE] [--load]: runs tests again and again.

The tests are CTest's whose names match (default: the small programs of tests/multi/programs), so each comes
on its ranks and networks. Their output goes into a pipe, a file and a terminal in turns, since streams and
lines are handled otherwise in each. --dram: with that budget (KASANE_DRAM) as well. --load: beside a busy
loop a core. Prints a table of runs and failures; status 1 if any failed.
"""
import argparse
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time

OUTPUTS = ("pipe", "file", "terminal")


def tests_of(build, match):
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-R", match],
                          check=True, stdout=subprocess.PIPE, text=True)
    for test in json.loads(done.stdout)["tests"]:
        if "command" in test:
            yield test["name"], test["command"], {p["name"]: p["value"] for p in test["properties"]}


def terminal():
    """Its two ends, and what comes out of it while the thread runs."""
    master, slave = pty.openpty()
    parts = []

    def read():
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:   # all writers have closed it
            pass

    reader = threading.Thread(target=read)
    reader.start()
    return master, slave, parts, reader


def run(command, where, properties, environment):
    """What is wrong; "": nothing."""
    env = {**os.environ, **dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", [])), **environment}
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "out"), "w+b") as file:
        master, slave, parts, reader = terminal() if where == "terminal" else (None,) * 4
        out = {"pipe": subprocess.PIPE, "file": file, "terminal": slave}[where]
        process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        if where == "terminal":
            os.close(slave)
        try:
            text, _ = process.communicate(timeout=properties.get("TIMEOUT", 120))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            text, process.returncode = b"", None
        if where == "terminal":
            reader.join()
            os.close(master)
            text = b"".join(parts)
        elif where == "file":
            file.seek(0)
            text = file.read()
    text = text.decode(errors="replace")
    if process.returncode is None:
        return "no end"
    expected = properties.get("PASS_REGULAR_EXPRESSION")
    if expected:
        return "" if any(re.search(e, text) for e in expected) else "does not say " + expected[0]
    skipped = process.returncode == properties.get("SKIP_RETURN_CODE")
    return "" if process.returncode == 0 or skipped else f"status {process.returncode}: {text[-600:]}"


def main():
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("build")
    line.add_argument("--match", default="^(calls|case|contended_lock|deep|descriptors|direct_variables|files"
                      "|forks|initialised|kinds_of|large_thread|last_call|live_registers|placements"
                      "|process_calls|small_objects|standard_library|std_locks|streams|untouched"
                      "|waiting_calls)")
    line.add_argument("--runs", type=int, default=3)
    line.add_argument("--dram", default="")
    line.add_argument("--load", action="store_true")
    a = line.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(os.cpu_count() if a.load else 0)]
    failed = 0
    try:
        print(f"{'test':48} {'dram':6} {'runs':>5} {'failed':>6} {'slowest':>8}")
        for name, command, properties in tests_of(a.build, a.match):
            for dram in ("", a.dram) if a.dram else ("",):
                wrong, slowest = [], 0
                for i in range(a.runs):
                    begun = time.monotonic()
                    why = run(command, OUTPUTS[i % 3], properties, {"KASANE_DRAM": dram} if dram else {})
                    slowest = max(slowest, time.monotonic() - begun)
                    if why:
                        wrong.append(f"into a {OUTPUTS[i % 3]}: {why}")
                print(f"{name:48} {dram or '-':6} {a.runs:5} {len(wrong):6} {slowest:7.1f}s", flush=True)
                for why in wrong[:2]:
                    print("  ", why)
                failed += bool(wrong)
    finally:
        for process in busy:
            process.kill()
    print(f"{failed} rows failed")
    return 1 if failed else 0


sys.exit(main())
