#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""graph_oracle.py KASANE GRAPH RANKS FOLDER: kernels on Debian's packages, and on the files under FOLDER
(which has base/result.h) by what they include, against NetworkX. The graphs are read by code of this file
alone."""
import collections
import json
import os
import re
import subprocess
import sys

import networkx

kasane, graph, ranks, folder = sys.argv[1:]
bad = 0


def result(*arguments):
    """What the application says of its result."""
    command = [kasane, "run", "-n", ranks, "--", graph, *arguments, "--json", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    report = json.loads(text[text.index("{"):])
    assert report["verified"], arguments
    return report["result"]


def expect(what, found, right):
    global bad
    if found != right:
        print(f"FAILED: {what}: {found}, but NetworkX has {right}")
        bad += 1


def triangles(graph):
    """Found at their vertex of least degree. networkx.triangles takes minutes where one vertex has 30000
    neighbours; for small graphs both have to agree."""
    place = {v: i for i, v in enumerate(sorted(graph, key=graph.degree))}
    after = {v: {w for w in graph[v] if place[w] > place[v]} for v in graph}
    found = sum(len(after[v] & after[w]) for v in graph for w in after[v])
    if len(graph) < 2000:
        expect("triangles by NetworkX", found, sum(networkx.triangles(graph).values()) // 3)
    return found


def compare(name, source, directed, root):
    """directed: a DiGraph from what needs to what is needed."""
    both = directed.to_undirected()
    found = result("bfs", *source, "--directed", "--reverse", "--root", root, "--distances")
    lengths = networkx.single_source_shortest_path_length(directed.reverse(copy=False), root)
    counts = collections.Counter(lengths.values())
    for distance, count in counts.items():
        expect(f"{name}, {distance} from {root}", found[f"distance_{distance}"], count)
    expect(f"{name}, vertices", found["vertices"], len(directed))
    expect(f"{name}, edges", found["edges"], directed.number_of_edges())
    expect(f"{name}, not reached from {root}", found["not_reached"], len(directed) - len(lengths))
    way = found["way"].split(", ")
    expect(f"{name}, the way's length", len(way) - 1, max(counts))
    expect(f"{name}, the way", all(directed.has_edge(a, b) for a, b in zip(way, way[1:])), True)
    expect(f"{name}, components", result("cc", *source)["components"],
           networkx.number_connected_components(both))
    expect(f"{name}, triangles", result("tc", *source)["triangles"], triangles(both))
    reached = networkx.single_source_shortest_path_length(both, root)
    expect(f"{name}, longest", result("sssp", *source, "--root", root)["longest"], max(reached.values()))
    print(f"{name}: {len(directed)} vertices, {directed.number_of_edges()} edges, compared")


def packages():
    text = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True).stdout
    edges = networkx.DiGraph()
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", paragraph, re.M))
        if "Package" not in fields:
            continue
        edges.add_node(fields["Package"].strip())
        for field in ("Depends", "Pre-Depends"):
            for word in re.split(r"[,|]", fields.get(field, "")):
                name = re.match(r"\s*([^\s(:\[]+)", word)
                if name:
                    edges.add_edge(fields["Package"].strip(), name.group(1))
    edges.remove_edges_from(list(networkx.selfloop_edges(edges)))
    return edges


def includes():
    """Of files whose quoted includes lie beside them, under FOLDER, or nowhere: no others are here."""
    files = {os.path.relpath(os.path.join(at, f), folder) for at, _, names in os.walk(folder)
             for f in names if re.search(r"\.(c|cc|cpp|cxx|h|hh|hpp|hxx|inc|inl|ipp|ixx)$", f)}
    edges = networkx.DiGraph()
    edges.add_nodes_from(files)
    for f in files:
        with open(os.path.join(folder, f), encoding="utf-8") as lines:
            for line in lines:
                name = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
                if not name:
                    continue
                beside = os.path.normpath(os.path.join(os.path.dirname(f), name.group(2)))
                ends = [p for p in files if p.endswith("/" + name.group(2))]
                ends.sort(key=lambda p: (len(p), p))
                places = [beside] * (name.group(1) == '"') + [name.group(2)] + ends
                to = next((p for p in places if p in files), None)
                if to is not None and to != f:
                    edges.add_edge(f, to)
    return edges


compare("includes", ["--includes", folder], includes(), "base/result.h")
if subprocess.run("apt-cache dumpavail | grep -q '^Package: libc6$'", shell=True).returncode == 0:
    compare("packages", ["--debian"], packages(), "libc6")
else:
    print("packages: apt's lists are empty here")
sys.exit(bad != 0)
