# SPDX-License-Identifier: Apache-2.0
"""The command `kasane` of a wheel, which is a program beside this file; else that of the prefix."""
import os
import sys


def program():
    """The program's file."""
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin", "kasane")
    if not os.path.exists(program):
        from . import _core
        program = os.path.join(os.path.dirname(os.path.realpath(_core.library_file())), "..", "bin", "kasane")
    if not os.path.exists(program):
        raise FileNotFoundError(2, f"kasane: no {program}; install Kasane again, with its command")
    return program


def main():
    """Becomes the program."""
    try:
        name = program()
    except FileNotFoundError as failure:
        sys.exit(failure.strerror)
    os.execv(name, [name, *sys.argv[1:]])
