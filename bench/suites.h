// SPDX-License-Identifier: Apache-2.0
// The suites of `kasane bench`, each a program kasane-bench-NAME. The kasane command lists them, and each
// says of itself what stands here.
#pragma once

namespace kasane::bench {

struct Suite {
  const char* name;
  const char* what;
};

inline constexpr Suite kSuites[] = {
    {"core", "What Kasane's core operations cost, beside their peers in the same run"},
    {"comm", "What one-sided operations and messages between two ranks cost, over every system that is here"},
    {"pingpong", "The multi-threaded PingPong between two ranks, over every system that is here"},
    {"collectives", "Latency of collectives between ranks of one host, beside the MPIs that are here"},
    {"alloc", "What allocating global memory costs, here and at another rank, beside glibc and mimalloc"},
    {"gas", "What direct access to global memory and moving a page cost, beside comm's read and messages"},
    {"spill", "Rates between frames and a spill file, beside fio and mmap"},
    {"eviction", "How well eviction policies choose, on traces of page numbers"},
    {"tier", "Programs on four times as much data as they may keep in DRAM, beside mmap, UMap and fio"},
    {"arrays", "What distributed arrays cost: gemm beside OpenBLAS, patches beside memcpy"},
    {"containers", "What operations of the containers cost, near, far and over TCP, beside other libraries'"},
    {"triad", "Bandwidth of STREAM's Triad over global memory, by placement and node, beside plain STREAM"},
    {"bfs", "Graph kernels on one file, beside GAPBS, the Graph500 reference and igraph"},
    {"ga",
     "Global Arrays programs on Kasane, in core and beyond DRAM, beside armci-mpi and the kernel's swap"},
    {"scale",
     "Where programs stop scaling and why: scripts of them on a simulated cluster of up to 1024 ranks"},
    {"network", "LogGP's parameters of what lies between two ranks, in a file for kasane bench scale"},
    {"stencil", "Flop/s of a 9-point stencil on N x N doubles, plain and with temporal blocking"},
};

}  // namespace kasane::bench
