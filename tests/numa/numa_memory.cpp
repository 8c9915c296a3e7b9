// SPDX-License-Identifier: Apache-2.0
// Memory of NUMA nodes: each placement gives what it says, also in memory that had another policy before, and
// free leaves none. On a machine of one node it checks what holds there. Ends with status 0.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <kasane/kasane.hpp>
#include <kasane/numa.hpp>
#include <kasane/team.hpp>
#include <string>
#include <vector>

namespace numa = kasane::numa;
using kasane::placement;

namespace {

constexpr std::size_t kOsPage = 4096, kPage = kasane::page_default, kBytes = 64 * kPage;

int failures = 0;

void expect(bool good, const std::string& what) {
  std::printf("rank %u: %s: %s\n", kasane::rank(), good ? "ok" : "FAILED", what.c_str());
  if (!good) ++failures;
}

std::string text(const numa::pages& pages) {
  std::string all = "pages on";
  for (const std::uint64_t n : pages.on) all += " " + std::to_string(n);
  return all + ", absent " + std::to_string(pages.absent) + ", misplaced " + std::to_string(pages.misplaced);
}

void touch(void* p, std::size_t bytes, unsigned char with = 1) {
  for (std::size_t i = 0; i < bytes; i += kOsPage) static_cast<unsigned char*>(p)[i] = with;
}

/// All pages lie on `node`, but for one in 16, which the kernel may have had ready.
void expect_on(std::uint32_t node, const void* p, std::size_t bytes, const std::string& what) {
  const numa::pages pages = numa::where(p, bytes);
  const std::uint64_t all = bytes / kOsPage;
  expect(pages.on.size() > node && pages.on[node] + all / 16 >= all, what + ": " + text(pages));
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

bool has_cores(std::uint32_t node) {
  std::ifstream list("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  std::string cores;
  return !std::getline(list, cores) || !cores.empty();
}

void refuses(int code, const std::function<void()>& call, const std::string& what) {
  try {
    call();
    expect(false, what + ": nothing was thrown");
  } catch (const kasane::error& e) {
    expect(e.code() == code, what + ": " + e.what());
  } catch (const kasane::out_of_memory& e) {
    expect(code == ENOMEM, what + ": " + e.what());
  }
}

void each_node() {
  for (const std::uint32_t node : numa::nodes()) {
    void* const p = kasane::allocate(kBytes, 16, placement::numa(node));
    touch(p, kBytes);
    expect_on(node, p, kBytes, "numa(" + std::to_string(node) + ")");
    expect(numa::where(p, kBytes).misplaced == 0, "none is misplaced");
    void* const behind = kasane::allocate(kPage, 16, placement::numa(node));  // so that it cannot grow there
    void* const larger = kasane::reallocate(p, 3 * kBytes);
    touch(larger, 3 * kBytes);
    expect_on(node, larger, 3 * kBytes, "made larger, numa(" + std::to_string(node) + ")");
    void* const small = kasane::reallocate(larger, 100);
    const auto pages = numa::where(small, 100);
    expect(small != larger && pages.on[node] == 1, "made small: " + text(pages));
    kasane::deallocate(small);
    kasane::deallocate(behind);
  }
}

/// What was allocated on another node before, and freed, does not matter.
void reused_memory() {
  const auto nodes = numa::nodes();
  for (int round = 0; round < 3; ++round) {
    for (const std::uint32_t node : nodes) {
      void* const p = kasane::allocate(kBytes, 16, placement::numa(node));
      touch(p, kBytes);
      expect_on(node, p, kBytes, "numa again, round " + std::to_string(round));
      kasane::deallocate(p);
      void* const local = kasane::allocate(kBytes);
      touch(local, kBytes);
      expect(numa::where(local, kBytes).misplaced == 0, "local memory has no policy");
      kasane::deallocate(local);
    }
  }
}

/// Local memory that is touched for the first time lies where its toucher runs, also after memory of other
/// nodes was freed.
void free_leaves_nothing() {
  std::vector<void*> all;
  const auto nodes = numa::nodes();
  for (int i = 0; i < 8; ++i) {
    all.push_back(
        kasane::allocate(kBytes, 16, placement::numa(nodes[static_cast<std::size_t>(i) % nodes.size()])));
    touch(all.back(), kBytes);
  }
  for (void* p : all) kasane::deallocate(p);
  constexpr std::size_t kMore = 4 * kBytes;  // than was ever allocated
  void* const p = kasane::allocate(kMore);
  std::uint64_t here = 0;
  for (std::size_t i = 0; i < kMore; i += kOsPage) {
    touch(static_cast<char*>(p) + i, 1);
    const auto pages = numa::where(static_cast<char*>(p) + i, 1);
    const std::uint32_t node = numa::here();
    if (node < pages.on.size() && pages.on[node] != 0) ++here;
  }
  expect(here + kMore / kOsPage / 8 >= kMore / kOsPage, "local memory after free: " + std::to_string(here) +
                                                            " of " + std::to_string(kMore / kOsPage) +
                                                            " pages are local");
  kasane::deallocate(p);
}

void sets_of_nodes() {
  const auto nodes = numa::nodes();
  const std::size_t n = nodes.size();
  void* const p = kasane::allocate(kBytes, 16, placement::numa_interleave());
  touch(p, kBytes);
  const numa::pages pages = numa::where(p, kBytes);
  for (const std::uint32_t node : nodes)
    expect(pages.on[node] * n * 4 >= kBytes / kOsPage * 3, "interleaved: " + text(pages));
  kasane::deallocate(p);
  void* const b = kasane::allocate(kBytes, 16, placement::numa_blocks());
  touch(b, kBytes);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t first = 64 * i / n * kPage, last = 64 * (i + 1) / n * kPage;
    expect_on(nodes[i], static_cast<char*>(b) + first, last - first, "block " + std::to_string(i));
  }
  kasane::deallocate(b);
  try {
    void* const w = kasane::allocate(kBytes, 16, placement::numa_weighted());
    touch(w, kBytes);
    expect(numa::where(w, kBytes).misplaced == 0, "weighted");
    kasane::deallocate(w);
  } catch (const kasane::error& e) {
    expect(std::strstr(e.what(), "Linux 6.9") != nullptr, std::string("weighted is refused: ") + e.what());
  }
}

/// Contents stay; pages move, and come back; the policy ends with the memory.
void bound_later() {
  for (const std::uint32_t node : numa::nodes()) {
    auto* const p = static_cast<unsigned char*>(kasane::allocate(kBytes));
    for (std::size_t i = 0; i < kBytes; ++i) p[i] = static_cast<unsigned char>(i * 7 >> 3);
    numa::bind(p, kBytes, placement::numa(node));
    bool same = true;
    for (std::size_t i = 0; i < kBytes; ++i) same = same && p[i] == static_cast<unsigned char>(i * 7 >> 3);
    expect(same, "bytes are the same after bind");
    expect_on(node, p, kBytes, "bound to " + std::to_string(node));
    kasane::deallocate(p);
    void* const q = kasane::allocate(kBytes);
    touch(q, kBytes);
    const numa::pages pages = numa::where(q, kBytes);
    expect(pages.misplaced == 0, "after free: " + text(pages));
    expect(pages.on[node] == 0 || has_cores(node), "nothing stays where it was bound");
    kasane::deallocate(q);
  }
}

/// Bound while a thread changes it.
void bound_under_load() {
  const auto nodes = numa::nodes();
  auto* const p = static_cast<std::uint64_t*>(kasane::allocate(kBytes));
  constexpr std::size_t kWords = kBytes / 8;
  std::fill(p, p + kWords, 0);
  constexpr std::uint64_t kRounds = 40;
  kasane::parallel_invoke(
      [=] {
        for (std::uint64_t round = 0; round < kRounds; ++round)
          for (std::size_t i = 0; i < kWords; i += 8) ++p[i];
      },
      [=, &nodes] {
        for (int i = 0; i < 12; ++i) {
          if (kasane::where(p) != kasane::rank()) break;
          try {
            numa::bind(p, kBytes, placement::numa(nodes[static_cast<std::size_t>(i) % nodes.size()]));
          } catch (const kasane::error&) {
            break;  // the thread has moved to another rank
          }
        }
      });
  bool right = true;
  for (std::size_t i = 0; i < kWords; i += 8) right = right && p[i] == kRounds;
  expect(right, "no change is lost while pages move");
  kasane::deallocate(p);
}

void small_ones_cost_no_mappings() {
  const auto nodes = numa::nodes();
  std::vector<void*> all;
  for (const std::uint32_t node : nodes) all.push_back(kasane::allocate(100, 16, placement::numa(node)));
  const std::size_t before = mappings();
  for (std::size_t i = 0; i < 1000; ++i) {
    all.push_back(kasane::allocate(3000, 16, placement::numa(nodes[i % nodes.size()])));
    touch(all.back(), 3000);
  }
  expect(mappings() < before + 100, "1000 small ones: " + std::to_string(mappings() - before) + " mappings");
  for (void* p : all) kasane::deallocate(p);
}

void errors() {
  refuses(EINVAL, [] { (void)kasane::allocate(8, 16, placement::numa(900)); }, "a node that is absent");
  refuses(
      EINVAL, [] { (void)kasane::allocate(8, 16, placement::numa_interleave(1ull << 60)); }, "an absent set");
  refuses(
      EINVAL, [] { (void)kasane::allocate(8, 16, placement::numa_blocks()); }, "blocks of less than a page");
  refuses(
      EINVAL, [] { (void)kasane::allocate(8, 16, placement::numa(0).in_pages(kasane::page_large)); },
      "other pages");
  void* const p = kasane::allocate(kBytes);
  refuses(EINVAL, [p] { numa::bind(p, 100, placement::numa(0)); }, "less than a page");
  refuses(EINVAL, [p] { numa::bind(p, kBytes, placement::block); }, "no policy");
  int on_stack = 0;
  refuses(EINVAL, [&on_stack] { (void)numa::where(&on_stack, 4); }, "memory that was not allocated");
  kasane::deallocate(p);
  void* const s = kasane::allocate(kBytes, 16, placement::numa(numa::nodes().back()).strict());
  expect(numa::where(s, kBytes).misplaced == 0, "strict");
  kasane::deallocate(s);
  expect(numa::distance(numa::here(), numa::here()) == 10, "the distance to itself is 10");
}

/// More than a node has: others help out, or strict refuses. Argument: MiB of a node.
void full_node(std::uint32_t node, std::size_t mib) {
  const std::size_t bytes = mib << 20;
  refuses(
      ENOMEM, [=] { (void)kasane::allocate(bytes, 16, placement::numa(node).strict()); },
      "a full node, strict");
  void* const p = kasane::allocate(bytes, 16, placement::numa(node));
  touch(p, bytes);
  const numa::pages pages = numa::where(p, bytes);
  expect(pages.misplaced > 0 && pages.absent == 0, "a full node: " + text(pages));
  refuses(ENOMEM, [=] { numa::bind(p, bytes, placement::numa(node).strict()); }, "to a full node, strict");
  bool same = true;
  for (std::size_t i = 0; i < bytes; i += kOsPage) same = same && static_cast<unsigned char*>(p)[i] == 1;
  expect(same, "bytes are the same after what did not fit has stayed");
  kasane::deallocate(p);
}

/// Memory whose first toucher is another rank's put lies where its owner said.
void peers_touch() {
  const std::uint32_t node = numa::nodes().back();
  void* const p = kasane::allocate(kBytes, 16, placement::numa(node).fixed());
  const std::uint32_t peer = (kasane::rank() + 1) % kasane::ranks(), owner = kasane::rank();
  kasane::async(kasane::at{peer}, [p] {
    const std::vector<unsigned char> bytes(kBytes, 7);
    kasane::put(static_cast<unsigned char*>(p), bytes.data(), bytes.size());
    return 0;
  }).get();
  kasane::async(kasane::at{owner}, [p, node] {
    expect_on(node, p, kBytes, "touched by a peer's put");
    return 0;
  }).get();
  kasane::deallocate(p);
}

/// Pages that only a peer has touched are in none of this rank's page tables; bind moves them all the same.
void peers_touched_then_bound() {
  const std::uint32_t owner = kasane::rank(), peer = (owner + 1) % kasane::ranks();
  std::vector<void*> all;  // freed last: memory that is used again has been seen
  for (const std::uint32_t node : numa::nodes()) {
    void* const p = kasane::async(kasane::at{peer}, [owner] {
                      void* const fresh = kasane::allocate(kBytes, 16, placement::on(owner).fixed());
                      const std::vector<unsigned char> bytes(kBytes, 7);
                      kasane::put(static_cast<unsigned char*>(fresh), bytes.data(), bytes.size());
                      return fresh;
                    }).get();
    all.push_back(p);
    kasane::async(kasane::at{owner}, [p, node] {
      numa::bind(p, kBytes, placement::numa(node));
      expect_on(node, p, kBytes, "touched by a peer's put, then bound");
      expect(numa::where(p, kBytes).misplaced == 0, "none is misplaced");
      std::vector<unsigned char> bytes(kBytes);
      kasane::get(bytes.data(), static_cast<const unsigned char*>(p), bytes.size());
      expect(std::count(bytes.begin(), bytes.end(), 7) == static_cast<std::ptrdiff_t>(kBytes),
             "its bytes are the same");
      return 0;
    }).get();
  }
  for (void* p : all) kasane::deallocate(p);
}

/// Memory that two ranks have bound, the second after it had heard of the first, and that others free: no
/// policy is left.
void freed_by_peers() {
  const std::uint32_t node = numa::nodes().back(), ranks = kasane::ranks();
  std::array<void*, 2> bound{};
  for (std::uint32_t binder = 0; binder < 2; ++binder) {
    bound[binder] = kasane::async(kasane::at{binder}, [binder, node] {
                      void* const p = kasane::allocate(kBytes, 16, placement::on(binder).fixed());
                      touch(p, kBytes);
                      numa::bind(p, kBytes, placement::numa(node));
                      expect_on(node, p, kBytes, "bound by rank " + std::to_string(binder));
                      return p;
                    }).get();
  }
  for (std::uint32_t binder = 0; binder < 2; ++binder) {
    void* const was = bound[binder];
    kasane::async(kasane::at{ranks - 1 - binder}, [was] {
      const std::vector<unsigned char> bytes(kBytes, 7);  // so that this rank has mapped them
      kasane::put(static_cast<unsigned char*>(was), bytes.data(), bytes.size());
      kasane::deallocate(was);
      return 0;
    }).get();
    kasane::async(kasane::at{binder}, [binder, node, was] {
      void* const p = kasane::allocate(kBytes, 16, placement::on(binder).fixed());
      touch(p, kBytes);
      const numa::pages pages = numa::where(p, kBytes);
      expect(p == was, "the same memory is allocated again");
      expect(pages.on[node] == 0 || has_cores(node),
             "bound by rank " + std::to_string(binder) + ", freed by another: " + text(pages));
      kasane::deallocate(p);
      return 0;
    }).get();
  }
}

/// What came back from the spill file lies where it did before.
void spilled() {
  constexpr std::size_t kMany = 24u << 20;
  for (const std::uint32_t node : numa::nodes()) {
    auto* const p = static_cast<unsigned char*>(kasane::allocate(kMany, 16, placement::numa(node)));
    for (unsigned char round = 1; round <= 3; ++round)
      for (std::size_t i = 0; i < kMany; i += kOsPage)
        p[i] = static_cast<unsigned char>(p[i] * (round > 1) + 1);
    bool right = true;
    for (std::size_t i = 0; i < kMany; i += kOsPage) right = right && p[i] == 3;
    const numa::pages pages = numa::where(p, kMany);
    expect(right && pages.absent > 0, "some is spilled: " + text(pages));
    expect(pages.on[node] + pages.absent == kMany / kOsPage, "the rest is on " + std::to_string(node));
    kasane::deallocate(p);
  }
}

/// Of memory larger than DRAM, bound when some of it has left and some is retired, what is present moves.
void spilled_then_bound() {
  constexpr std::size_t kMany = 12u << 20;
  auto* const p = static_cast<unsigned char*>(kasane::allocate(kMany));
  touch(p, kMany, 5);
  for (const std::uint32_t node : numa::nodes()) {
    numa::bind(p, kMany, placement::numa(node));
    const numa::pages pages = numa::where(p, kMany);
    expect(pages.absent > 0 && pages.on[node] > 0 && pages.on[node] + pages.absent == kMany / kOsPage,
           "spilled, then bound: " + text(pages));
    bool right = true;
    for (std::size_t i = 0; i < kMany; i += kOsPage) right = right && p[i] == 5;
    expect(right, "its bytes are the same");
  }
  kasane::deallocate(p);
}

/// With --bind numa and a rank a node: rank n is on node n, and so is its memory.
void rank_is_node() {
  kasane::team([](kasane::member& me) {
    const std::uint32_t node = me.numa_node();
    expect(node == me.rank() && numa::here() == node, "a member is on node " + std::to_string(node));
    void* const p = kasane::allocate(kBytes);
    touch(p, kBytes);
    expect_on(me.rank(), p, kBytes, "memory of a rank that is bound");
    kasane::deallocate(p);
  });
}

/// Work for idle ranks; --stats says from where they stole it.
void steals() {
  const std::function<unsigned(unsigned)> count_leaves = [&](unsigned depth) -> unsigned {
    if (depth == 0) {
      unsigned sum = 0;
      for (unsigned i = 0; i < 20'000; ++i) {
        sum += i;
        asm volatile("" : "+r"(sum));  // so that it takes its time
      }
      return sum != 0;
    }
    unsigned a = 0, b = 0;
    kasane::parallel_invoke([&] { a = count_leaves(depth - 1); }, [&] { b = count_leaves(depth - 1); });
    return a + b;
  };
  expect(count_leaves(12) == 4096, "each leaf is counted once");
}

/// All pages are present, and on this node.
void expect_all_on(std::uint32_t node, const void* p, std::size_t bytes, const std::string& what) {
  const numa::pages pages = numa::where(p, bytes);
  expect(pages.on[node] == bytes / kOsPage && pages.misplaced == 0, what + ": " + text(pages));
}

/// Pages of an array of blocks lie right although the memory has had other blocks before.
void blocks_again() {
  const auto nodes = numa::nodes();
  for (const std::uint32_t without : nodes) {
    std::uint64_t set = 0;
    for (const std::uint32_t node : nodes)
      if (node != without || nodes.size() == 1) set |= std::uint64_t{1} << node;
    void* const p = kasane::allocate(kBytes, 16, placement::numa_blocks(set));
    touch(p, kBytes);
    const numa::pages pages = numa::where(p, kBytes);
    expect(pages.misplaced == 0, "blocks without node " + std::to_string(without) + ": " + text(pages));
    kasane::deallocate(p);
  }
}

/// Every page moves to each node while a thread stores to it and passes it to system calls, and in a view,
/// and no store is lost. For one rank with two workers.
void moves_in_use() {
  const auto nodes = numa::nodes();
  auto* const p = static_cast<std::uint64_t*>(kasane::allocate(kBytes));
  constexpr std::size_t kWords = kBytes / 8, kStep = kOsPage / 8;
  std::fill(p, p + kWords, 0);
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> rounds{0}, bad_calls{0};
  kasane::thread user([&, p] {
    const int file = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    while (!end.load()) {
      for (std::size_t i = 0; i < kWords; i += kStep) ++p[i];
      ++rounds;
      for (std::size_t i = 1; i < kWords; i += 16 * kStep)
        if (::read(file, p + i, kOsPage - 8) != static_cast<ssize_t>(kOsPage - 8)) ++bad_calls;
    }
    ::close(file);
  });
  while (rounds.load() == 0) kasane::this_thread::yield();
  for (int again = 0; again < 2; ++again) {
    for (const std::uint32_t node : nodes) {
      numa::bind(p, kBytes, placement::numa(node));
      expect_all_on(node, p, kBytes, "in use, bound to " + std::to_string(node));
    }
  }
  end = true;
  user.join();
  bool right = true;
  for (std::size_t i = 0; i < kWords; i += kStep) right = right && p[i] == rounds.load();
  expect(right && bad_calls.load() == 0,
         "no store is lost in " + std::to_string(rounds.load()) +
             " rounds, and no system call fails: " + std::to_string(bad_calls.load()));
  for (const std::uint32_t node : nodes) {
    const kasane::view view(p, kWords, kasane::read_write);
    numa::bind(p, kBytes, placement::numa(node));
    expect_all_on(node, p, kBytes, "in a view, bound to " + std::to_string(node));
    view[0] = node;
    expect(p[0] == node, "the view can still be stored to");
  }
  kasane::deallocate(p);
}

/// Pages of rank 0 that the other ranks have mapped, have copies of and go on using move to each node. For a
/// worker a rank.
void moves_shared() {
  constexpr std::size_t kWords = kBytes / 8, kStep = kOsPage / 8;
  constexpr std::uint64_t kRounds = 40;
  auto* const direct = static_cast<std::uint64_t*>(kasane::allocate(kBytes, 16, placement::on(0).fixed()));
  auto* const cached = static_cast<std::uint64_t*>(kasane::allocate(kBytes, 16, placement::on(0)));
  kasane::team([=](kasane::member& me) {
    const std::size_t mine = me.rank();  // the word of each page that this rank stores to
    std::uint64_t count = 0;
    const auto change_all = [&] {
      ++count;
      for (std::size_t i = mine; i < kWords; i += kStep) kasane::put(direct + i, &count, 1);
    };
    const auto all_are = [&](const std::uint64_t* p, std::size_t word, std::uint64_t value) {
      std::size_t right = 0;
      for (std::size_t i = word; i < kWords; i += kStep) right += p[i] == value ? 1 : 0;
      return right == kWords / kStep;
    };
    change_all();
    std::uint64_t stored = 0;
    for (const std::uint32_t node : numa::nodes()) {
      ++stored;
      if (me.rank() == 0) std::fill(cached, cached + kWords, stored);
      me.wait();
      expect(all_are(cached, mine, stored), "a rank reads what was stored");
      me.wait();
      if (me.rank() == 0) {
        numa::bind(direct, kBytes, placement::numa(node));
        expect_all_on(node, direct, kBytes, "put to by other ranks, bound to " + std::to_string(node));
        numa::bind(cached, kBytes, placement::numa(node));
        expect_all_on(node, cached, kBytes, "read by other ranks, bound to " + std::to_string(node));
        std::fill(cached, cached + kWords, ++stored);
      } else {
        ++stored;
      }
      me.wait();
      expect(all_are(cached, mine, stored), "a rank reads what was stored after the pages have moved");
      me.wait();
    }
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      if (me.rank() == 0 && round % 8 == 0)
        numa::bind(direct, kBytes, placement::numa(numa::nodes()[round / 8 % numa::nodes().size()]));
      change_all();
    }
    me.wait();
    if (me.rank() == 0) {
      for (std::size_t word = 0; word < kasane::ranks(); ++word)
        expect(all_are(direct, word, kRounds + 1), "no put is lost while pages move");
      for (const std::uint32_t node : numa::nodes()) {
        numa::bind(direct, kBytes, placement::numa(node));
        expect_all_on(node, direct, kBytes, "at rest again, bound to " + std::to_string(node));
      }
    }
    me.wait();
  });
  kasane::deallocate(direct);
  kasane::deallocate(cached);
}

/// Pages of rank 0 move all the time while it stores to them, releases, and the other ranks read what it
/// stored: a store to a page that has moved is seen by the next release. For two workers a rank.
void moves_released() {
  constexpr std::size_t kWords = kBytes / 8, kStep = kOsPage / 8;
  constexpr std::uint64_t kEpochs = 16;
  auto* const p = static_cast<std::uint64_t*>(kasane::allocate(kBytes, 16, placement::on(0)));
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> moves{0};
  kasane::thread mover(kasane::at{0}, [&, p] {
    const auto nodes = numa::nodes();
    while (!end.load()) {
      try {
        numa::bind(p, kBytes, placement::numa(nodes[moves.load() % nodes.size()]));
        ++moves;
      } catch (const kasane::error&) {
        kasane::this_thread::move_to(0);  // it was stolen
      }
      kasane::this_thread::yield();
    }
  });
  std::atomic<std::uint64_t> wrong{0};
  kasane::team([&, p](kasane::member& me) {
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      if (me.index() == 0)
        for (std::size_t i = epoch % kStep; i < kWords; i += kStep) p[i] = epoch;
      me.wait();
      std::uint64_t seen = 0;
      for (std::size_t i = epoch % kStep; i < kWords; i += kStep) seen += p[i] == epoch ? 1 : 0;
      if (seen != kWords / kStep) ++wrong;
      me.wait();
    }
  });
  end = true;
  mover.join();
  expect(wrong.load() == 0, "each rank has read what was stored in each epoch, in " +
                                std::to_string(moves.load()) + " moves: " + std::to_string(wrong.load()));
  expect(moves.load() > 1, "pages have moved");
  kasane::deallocate(p);
}

/// In a cpuset without node 2.
void forbidden() {
  refuses(EINVAL, [] { (void)kasane::allocate(8, 16, placement::numa(2)); }, "a forbidden node");
  expect(numa::nodes().size() == 2, "the other nodes may be used");
  each_node();
  sets_of_nodes();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  kasane::run([=] {
    if (what == "peers") {
      peers_touch();
      peers_touched_then_bound();
      freed_by_peers();
      return;
    }
    if (what == "spilled") return spilled();
    if (what == "spilled_then_bound") return spilled_then_bound();
    if (what == "rank_is_node") return rank_is_node();
    if (what == "steals") return steals();
    if (what == "forbidden") return forbidden();
    if (what == "in_use") return moves_in_use();
    if (what == "shared") return moves_shared();
    if (what == "released") return moves_released();
    if (argc > 2) {
      full_node(static_cast<std::uint32_t>(std::atoi(argv[1])), static_cast<std::size_t>(std::atol(argv[2])));
      return;
    }
    each_node();
    reused_memory();
    free_leaves_nothing();
    sets_of_nodes();
    blocks_again();
    bound_later();
    bound_under_load();
    small_ones_cost_no_mappings();
    if (kasane::ranks() > 1) freed_by_peers();
    errors();
  });
  std::printf("numa_memory: %s\n", failures == 0 ? "all right" : "FAILED");
  return failures == 0 ? 0 : 1;
}
