#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header under src and include alone, so that each includes what it uses; kasane.h also as C.

A header is left out if a source file of src includes it before anything else, since the compiler has compiled
it alone there already. So are those of src/armci that need an MPI and Debian's armci.h, which may not be
here. And the headers for C++ compile where a program has made a macro of each letter.

Usage: check_headers.py ROOT C++-COMPILER C-COMPILER [COMPILER FLAGS…]
"""
import concurrent.futures
import os
import pathlib
import re
import string
import subprocess
import sys


def compile_alone(compiler, language, standard, header, flags):
    """The compiler's complaint about a file that includes nothing but header, or None."""
    command = [compiler, "-x", language, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
               *flags, "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', capture_output=True, text=True,
                          timeout=120)
    return None if done.returncode == 0 else f"{header} as {language}:\n{done.stderr.strip()}"


def compile_after_macros(compiler, root, flags):
    """The complaint about the headers for C++ behind macros of all letters, or None.

    The program's -DN=16 or its own header may have made them. The standard's headers come first. Those of
    kasane::comm include sources, and are left out.
    """
    headers = [h for h in sorted((root / "include").rglob("*.hpp")) if h.parent.name != "comm"]
    names = {name for h in headers for name in re.findall(r"^#include <([^>]+)>", h.read_text(), re.M)}
    standard = {name for name in names if not name.startswith("kasane/") and name != "mdspan"}
    lines = [f"#include <{name}>" for name in sorted(standard)]
    lines += [f"#define {letter} 1" for letter in string.ascii_uppercase]
    lines += [f'#include "{header}"' for header in headers]
    command = [compiler, "-x", "c++", "-std=c++20", "-fsyntax-only", *flags, "-"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300)
    return None if done.returncode == 0 else f"behind macros of all letters:\n{done.stderr.strip()}"


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
        macros = pool.submit(compile_after_macros, cxx, root, [f"-I{root / 'include'}", *flags])
        results = list(pool.map(lambda job: compile_alone(*job), jobs(root, cxx, cc, flags)))
        if any((root / "include").rglob("*.hpp")):
            results.append(macros.result())
    problems = [problem for problem in results if problem]
    print("\n".join(problems))
    print(f"check_headers: {len(results)} compiled, {len(problems)} wrong")
    return 1 if problems or not results else 0


if __name__ == "__main__":
    sys.exit(main())
