#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code blocks of README.md and the guide: each ```cpp and ```c compiles. A program is compiled as it
is; a part of one becomes a function, whose parameters are what its context (CONTEXTS) declares. An ellipsis
in the place of code is nothing. ```python blocks are compiled by Python.

Usage: blocks.py SOURCE-FOLDER C++-COMPILER C-COMPILER FLAGS…   (those of programs of Kasane's)
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(cpp|c|python)\n(.*?)^```", re.M | re.S)
# What names a part of a program may use. By document, and a word of the block.
CONTEXTS = {
    ("arrays.md", "kasane::gemm"): "std::size_t n, const double* values",
    ("arrays.md", "a.accumulate(patch"):
        "kasane::array<double, 2>& a, kasane::array<long, 1>& counter, kasane::box<2> patch, double* p,"
        "kasane::leading<2> ld, double alpha, std::vector<std::array<std::size_t, 2>> indices,"
        "std::vector<double>& out, const std::vector<double>& values",
    ("arrays.md", "update_ghosts"): "kasane::array<double, 2>& a, kasane::array<double, 2>& b",
    ("arrays.md", "kasane_attach"): "int argc, char** argv, std::size_t n, kasane::box<2> patch, double* p",
    ("communication.md", "comm/launch"): None,   # includes alone, of the source tree
    ("containers.md", "counts.add"): "std::uint64_t key",
    ("containers.md", "found.push_back"): "std::uint64_t x",
    ("containers.md", "try_pop_front"): "kasane_guide::Task t, kasane_guide::Task u",
    ("containers.md", "map.insert"):
        "kasane_guide::Node* node, std::uint64_t key,"
        "kasane::unordered_map<std::uint64_t, kasane_guide::Node*>& map",
    ("numa.md", "placement::numa"): "std::size_t n, void* p, std::size_t bytes",
    ("programming.md", "kasane::transform("): "double* x, double* y, std::size_t n,"
                                              "std::vector<std::string>& names",
    ("programming.md", "kasane::put(x + 1000"):
        "kasane::unique_array<double>& array, const double* values, kasane::global_ptr<long> counter,"
        "double* partial, std::size_t n, kasane::global_ptr<double> y, double* column, std::size_t rows,"
        "std::size_t columns, double* buffer, void (*compute)(), std::vector<std::size_t> mine",
    ("programming.md", "post_group g"):
        "std::map<std::uint64_t, std::uint64_t>& words, std::uint32_t (*rank_of)(std::uint64_t),"
        "kasane_guide::Table* table",
    ("programming.md", "kasane::team("):
        "std::size_t n, int steps, void (*step)(std::size_t, std::size_t), std::size_t mine, std::size_t end",
    ("programming.md", "kasane::write_only"): "double* source, double* target, std::size_t n,"
                                              "double (*f)(double)",
    ("programming.md", "describe_checkpoint"):
        "kasane::unique_array<double>& grid, std::size_t n, std::uint64_t step, std::uint64_t steps,"
        "void (*advance)(double*)",
    ("programming.md", "::read(fd"): "int fd, std::byte* p, std::size_t bytes",
    ("tutorial.md", "parallel_reduce"):
        "std::size_t n, std::size_t parts, std::size_t (*of_part)(std::size_t)",
}
BEFORE = """
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <kasane/algorithm.hpp>
#include <kasane/array.hpp>
#include <kasane/array_gemm.hpp>
#include <kasane/checkpoint.hpp>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/global_ptr.hpp>
#include <kasane/kasane.h>
#include <kasane/kasane.hpp>
#include <kasane/numa.hpp>
#include <kasane/team.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>
namespace kasane_guide {
struct Task { int number; };
struct Node { Node* next; };
struct Table {};
}
using kasane_guide::Task;
inline void add(kasane_guide::Table*, std::uint64_t, std::uint64_t) {}
inline void count(std::size_t) {}
inline int MPI_Init(int*, char***) { return 0; }
"""


def without_ellipses(text):
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"\{ *… *\}", "{}", text)
    text = re.sub(r"= *…;", "= {};", text)
    return re.sub(r"…", ";", text)


def blocks(source):
    for document in [source / "README.md", *sorted((source / "docs/guide").glob("*.md"))]:
        text = document.read_text()
        for found in BLOCK.finditer(text):
            yield document.name, text[:found.start()].count("\n") + 2, found.group(1), found.group(2)


def context_of(document, text):
    for (name, word), context in CONTEXTS.items():
        if name == document and word in text:
            return context
    return ""


def main():
    source, cxx, cc, flags = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    compilers = {"cpp": [cxx, "-std=c++20"], "c": [cc, "-std=c11", "-D_GNU_SOURCE"]}
    parts, wrong, count = BEFORE, [], 0
    with tempfile.TemporaryDirectory() as folder:

        def compile_it(where, language, text):
            file = pathlib.Path(folder) / f"block.{language}"
            file.write_text(text)
            done = subprocess.run([*compilers[language], *flags, "-fsyntax-only", str(file)],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                wrong.append(f"{where}: does not compile:\n{done.stderr[:4000]}")

        for document, line, language, text in blocks(source):
            count += 1
            where = f"{document}:{line}"
            if language == "python":
                compile(text, where, "exec")
            elif re.search(r"\bmain\(", text):
                if "mpi.h" not in text:   # tests/multi/attach has that one
                    compile_it(where, language, without_ellipses(text))
            elif (context := context_of(document, text)) is not None:
                body = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#include"))
                body = f'#line {line} "{document}"\n{without_ellipses(body)}'
                outside = body.lstrip().split("\n")[1].startswith(("struct", "template"))
                parts += body if outside else f"void block_{count}({context}) {{\n{body}}}\n"
        compile_it("the parts of programs", "cpp", parts)
    print("\n".join(wrong))
    print(f"blocks: {count} blocks, {len(wrong)} wrong")
    return 1 if wrong or count < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
