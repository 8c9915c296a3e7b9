#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exits.py PROGRAM COMMAND…: a job ends as a process would, on whatever thread of whatever rank it does.

COMMAND is kasane run with its options, up to and with --.
"""
import re
import subprocess
import sys

ORDERLY = "part of a line, atexit on rank 0\n"
# The part was printed before its thread forked; else it is lost in the buffer, as in a plain program.
AT_ONCE = "part of a line, "

# the deed: status, standard output
ENDS = {
    "exit0": (0, {ORDERLY}),
    "exit5": (5, {ORDERLY}),
    "last-exit0": (0, {ORDERLY}),
    "last-exit5": (5, {ORDERLY}),
    "errx": (3, {ORDERLY}),
    # libc's own call of exit(): on another rank it ends the job at once
    "last-errx": (3, {ORDERLY, AT_ONCE}),
    "last-_exit0": (0, {AT_ONCE, ""}),
    "last-_Exit6": (6, {AT_ONCE, ""}),
    "quick_exit6": (6, {AT_ONCE, ""}),
    "last-quick_exit0": (0, {AT_ONCE, ""}),
    "os-thread-exit4": (4, {ORDERLY, AT_ONCE}),
    "vfork": (7, {ORDERLY}),
    "two": (5, {ORDERLY}),
    "busy": (5, {ORDERLY}),
}


def main():
    program, command = sys.argv[1], sys.argv[2:]
    for deed, (status, outputs) in ENDS.items():
        if deed == "busy" and command[command.index("-n") + 1] == "1":
            continue  # one worker: the first thread never goes on
        job = command + [program, deed]
        ended = subprocess.run(job, capture_output=True, text=True, check=False, timeout=60)
        said = ended.stderr.replace(program.rsplit("/", 1)[1] + ": as told\n", "")
        if "--hosts" in command:  # where a code that is not 0 may as well be a rank's that gave up
            said = re.sub(r"kasane: rank 1 (on b exited with code|called exit)\b.*\n", "", said)
        if ended.returncode != status or ended.stdout not in outputs or said:
            sys.exit(f"{deed}: status {ended.returncode}, output {ended.stdout!r}, errors {ended.stderr!r}")


main()
