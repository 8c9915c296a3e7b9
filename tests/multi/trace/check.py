# SPDX-License-Identifier: Apache-2.0
"""check.py TRACE RANKS [beyond-dram]: checks that viewers can read the trace, and that it has all the ranks
and what cilksort on several ranks, or in less DRAM than its data take, must do.

What Perfetto warns of when it imports a file in the trace event format is what is looked for first: an event
that lacks what its kind needs, and complete events of one track that overlap without one being inside the
other (it moves them elsewhere and counts an error). As it does, times become nanoseconds by rounding, and
events of the same time keep the order of the file."""
import json
import sys

path, ranks, beyond_dram = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["beyond-dram"]
with open(path, encoding="utf-8") as file:
    trace = json.load(file)
assert set(trace) == {"traceEvents"}, set(trace)
events = trace["traceEvents"]

named = {"process_name": {}, "thread_name": {}, "process_sort_index": {}, "thread_sort_index": {}}
spans, times = [], {}
for e in events:
    assert isinstance(e["pid"], int) and isinstance(e["tid"], int) and isinstance(e["name"], str), e
    if e["ph"] == "M":
        key = e["pid"] if e["name"].startswith("process") else e["tid"]
        assert key not in named[e["name"]], f"{e} a second time"
        named[e["name"]][key] = e["args"]["sort_index" if e["name"].endswith("index") else "name"]
        continue
    assert e["ph"] == "X" and e["cat"], e
    assert e["ts"] >= 0 and e["dur"] >= 0, e
    assert e["tid"] in named["thread_name"] and e["tid"] in named["thread_sort_index"], e
    assert e["tid"] not in named["process_name"], f"{e} would be the main thread of a process"
    spans.append(e)
    times.setdefault(e["tid"], []).append((round(e["ts"] * 1000), round(e["dur"] * 1000), e))
for spans_of_track in times.values():
    assert len({e["pid"] for _, _, e in spans_of_track}) == 1
    open_until = []
    for begin, took, e in sorted(spans_of_track, key=lambda t: t[0]):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or begin + took <= open_until[-1], f"{e} overlaps another of its track"
        open_until.append(begin + took)

names = set(named["process_name"].values())
assert names == {f"rank {r}" for r in range(ranks)}, names
assert {e["pid"] for e in spans} == set(range(ranks)), "a rank wrote nothing"
kinds = {e["name"] for e in spans}
tracks = {name.split(": ")[1].split(" ")[0] for name in named["thread_name"].values()}
assert all(name.split(": ")[0].split(" ")[0] in ("worker", "service", "other", "faults", "pager")
           for name in named["thread_name"].values())
on_several = {"steal from a rank", "load fault", "store fault", "fetch", "put changes", "release", "acquire",
              "edge from another rank"}
if ranks > 1:
    assert on_several <= kinds, on_several - kinds
    assert {"faults", "fences", "steals"} <= tracks, tracks
assert "idle" in kinds and "idle" in tracks
if beyond_dram:
    assert {"write to SSD", "read from SSD"} <= kinds and "spills" in tracks, (kinds, tracks)
    # Each write is the pager's, and each read of a track follows the one before it.
    writers = {named["thread_name"][e["tid"]] for e in spans if e["name"] == "write to SSD"}
    assert all(name.startswith("pager: spills") for name in writers), writers
    assert all(e["args"]["bytes"] > 0 for e in spans if e["cat"] == "spills")
assert all(e["args"]["bytes"] % 4096 == 0 and e["args"]["bytes"] > 0 for e in spans if e["name"] == "fetch")
assert all(e["args"]["address"].startswith("0x") for e in spans if e["name"].endswith("fault"))
# A fetch is a part of a fault or a view of the same thread, so it lies inside one.
if ranks > 1 and not beyond_dram:
    for fetch in [e for e in spans if e["name"] == "fetch"][:20]:
        thread = named["thread_name"][fetch["tid"]].split(": ")[0]
        around = [e for e in spans if e["pid"] == fetch["pid"]
                  and named["thread_name"][e["tid"]].split(": ")[0] == thread
                  and (e["name"].endswith("fault") or e["name"] == "view")
                  and e["ts"] <= fetch["ts"] and e["ts"] + e["dur"] >= fetch["ts"] + fetch["dur"] - 0.0005]
        assert around, fetch
