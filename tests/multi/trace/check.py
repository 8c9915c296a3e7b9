# SPDX-License-Identifier: Apache-2.0
"""check.py TRACE RANKS: checks that viewers can read the trace, and that the trace has all the ranks and what
cilksort on several ranks must do."""
import json
import sys

path, ranks = sys.argv[1], int(sys.argv[2])
with open(path, encoding="utf-8") as file:
    events = json.load(file)["traceEvents"]

names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
assert names == {f"rank {r}" for r in range(ranks)}, names
spans = [e for e in events if e["ph"] == "X"]
assert {e["pid"] for e in spans} == set(range(ranks)), "a rank wrote nothing"
for e in spans:
    assert e["ts"] >= 0 and e["dur"] >= 0, e
kinds = {e["name"] for e in spans}
on_several = {"idle", "steal from a rank", "load fault", "store fault", "fetch", "put changes", "release",
              "acquire", "edge from another rank"}
wanted = {"idle"} if ranks == 1 else on_several
assert wanted <= kinds, wanted - kinds
assert all(e["args"]["bytes"] % 4096 == 0 and e["args"]["bytes"] > 0 for e in spans if e["name"] == "fetch")
assert all(e["args"]["address"].startswith("0x") for e in spans if e["name"].endswith("fault"))
# A fetch is a part of a fault or a view of the same thread, so it lies inside one.
if ranks > 1:
    for fetch in [e for e in spans if e["name"] == "fetch"][:20]:
        around = [e for e in spans if (e["pid"], e["tid"]) == (fetch["pid"], fetch["tid"])
                  and (e["name"].endswith("fault") or e["name"] == "view")
                  and e["ts"] <= fetch["ts"] and e["ts"] + e["dur"] >= fetch["ts"] + fetch["dur"]]
        assert around, fetch
