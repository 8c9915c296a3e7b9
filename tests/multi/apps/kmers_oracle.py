#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kmers should find in a FASTA file, computed otherwise: by strings and a dict.

Usage: kmers_oracle.py K FASTA                  prints the histogram
       kmers_oracle.py K FASTA UNITIGS LEAST    checks the unitigs of the k-mers that occur so often
"""
import collections
import sys


def sequences(path):
    parts = []
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith(">"):
                parts.append("")
            else:
                parts[-1] += line.strip().upper()
    return parts


def reverse(text):
    return text[::-1].translate(str.maketrans("ACGT", "TGCA"))


def canonical(text):
    return min(text, reverse(text))


def pieces(text, k):
    return (text[i:i + k] for i in range(len(text) - k + 1))


def count(parts, k):
    texts = (x for part in parts for x in pieces(part, k))
    return collections.Counter(canonical(x) for x in texts if set(x) <= set("ACGT"))


def check_unitigs(nodes, k, path):
    def successors(x):
        return [x[1:] + base for base in "ACGT" if canonical(x[1:] + base) in nodes]

    def next_of(x):
        """The node with which x is one path, or None."""
        after = successors(x)
        if len(after) != 1 or len(successors(reverse(after[0]))) != 1 or canonical(after[0]) == canonical(x):
            return None
        return after[0]

    found = collections.Counter()
    names = [line for line in open(path, encoding="ascii") if line.startswith(">")]
    texts = sequences(path)
    assert texts == sorted(texts), "the unitigs are not in order"
    for name, text in zip(names, texts):
        xs = list(pieces(text, k))
        found.update(canonical(x) for x in xs)
        for x, y in zip(xs, xs[1:]):
            assert next_of(x) == y, f"{x} and {y} are no path"
        if "circular" in name:
            assert next_of(xs[-1]) == xs[0], f"{text[:99]} is no circle"
        else:
            assert next_of(xs[-1]) is None and next_of(reverse(xs[0])) is None, f"{text[:99]} could be longer"
        assert f"LN:i:{len(text)} " in name
        mean = sum(nodes[canonical(x)] for x in xs) / len(xs)
        assert abs(float(name.split("km:f:")[1].split()[0]) - mean) < 0.06, name
    assert set(found) == set(nodes), "not every k-mer is in a unitig"
    assert set(found.values()) <= {1}, "a k-mer is in several unitigs"


def main():
    k = int(sys.argv[1])
    counts = count(sequences(sys.argv[2]), k)
    if len(sys.argv) == 3:
        for n, kmers in sorted(collections.Counter(min(n, 10001) for n in counts.values()).items()):
            print(n, kmers)
    else:
        least = int(sys.argv[4])
        check_unitigs({x: n for x, n in counts.items() if n >= least}, k, sys.argv[3])


main()
