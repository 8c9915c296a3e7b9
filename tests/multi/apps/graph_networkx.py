#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All six kernels of graph against NetworkX, vertex by vertex: on which file of this project includes which,
and on which Debian package of this system needs which.

Usage: graph_networkx.py KASANE GRAPH RANKS SOURCES
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

try:
    import networkx
    from networkx.algorithms.link_analysis import pagerank_alg
except ImportError:
    print("skipped: there is no NetworkX (Debian: python3-networkx)")
    sys.exit(77)

kasane, graph, ranks, sources = sys.argv[1:]
FOLDERS = ("include", "src", "apps", "bench", "tools", "examples")
DPKG_STATUS = pathlib.Path("/var/lib/dpkg/status")


def weight(*ends):
    """Below 10 and the same in each run; 0 for some."""
    return zlib.crc32(" ".join(ends).encode()) % 10


def includes():
    root = pathlib.Path(sources)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".cpp", ".c"):
                for name in re.findall(r'^#include ["<](.+?)[">]', path.read_text(), re.M):
                    yield str(path.relative_to(root)), name


def packages():
    name = None
    for line in DPKG_STATUS.read_text().splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith(("Depends: ", "Pre-Depends: ")):
            for other in re.split("[,|]", line.split(": ", 1)[1]):
                yield name, other.split()[0].split(":")[0]


class Kernels:
    """What graph says of a file of names, and NetworkX of the same edges."""

    def __init__(self, folder, edges, directed):
        self.directed = directed
        self.file, self.result = folder / "edges.names", folder / "result"
        self.file.write_text("".join(f"{a} {b} {weight(a, b)}\n" for a, b in edges))
        self.names = list(dict.fromkeys(name for edge in edges for name in edge))
        self.graph = networkx.DiGraph() if directed else networkx.Graph()
        self.graph.add_nodes_from(self.names)
        for a, b in edges:
            if a != b:
                least = min(weight(a, b), self.graph.get_edge_data(a, b, {"w": 10})["w"])
                self.graph.add_edge(a, b, w=least)
        # Leads to many: to most others directly.
        self.root = max(self.names, key=lambda v: len(self.graph[v]))

    def run(self, kernel, *arguments):
        flags = ["--directed"] if self.directed else []
        done = subprocess.run([kasane, "run", "-n", ranks, "--", graph, kernel, str(self.file), *flags,
                               *arguments], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and "verified" in done.stdout, done
        return done.stdout

    def of(self, kernel, *arguments):
        """The value of each vertex."""
        self.run(kernel, "--result", str(self.result), *arguments)
        rows = [line.split(" ") for line in self.result.read_text().splitlines()]
        assert all(len(row) == 2 for row in rows) and len({row[0] for row in rows}) == len(rows)
        return dict(rows)

    def from_root(self):
        return "--root", self.root

    def bfs(self):
        parents = self.of("bfs", *self.from_root())

        def level(v):
            steps = 0
            while v != self.root:
                assert self.graph.has_edge(parents[v], v), (parents[v], v)
                v, steps = parents[v], steps + 1
            return steps
        expected = networkx.single_source_shortest_path_length(self.graph, self.root)
        assert {v: level(v) for v in parents} == dict(expected)

    def sssp(self):
        lengths = self.of("sssp", *self.from_root())
        expected = networkx.single_source_dijkstra_path_length(self.graph, self.root, weight="w")
        assert {v: int(length) for v, length in lengths.items()} == dict(expected)

    def cc(self):
        components = {}
        for v, label in self.of("cc").items():
            components.setdefault(label, set()).add(v)
        find = networkx.weakly_connected_components if self.directed else networkx.connected_components
        assert sorted(map(sorted, components.values())) == sorted(map(sorted, find(self.graph)))

    def pr(self):
        scores = {v: float(score) for v, score in self.of("pr").items()}
        expected = pagerank_alg._pagerank_python(self.graph, weight=None, tol=1e-10, max_iter=1000)
        assert scores.keys() == expected.keys()
        assert sum(abs(scores[v] - expected[v]) for v in scores) < 1e-3

    def tc(self):
        if self.directed:
            return
        assert f"triangles: {sum(networkx.triangles(self.graph).values()) // 3}\n" in self.run("tc")

    def bc(self):
        scores = {v: float(score) for v, score in self.of("bc", *self.from_root()).items()}
        expected = networkx.betweenness_centrality_subset(self.graph, [self.root], self.names)
        twice = 1 if self.directed else 2  # NetworkX halves what it finds in a graph without directions
        assert scores.keys() == expected.keys()
        assert all(abs(scores[v] - twice * expected[v]) <= 1e-6 * (1 + scores[v]) for v in scores)


def check(name, edges):
    edges = list(edges)
    assert len(edges) > 500, (name, len(edges))
    for directed in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            kernels = Kernels(pathlib.Path(folder), edges, directed)
            for kernel in ("bfs", "sssp", "cc", "pr", "tc", "bc"):
                getattr(kernels, kernel)()
            print(f"{name}, {'directed' if directed else 'both ways'}: {len(kernels.names)} vertices, "
                  f"{kernels.graph.number_of_edges()} edges, from {kernels.root}")


check("includes", includes())
if DPKG_STATUS.exists():
    check("packages", packages())
