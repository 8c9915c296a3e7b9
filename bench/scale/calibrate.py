#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kasane bench scale predicts for its scripts, beside the same scripts on ranks of this machine.

    bench/scale/calibrate.py build/release/bin/kasane [NETWORK:RANKS…]

NETWORK: shm, ucx, or tcp (two network namespaces; needs root and Open MPI). For each, kasane bench network
measures the parameters, the player runs the scripts nine times, and the simulator
predicts with these parameters and this machine's cores. Run it on a quiet machine.
"""
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

kasane = os.path.abspath(sys.argv[1])
helpers = os.path.join(os.path.dirname(kasane), "../lib/kasane")
cluster = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/multi/cluster/cluster.sh")
settings = dict(os.environ, KASANE_WORKERS="1", KASANE_DEBUG="relocate=off", KASANE_LOG="error")
folder = tempfile.TemporaryDirectory()
work = folder.name


def start(network, ranks):
    if network == "tcp":
        return ["bash", cluster, "openmpi", str(ranks // 2), "ucx"]
    return [kasane, "run", "-n", str(ranks), "--transport", network, "--"]


def measure(network, ranks):
    command = [*start(network, ranks), os.path.join(helpers, "kasane-stage-player"), "9"]
    said = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=True).stdout
    samples = collections.defaultdict(list)
    for line in said.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():  # a launcher may say something, too
            samples[words[0]].append(int(words[1]) / 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}


def link(network, path):
    subprocess.run([kasane, "bench", "network", "--out", path, "--start", " ".join(start(network, 2))],
                   env=dict(settings, KASANE_MAIN="all"), stdout=subprocess.DEVNULL, check=True)


def predict(network, ranks, path):
    parameters = json.load(open(path))
    parameters["cores"] = len(os.sched_getaffinity(0))
    parameters["ranks_per_host"] = {"shm": ranks, "ucx": 1, "tcp": ranks // 2}[network]
    with open(path + ".of", "w") as out:
        json.dump(parameters, out)
    rows = path + ".rows"
    subprocess.run([kasane, "bench", "scale", "--quick", "--ranks", str(ranks), "--network", path + ".of",
                    "--json", rows], stdout=subprocess.DEVNULL, check=True)
    return {row["case"]: row["ms"] for row in json.load(open(rows))}


for case in sys.argv[2:] or [f"{network}:{ranks}" for network in ("shm", "ucx", "tcp") for ranks in (2, 4)]:
    network, ranks = case.split(":")[0], int(case.split(":")[1])
    path = os.path.join(work, case)
    if network == "tcp":
        link("shm", path)  # between the two of a host
    link(network, path)
    print(case, open(path).read().replace("\n", " "), flush=True)
    measured = measure(network, ranks)
    predicted = predict(network, ranks, path)
    near = sum(abs(predicted[name] / ms - 1) <= 0.25 for name, ms in measured.items())
    print(f"{network}, {ranks} ranks: {near} of {len(measured)} within 25 %")
    for name, ms in measured.items():
        print(f"  {name:12} predicted {predicted[name]:9.3f} ms, measured {ms:9.3f}, "
              f"ratio {predicted[name] / ms:5.2f}")
