// SPDX-License-Identifier: Apache-2.0
// Random mixes of put, get, atomics, load, store, own, give, where, allocate and free from every rank,
// compared with what each cell must hold.
//
//   kasane run -n 4 --workers 2 -- stress_relocate --seed 1 --count 20
//
// A program runs phases; in each, tasks run at once on whatever ranks take them. Every page of the shared
// arrays has a cell for each task: in `direct` it is only put and got, in `coherent` only stored and loaded.
// A cell is written by its task alone, with growing numbers, so the task knows it exactly; other tasks that
// get it find its task's number, not less than what it held when the phase began and no more than the phase
// can bring. All tasks add to the first word of each page, by atomics: in the end it is their sum. Memory
// that a task allocates is filled and checked in both ways while pages of it move. Which operations a task
// does depends on the seed alone; where they run and what they meet, on the machine. Exit status 1, with the
// seed to replay, if a value is wrong.
#include <kasane/kasane.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/counts.h"

namespace {

constexpr std::uint64_t kPages = 6, kTasks = 24, kPhases = 6, kSteps = 40;

struct Random {
  std::uint64_t state;
  std::uint64_t operator()(std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  }
};

/// In global memory, so that a task can run anywhere.
struct Shared {
  std::uint64_t seed;
  std::uint64_t page_words;
  std::uint64_t *direct, *coherent;   ///< kPages pages each
  std::uint64_t put[kTasks][kPages];  ///< what a task has put last, kept by the task
  std::uint64_t stored[kTasks][kPages];
  std::uint64_t floor[kTasks][kPages];  ///< of put, as the phase began
  std::uint64_t added[kTasks][kPages];  ///< to the word of the page that all add to
  std::uint64_t failures[kTasks];
  std::uint64_t moved_from[kTasks];  ///< a bit for each rank on which the task moved pages
};

std::uint64_t cell(const Shared& s, std::uint64_t page, std::uint64_t task) {
  return page * s.page_words + task * 21 + 1;
}
std::uint64_t value_of(std::uint64_t task, std::uint64_t number) {
  return number == 0 ? 0 : task << 48 | number;
}

struct Task {
  Shared& s;
  std::uint64_t me, phase;
  Random random;

  [[gnu::noinline]] void expect(bool good, const char* what, std::uint64_t got, std::uint64_t right) {
    if (good) return;
    std::fprintf(stderr,
                 "stress_relocate: seed %llu phase %llu task %llu on rank %u: %s is %llx, should be %llx\n  "
                 "replay: kasane run -n %u --workers %u -- stress_relocate --seed %llu --count 1\n",
                 static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(phase),
                 static_cast<unsigned long long>(me), kasane::rank(), what,
                 static_cast<unsigned long long>(got), static_cast<unsigned long long>(right),
                 kasane::ranks(), kasane::workers(), static_cast<unsigned long long>(s.seed));
    ++s.failures[me];
  }

  /// Moves part of an array of `words`, to here or away.
  void move(const std::uint64_t* array, std::uint64_t words) {
    s.moved_from[me] |= std::uint64_t{1} << kasane::rank();
    const std::uint64_t first = random(words), n = 1 + random(words - first);
    if (random(2) == 0) {
      kasane::own(array + first, n);
    } else {
      kasane::give(array + first, n, static_cast<std::uint32_t>(random(kasane::ranks())));
    }
    if (kasane::where(array + first) >= kasane::ranks())
      expect(false, "an owner", kasane::where(array + first), 0);
  }

  void access() {
    const std::uint64_t page = random(kPages), other = random(kTasks);
    switch (random(6)) {
      case 0: {
        const std::uint64_t value = value_of(me, ++s.put[me][page]);
        kasane::put(&s.direct[cell(s, page, me)], &value);
        break;
      }
      case 1: {
        std::uint64_t got = 0;
        kasane::get(&got, &s.direct[cell(s, page, me)]);
        expect(got == value_of(me, s.put[me][page]), "the own cell, got,", got,
               value_of(me, s.put[me][page]));
        break;
      }
      case 2: {
        std::uint64_t got = 0;
        kasane::get(&got, &s.direct[cell(s, page, other)]);
        const std::uint64_t number = got & 0xFFFFFFFFFFFF, least = s.floor[other][page];
        expect(got == value_of(other, number) && number >= least && number <= (phase + 1) * kSteps,
               "another task's cell, got,", got, value_of(other, least));
        break;
      }
      case 3: {
        const std::uint64_t before =
            kasane::fetch_add(kasane::global_ptr<std::uint64_t>(&s.direct[page * s.page_words]), 1);
        expect(before >= s.added[me][page], "the sum of a page", before, s.added[me][page]);
        ++s.added[me][page];
        break;
      }
      case 4: s.coherent[cell(s, page, me)] = value_of(me, ++s.stored[me][page]); break;
      default: {
        const std::uint64_t got = s.coherent[cell(s, page, me)];
        expect(got == value_of(me, s.stored[me][page]), "the own cell, loaded,", got,
               value_of(me, s.stored[me][page]));
      }
    }
  }

  void allocate() {
    const std::uint64_t words = 1 + random(3 * s.page_words), salt = random(1u << 30) + 1;
    static constexpr kasane::placement kPlacements[] = {kasane::placement::local, kasane::placement::block,
                                                        kasane::placement::cyclic};
    auto* p = static_cast<std::uint64_t*>(
        kasane::allocate(words * 8, 64, kPlacements[random(3)].in_pages(s.page_words * 8)));
    const bool by_put = random(2) == 0;
    std::vector<std::uint64_t> image(words);
    for (std::uint64_t i = 0; i < words; ++i) image[i] = salt * (i + 1);
    if (by_put) {
      kasane::put(p, image.data(), words);
    } else {
      std::memcpy(p, image.data(), words * 8);
    }
    if (random(2) == 0) move(p, words);
    if (random(2) == 0) {  // the other way: a fence between
      kasane::release_all();
      kasane::acquire_all();
      std::vector<std::uint64_t> got(words);
      if (by_put) {
        std::memcpy(got.data(), p, words * 8);
      } else {
        kasane::get(got.data(), p, words);
      }
      for (std::uint64_t i = 0; i < words; ++i) {
        if (got[i] == image[i]) continue;
        expect(false, by_put ? "a word put, then loaded," : "a word stored, then got,", got[i], image[i]);
        break;
      }
    }
    if (random(2) == 0) move(p, words);
    kasane::deallocate(p);
  }

  void run() {
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      switch (random(12)) {
        case 0: move(s.direct, kPages * s.page_words); break;
        case 1: move(s.coherent, kPages * s.page_words); break;
        case 2: allocate(); break;
        default: access();
      }
    }
  }
};

/// Wrong values. *ranks: those that moved pages, a bit each.
std::uint64_t run_program(std::uint64_t seed, std::uint64_t* ranks) {
  auto* s = new (kasane::allocate(sizeof(Shared))) Shared{};
  s->seed = seed;
  // over some networks small pages come with the answer of their owner
  const std::size_t page = seed % 2 == 0 ? kasane::page_default : kasane::page_small;
  s->page_words = page / 8;
  s->direct = static_cast<std::uint64_t*>(
      kasane::allocate(kPages * page, page, kasane::placement::cyclic.in_pages(page)));
  s->coherent = static_cast<std::uint64_t*>(
      kasane::allocate(kPages * page, page, kasane::placement::block.in_pages(page)));
  std::vector<std::uint64_t> zeros(kPages * s->page_words);
  kasane::put(s->direct, zeros.data(), zeros.size());
  std::memset(s->coherent, 0, kPages * page);
  for (std::uint64_t phase = 0; phase < kPhases; ++phase) {
    std::memcpy(s->floor, s->put, sizeof s->floor);
    kasane::parallel_for(
        std::uint64_t{0}, kTasks,
        [s, phase](std::uint64_t i) { Task{*s, i, phase, {s->seed * 1000 + phase * 100 + i}}.run(); }, 1);
  }
  std::uint64_t failures = 0;
  std::uint64_t sums[kPages] = {};
  for (std::uint64_t t = 0; t < kTasks; ++t) {
    failures += s->failures[t];
    *ranks |= s->moved_from[t];
    for (std::uint64_t p = 0; p < kPages; ++p) {
      sums[p] += s->added[t][p];
      std::uint64_t got = 0;
      kasane::get(&got, &s->direct[cell(*s, p, t)]);
      failures += got != value_of(t, s->put[t][p]);
      failures += s->coherent[cell(*s, p, t)] != value_of(t, s->stored[t][p]);
    }
  }
  for (std::uint64_t p = 0; p < kPages; ++p) {
    std::uint64_t got = 0;
    kasane::get(&got, &s->direct[p * s->page_words]);
    failures += got != sums[p];
  }
  kasane::deallocate(s->direct);
  kasane::deallocate(s->coherent);
  kasane::deallocate(s);
  return failures;
}

std::uint64_t number(int argc, char** argv, const char* name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t first = number(argc, argv, "--seed", 1), count = number(argc, argv, "--count", 10);
  std::uint64_t failures = 0, movers = 0;
  for (std::uint64_t seed = first; seed < first + count && failures == 0; ++seed) {
    failures += kasane::run([seed, &movers] { return run_program(seed, &movers); });
    if (failures != 0)
      std::fprintf(stderr, "stress_relocate: seed %llu: %llu wrong\n", static_cast<unsigned long long>(seed),
                   static_cast<unsigned long long>(failures));
  }
  const kasane::test::Counts all;
  std::printf(
      "stress_relocate: seeds %llu … %llu, %u ranks, %u workers: %llu wrong; pages moved from ranks %llx, "
      "%llu pages moved, %llu of them by themselves\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
      kasane::ranks(), kasane::workers(), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(movers), static_cast<unsigned long long>(all["pages_moved"]),
      static_cast<unsigned long long>(all["pages_auto_relocated"]));
  return failures != 0;
}
