// SPDX-License-Identifier: Apache-2.0
// Arrays in a program with a start and an MPI of its own: `attached CASE FOLDER`. Every rank makes the same
// operations; what is wrong at one ends the job. Built for each MPI, and without one (then it is one rank).
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/array.hpp>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "operations.h"

namespace kasane::test {
namespace {

void require(const std::string& wrong, const char* what) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "attached: rank %u: %s: %s\n", rank(), what, wrong.c_str());
  std::abort();
}
void require(bool right, const char* what) { require(std::string(right ? "" : "no"), what); }
void meet() { detail::check(kasane_ranks_barrier()); }

template <class F>
void for_seeds(unsigned seeds, const char* what, const F& f) {
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    Random random(seed);  // the same at all ranks
    require(f(random), (what + (" of seed " + std::to_string(seed))).c_str());
  }
}

/// Which error all ranks get, and part of its text.
template <class F>
void refused(int code, const char* part, const F& f) {
  try {
    f();
  } catch (const error& e) {
    if (e.code() != code || std::string(e.what()).find(part) == std::string::npos)
      require(std::to_string(e.code()) + ": " + e.what(), part);
    return;
  }
  require(std::string("nothing was thrown"), part);
}

// ---- cases -----------------------------------------------------------------------------------------------

void bulk_operations(const std::string& folder) {
  for_seeds(4, "bulk", bulk<double, 1>);
  for_seeds(4, "bulk", bulk<double, 2>);
  for_seeds(2, "bulk", bulk<std::int64_t, 3>);
  for_seeds(2, "bulk", bulk<std::complex<double>, 2>);
  for_seeds(5, "transpose", try_transpose);
  for_seeds(6, "ghosts", try_ghosts<2>);
  for_seeds(3, "ghosts", try_ghosts<3>);
  for_seeds(2, "stencil", try_stencil);
#ifdef KASANE_HAVE_BLAS
  for_seeds(4, "gemm", try_gemm<double>);
  for_seeds(2, "gemm", try_gemm<std::complex<float>>);
#endif
  for_seeds(3, "files", [&](Random& r) { return there_and_back<double, 2>(r, folder + "/attached.npy"); });
}

/// Each rank at another place of the array, at the same time.
void one_sided(const std::string&) {
  const std::size_t n = 64 * ranks(), me = rank(), next = (me + 1) % ranks();
  array<double, 2> a({n, 300}, tiles{40, 70});
  array<std::int64_t, 1> counter({5});
  a.fill(1);
  counter.fill(0);
  std::vector<double> rows(64 * 300), seen(64 * 300);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(me * rows.size() + i);
  a.put({{64 * me, 0}, {64 * me + 64, 300}}, rows.data());
  meet();
  a.get({{64 * next, 0}, {64 * next + 64, 300}}, seen.data());
  for (std::size_t i = 0; i < seen.size(); ++i)
    require(seen[i] == static_cast<double>(next * seen.size() + i), "get of the next rank's rows");
  meet();
  const std::vector<double> ones(n * 300, 1);
  const double before = a.sum();
  a.accumulate(a.all(), ones.data(), 300, 2);
  require(a.sum() == before + 2.0 * static_cast<double>(ranks() * n * 300), "accumulates of all ranks");
  for (int i = 0; i < 100; ++i) counter.fetch_add({3}, 1);
  meet();
  require(counter.get({3}) == 100 * static_cast<std::int64_t>(ranks()), "fetch_add of all ranks");
  const std::array<std::size_t, 2> indices[] = {{me, 3}, {n - 1 - me, 299}, {64 * next, 100 + me}};
  const double values[] = {-1.0, -2.0, -3.0 - static_cast<double>(me)};
  double read[3];
  a.scatter(indices, values);
  meet();
  a.gather(indices, read);
  for (int i = 0; i < 3; ++i) require(read[i] == values[i], "scatter and gather");
  meet();
}

/// Loads and stores of a rank's own tiles meet everybody's patches without a fence.
void local_tiles(const std::string&) {
  array<double, 2> a({50 * ranks(), 333}, tiles{13, 100});
  a.fill(-1);
  for (auto part : a.local())
    for (std::size_t i = 0; i < part.extent(0); ++i)
      for (std::size_t j = 0; j < part.extent(1); ++j)
        part(i, j) = static_cast<double>((part.first(0) + i) * 333 + part.first(1) + j);
  meet();
  std::vector<double> all(a.size());
  a.get(a.all(), all.data());
  for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == static_cast<double>(i), "stores at owners");
  meet();
  if (rank() == ranks() - 1) a.put(a.all(), std::vector<double>(a.size(), 7).data());
  meet();
  for (const auto part : a.local())
    for (std::size_t i = 0; i < part.extent(0); ++i)
      require(part(i, part.extent(1) - 1) == 7, "loads of what another rank put");
  const double sum = a.sum();
  std::vector<double> sums(ranks());
  detail::check(kasane_ranks_allgather(&sum, sums.data(), sizeof sum));
  require(std::set<double>(sums.begin(), sums.end()).size() == 1, "the same sum at all ranks");
  a.for_each_part([](auto part) { part(0, 0) += 1; });
  require(a.max() == 8 && a.min() == 7, "for_each_part");
}

/// A result that a rank may have no memory for.
struct Costly {
  static inline bool no_memory = false;
  int number = 0;
  Costly() {
    if (no_memory) throw std::bad_alloc();
  }
};
/// A rank without memory for the results tells the others, which wait for its own.
void no_memory_at_one_rank(const array<double, 2>& a) {
  bool told = false;
  try {
    const detail::Bulk bulk("costly", {&a.layout()});
    Costly::no_memory = rank() == ranks() - 1;
    static_cast<void>(detail::reduce_at_owners<Costly>(
        bulk, a.layout(), [](std::size_t, std::size_t) { return Costly(); },
        [](const Costly& x, const Costly&) { return x; }));
  } catch (const std::bad_alloc&) {
    told = true;
  }
  Costly::no_memory = false;
  require(told, "no memory at one rank");
}

/// Ranks that differ all get an error, and none waits; then they go on.
void different_calls(const std::string& folder) {
  array<double, 2> a({40, 40}, tiles{9, 9}), b({40, 40}), c({40, 41});
  const bool last = rank() == ranks() - 1, several = ranks() > 1;
  refused(EINVAL, "same extents", [&] { copy(a, c); });
  refused(EINVAL, "kasane::copy: arrays of 40 and of 41", [&] { copy(a, c); });
  refused(ENOENT, "no/a.npy", [&] { a.save(folder + "/no/a.npy"); });
  refused(ENOENT, "none.npy", [&] { static_cast<void>(array<double, 2>::load(folder + "/none.npy")); });
  refused(EINVAL, "beyond", [&] {
    a.for_each_part([&](auto part) {
      if (part.first(0) == 0 && part.first(1) == 0) throw error(EINVAL, "beyond");
    });
  });
  if (several) {
    refused(EINVAL, "other arrays, extents or values", [&] { a.fill(last ? 1 : 2); });
    refused(EINVAL, "other arrays", [&] { copy(last ? a : b, last ? b : a); });
    refused(EINVAL, "the same ones in the same order", [&] {
      if (last)
        static_cast<void>(a.sum());
      else
        a.fill(3);
    });
    refused(EINVAL, "rank 0 calls kasane::array::min, rank",
            [&] { static_cast<void>(last ? a.max() : a.min()); });
    refused(EINVAL, "kasane::array::scale: rank", [&] { a.scale(last ? 2 : 3); });
    refused(EINVAL, "kasane::add: rank", [&] { add(1, a, last ? 2 : 3, a, b); });
    refused(EINVAL, "rank 0 calls kasane::copy, rank", [&] {
      if (last)
        transform(a, b, [](double x) { return x; });
      else
        copy(a, b);
    });
    refused(EINVAL, "kasane::array: rank", [&] { array<double, 2>({40, last ? 40u : 41u}); });
    refused(EIO, last ? "one rank" : "for_each_part failed at rank", [&] {
      a.for_each_part([&](auto) {
        if (last) throw error(EIO, "one rank alone");
      });
    });
  }
  no_memory_at_one_rank(a);
  a.fill(4);
  copy(a, b);
  require(b.sum() == 4 * 1600, "afterwards");
}

/// The last rank that ends an array frees its memory, whenever the others did.
void memory_is_used_again(const std::string&) {
  std::set<void*> places;
  for (int i = 0; i < 60; ++i) {
    std::optional<array<double, 1>> a(std::in_place, std::array<std::size_t, 1>{100'000 * ranks()});
    a->fill(i);
    require(a->sum() == 1e5 * ranks() * i, "sum");
    places.insert(a->address({0}).get());
    if (i % 2 == 0) meet();
    a.reset();
    if (i % 3 == 0) meet();
  }
  require(places.size() < 20, "memory is used again");
}

void detached(const std::string&) {
  std::optional<array<double, 1>> a(std::in_place, std::array<std::size_t, 1>{5000});
  array<double, 1> kept({700});
  a->fill(2);
  detail::check(kasane_detach());
  require(kasane_attached() == 0, "detached");
  refused(EPERM, "has detached", [&] { a->fill(3); });
  a.reset();  // nothing happens
  detail::check(kasane_attach(nullptr));
  require(kasane_attached() == 2, "the second attach");
  refused(EPERM, "has detached", [&] { static_cast<void>(kept.sum()); });
  array<double, 1> b({5000});
  b.fill(1);
  require(b.sum() == 5000, "a sum after the second attach");
}

struct Case {
  const char* name;
  void (*run)(const std::string&);
};
constexpr Case kCases[] = {{"bulk", bulk_operations},       {"onesided", one_sided},
                           {"local", local_tiles},          {"differ", different_calls},
                           {"again", memory_is_used_again}, {"detached", detached}};

int run_case(const std::string& name, const std::string& folder) {
  if (const int code = kasane_attach(nullptr); code != 0) {
    std::fprintf(stderr, "attached: %s\n", kasane_error_message());
    return code;
  }
  for (const Case& c : kCases)
    if (c.name == name || name == "all") c.run(folder);
  if (rank() == 0) std::printf("attached: %s passed on %u ranks\n", name.c_str(), ranks());
  return kasane_detach();
}

}  // namespace
}  // namespace kasane::test

int main(int argc, char** argv) {
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
#endif
  const int status = kasane::test::run_case(argc > 1 ? argv[1] : "all", argc > 2 ? argv[2] : ".");
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return status;
}
