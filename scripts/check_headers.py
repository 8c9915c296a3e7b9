#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header under src and include alone, so that each includes what it uses; kasane.h also as C.

A header is left out if a source file of src includes it before anything else, since the compiler has compiled
it alone there already. So are those of src/armci that need an MPI and Debian's armci.h, which may not be
here.

Usage: check_headers.py ROOT C++-COMPILER C-COMPILER [COMPILER FLAGS…]
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys


def compile_alone(compiler, language, standard, header, flags):
    """The compiler's complaint about a file that includes nothing but header, or None."""
    command = [compiler, "-x", language, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
               *flags, "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', capture_output=True, text=True,
                          timeout=120)
    return None if done.returncode == 0 else f"{header} as {language}:\n{done.stderr.strip()}"


def included_first(root):
    """The headers that a source file includes first. Modules do not count: they may not be built here."""
    first = set()
    for source in (root / "src").rglob("*.cpp"):
        if "module" in source.parts:
            continue
        for line in source.read_text().splitlines():
            if line.startswith("#if"):   # what follows may not be compiled
                break
            if line.startswith("#include"):
                name = line.split('"')[1] if '"' in line else None
                if name:
                    first.add((root / "src" / name).resolve())
                break
    return first


def needs_armci(root, header):
    if header.parent != root / "src" / "armci":
        return False
    return header.name == "header.h" or '"armci/header.h"' in header.read_text()


def jobs(root, cxx, cc, flags):
    include = [f"-I{root / 'src'}", f"-I{root / 'include'}", *flags]
    done_elsewhere = included_first(root)
    for folder in ("src", "include"):
        for header in sorted((root / folder).rglob("*.h*")):
            if needs_armci(root, header):
                continue
            if header.suffix in (".h", ".hpp") and header.resolve() not in done_elsewhere:
                yield cxx, "c++", "c++20", header, include
    for header in sorted((root / "include").rglob("*.h")):
        yield cc, "c", "c11", header, ["-pedantic", *include]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    root, cxx, cc, flags = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3], sys.argv[4:]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: compile_alone(*job), jobs(root, cxx, cc, flags)))
    problems = [problem for problem in results if problem]
    print("\n".join(problems))
    print(f"check_headers: {len(results)} compiled, {len(problems)} wrong")
    return 1 if problems or not results else 0


if __name__ == "__main__":
    sys.exit(main())
