#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of the tree and fails on an arrow that the architecture does not have.

The arrows are the rows of cmake/layers.cmake, from which the targets are linked too. The users of a layer may
include what the layer may include. The table below says which third-party headers belong where.
Usage: check_includes.py [ROOT]
"""
import pathlib
import re
import sys

SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".S", ".inc"}
FOLDERS = ["src", "include", "apps", "examples", "tools", "bench", "containers"]

# A third-party header, by the beginning of its name, and the parts that may include it. Everything else in <>
# is the language's or the system's. Every layer of src, tools and bench may include it.
THIRD_PARTY = {
    "hwloc": {"topo"},
    "spdlog/": {"base"},
    "CLI/": {"base", "tools", "apps", "examples", "bench"},
    "nlohmann/": {"base", "tools", "apps", "examples", "bench"},
    "tbb/": {"bench"},
    "oneapi/": {"bench"},
    "omp.h": {"bench"},
    "gtest/": set(),
    "gmock/": set(),
    "boost/": {"ult", "bench"},
    "xxhash.h": {"base"},
    "capstone/": {"tools"},
    "gelf.h": {"tools"},
    "libelf.h": {"tools"},
}

# Parts outside src, and the layers they may include. They see the public headers as <kasane/…>.
# None: any layer.
PARTS = {
    "apps": set(),
    "examples": set(),
    "containers": set(),
    "tools": None,
    "bench": None,
}
# Folders outside the layers that a part may use besides its own. tests/support: fixtures that set up ranks in
# one process. apps: algorithms that peers run, too. bench: the list of suites.
ALSO = {"bench": {"tests", "apps"}, "tools": {"bench"}}
# The public headers stand alone: the standard library only.
STANDARD_C = {
    "assert.h", "complex.h", "ctype.h", "errno.h", "fenv.h", "float.h", "inttypes.h", "iso646.h", "limits.h",
    "locale.h", "math.h", "setjmp.h", "signal.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "stdnoreturn.h", "string.h", "tgmath.h", "threads.h",
    "time.h", "uchar.h", "wchar.h", "wctype.h",
    "cxxabi.h",  # of every C++ library here: which handlers must rethrow
}

INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(?:"([^"]+)"|<([^>]+)>)')


def read_layers(root):
    """{name: (folder, [layers])} from the rows of cmake/layers.cmake."""
    text = (root / "cmake" / "layers.cmake").read_text()
    rows = re.findall(r'^\s*"([^"|]+)\|([^"|]+)\|([^"]*)"', text, re.M)
    layers = {name.strip(): (folder.strip(), allowed.split()) for name, folder, allowed in rows}
    if not layers:
        sys.exit("check_includes: no rows found in cmake/layers.cmake")
    for name, (_, allowed) in layers.items():
        for other in allowed:
            if other not in layers:
                sys.exit(f"check_includes: layer {name} names {other}, which has no row")
    return layers


def close(layers):
    """{name: every layer it may include, itself among them}; fails on a cycle."""
    closed = {}

    def visit(name, path):
        if name in path:
            sys.exit("check_includes: a cycle of layers: " + " -> ".join(path + [name]))
        if name not in closed:
            closed[name] = {name}.union(*[visit(other, path + [name]) for other in layers[name][1]])
        return closed[name]

    for name in layers:
        visit(name, [])
    return closed


def layer_of(path, layers):
    """The layer whose folder holds path (a posix path from the root), the deepest if several do."""
    best = None
    for name, (folder, _) in layers.items():
        if path.startswith(folder + "/") and (best is None or len(folder) > len(layers[best][0])):
            best = name
    return best


def includes(file):
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


class Checker:
    def __init__(self, root):
        self.root = root
        self.layers = read_layers(root)
        self.closed = close(self.layers)
        self.problems = []
        self.files = 0

    def target_of(self, file, header):
        """The path from the root of the header of ours that the file means, or None."""
        beside = file.parent / header
        candidates = [beside, self.root / "src" / header, self.root / "include" / header]
        part = file.relative_to(self.root).parts[0]
        candidates += [self.root / folder / header for folder in (part, *sorted(ALSO.get(part, ())))]
        for candidate in candidates:
            if candidate.is_file():
                return candidate.resolve().relative_to(self.root).as_posix()
        return None

    def check_ours(self, where, part, target):
        """part: the layer's name, or the folder outside src."""
        target_layer = layer_of(target, self.layers)
        if target_layer is None:
            folder = target.split("/")[0]
            if folder != part and folder not in ALSO.get(part, ()):
                self.problems.append(f"{where}: {part} may not include {target}")
            return
        if target_layer == "api" and part in PARTS:
            return
        if part in PARTS:
            allowed = PARTS[part]
            if allowed is None or target_layer in allowed:
                return
        elif target_layer in self.closed[part]:
            return
        self.problems.append(
            f"{where}: {part} may not include {target_layer} ({target}); see cmake/layers.cmake")

    def check_foreign(self, where, part, header):
        if part == "api":
            if header not in STANDARD_C and not re.fullmatch(r"[a-z_]+", header):
                self.problems.append(
                    f"{where}: a public header includes only the standard library, not <{header}>")
            return
        for prefix, parts in THIRD_PARTY.items():
            if header.startswith(prefix) and part not in parts:
                who = ", ".join(sorted(parts)) or "tests"
                self.problems.append(f"{where}: <{header}> belongs to {who} only, not to {part}")

    def check_file(self, file):
        path = file.relative_to(self.root).as_posix()
        part = layer_of(path, self.layers) or path.split("/")[0]
        if part in ("src", "include"):
            self.problems.append(f"{path}: lies in no layer of cmake/layers.cmake")
            return
        self.files += 1
        for number, quoted, angled in includes(file):
            where = f"{path}:{number}"
            header = quoted or angled
            target = self.target_of(file, header)
            if target is not None:
                self.check_ours(where, part, target)
            elif quoted is not None:
                self.problems.append(f'{where}: "{header}" is no file of ours')
            else:
                self.check_foreign(where, part, header)

    def run(self):
        for folder in FOLDERS:
            for file in sorted((self.root / folder).rglob("*")):
                if file.suffix in SUFFIXES and file.is_file():
                    self.check_file(file)
        return self.problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    checker = Checker(root)
    problems = checker.run()
    for problem in problems:
        print(problem)
    print(f"check_includes: {checker.files} files, {len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
