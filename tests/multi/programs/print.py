#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""print.py PROGRAM COMMAND…: what print.cpp prints comes in order and in whole lines, into a pipe and a file.

COMMAND is kasane run with its options, up to and with --.
"""
import subprocess
import sys
import tempfile

LINES = 60


def run(command, into_file):
    if not into_file:
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryFile() as file:
        subprocess.run(command, stdout=file, check=True)
        file.seek(0)
        return file.read()


def untagged(line):
    return line.split("] ", 1)[1] if line.startswith("[") else line


def check(command, how, into_file):
    lines = [untagged(line) for line in run(command, into_file).decode().splitlines()]
    if how in ("whole", "long"):
        bytes_of_line = {"whole": 101, "long": 3000}[how]
        good = all(len(line) == bytes_of_line - 1 and len(set(line)) == 1 for line in lines)
        good = good and len(lines) > 0 and len(lines) % LINES == 0
    else:
        good = lines == [f"line {i}" for i in range(LINES)]
    if not good:
        sys.exit(f"{' '.join(command)}, into a {'file' if into_file else 'pipe'}:\n" + "\n".join(lines))


def main():
    program, command = sys.argv[1], sys.argv[2:]
    hows = ["order", "whole", "long"]
    if "--tag-output" not in command:  # which puts a tag before each part of a line
        hows += ["pieces", "stolen", "handed"]
    for how in hows:
        for into_file in (False, True):
            # std::cout has a buffer of its own then, in a job of one rank: a plain program's order
            for buffered in ([], ["buffered"]) if command[command.index("-n") + 1] != "1" else ([],):
                check(command + [program, how] + buffered, how, into_file)


main()
