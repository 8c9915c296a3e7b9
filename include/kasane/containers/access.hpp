// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two ways in which a container's algorithms reach memory that never moves (placement::fixed): Near, at
/// the owner, by the CPU; Far, anywhere, by direct access. Chosen for each operation, since a thread may be
/// stolen between two. Not for programs.
#pragma once

#include <kasane/kasane.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

namespace kasane::detail::containers {

using Word = std::uint64_t;

/// The calling thread's rank owns the memory. Builtins that a program's -fno-inline-atomics leaves inline; on
/// x86-64 plain loads are acquires and plain stores releases, so the compiler alone is held back.
struct Near {
  static Word load(const Word* p) noexcept {
    const Word w = *static_cast<const volatile Word*>(p);
    asm volatile("" ::: "memory");
    return w;
  }
  static void store(Word* p, Word w) noexcept {
    asm volatile("" ::: "memory");
    *static_cast<volatile Word*>(p) = w;
  }
  static bool compare_swap(Word* p, Word expected, Word desired) noexcept {
    return __sync_bool_compare_and_swap(p, expected, desired);
  }
  static Word fetch_add(Word* p, Word n) noexcept { return __sync_fetch_and_add(p, n); }
  static void read(void* to, const void* from, std::size_t bytes) noexcept {
    if (few_words(bytes))
      for_words(bytes, [=](std::size_t i) {
        const Word w = static_cast<const volatile Unaligned*>(from)[i];
        std::memcpy(static_cast<char*>(to) + i * sizeof w, &w, sizeof w);
      });
    else
      std::memcpy(to, from, bytes);
    asm volatile("" ::: "memory");
  }
  static void write(void* to, const void* from, std::size_t bytes) noexcept {
    if (few_words(bytes))
      for_words(bytes, [=](std::size_t i) {
        Word w;
        std::memcpy(&w, static_cast<const char*>(from) + i * sizeof w, sizeof w);
        static_cast<volatile Unaligned*>(to)[i] = w;
      });
    else
      std::memcpy(to, from, bytes);
  }
  static void write_two(void* to, const void* from, std::size_t bytes, void* and_to, const void* and_from,
                        std::size_t and_bytes) noexcept {
    write(to, from, bytes);
    write(and_to, and_from, and_bytes);
  }

 private:
  using Unaligned [[gnu::aligned(1), gnu::may_alias]] = Word;
  /// They go one by one: a vector that is loaded from words just stored makes the processor wait.
  [[nodiscard]] [[gnu::always_inline]] static bool few_words(std::size_t bytes) noexcept {
    return __builtin_constant_p(bytes) && bytes % sizeof(Word) == 0 && bytes <= 6 * sizeof(Word);
  }
  template <class Function>
  [[gnu::always_inline]] static void for_words(std::size_t bytes, const Function& f) noexcept {
    switch (bytes / sizeof(Word)) {
      case 6: f(5); [[fallthrough]];
      case 5: f(4); [[fallthrough]];
      case 4: f(3); [[fallthrough]];
      case 3: f(2); [[fallthrough]];
      case 2: f(1); [[fallthrough]];
      case 1: f(0); [[fallthrough]];
      default: break;
    }
  }
};

struct Far {
  static Word load(const Word* p) { return kasane::get(global_ptr<const Word>(p)); }
  static void store(Word* p, Word w) { kasane::put(global_ptr<Word>(p), w); }
  static bool compare_swap(Word* p, Word expected, Word desired) {
    return kasane::compare_swap(global_ptr<Word>(p), expected, desired) == expected;
  }
  static Word fetch_add(Word* p, Word n) { return kasane::fetch_add(global_ptr<Word>(p), n); }
  static void read(void* to, const void* from, std::size_t bytes) { check(kasane_get(to, from, bytes)); }
  static void write(void* to, const void* from, std::size_t bytes) { check(kasane_put(to, from, bytes)); }
  /// Together: one round trip.
  static void write_two(void* to, const void* from, std::size_t bytes, void* and_to, const void* and_from,
                        std::size_t and_bytes) {
    kasane_pending_t first = {};
    const int begun = kasane_put_async(and_to, and_from, and_bytes, &first);
    const int code = kasane_put(to, from, bytes);
    check(kasane_wait(&first));
    check(begun);
    check(code);
  }
};

/// Accesses of a thread at rank `here` to memory of several ranks. Those of other ranks go together, and are
/// made when wait() has returned; at most kReads reads before it.
class Together {
 public:
  static constexpr std::size_t kReads = 3;
  explicit Together(std::uint32_t here) noexcept : here_(here) {}
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  void read(std::uint32_t rank, void* to, const void* from, std::size_t bytes) {
    read_near(rank, to, from, bytes);
    read_far(rank, to, from, bytes);
  }
  /// The two halves of it: where a near one comes late, a processor has more to do while its cache misses.
  void read_far(std::uint32_t rank, void* to, const void* from, std::size_t bytes) {
    if (rank == here_) return;
    reads_[n_] = {};
    check(kasane_get_async(to, from, bytes, &reads_[n_++]));
  }
  void read_near(std::uint32_t rank, void* to, const void* from, std::size_t bytes) const noexcept {
    if (rank == here_) Near::read(to, from, bytes);
  }
  void write(std::uint32_t rank, void* to, const void* from, std::size_t bytes) {
    if (rank == here_) return Near::write(to, from, bytes);
    check(kasane_put_async(to, from, bytes, &writes_));
  }
  void wait() {
    while (n_ != 0) check(kasane_wait(&reads_[--n_]));
    if (writes_.id != 0) check(kasane_wait(&writes_));
  }

 private:
  const std::uint32_t here_;
  std::uint32_t n_ = 0;
  kasane_pending_t writes_{}, reads_[kReads];
};

[[noreturn, gnu::cold, gnu::noinline]] inline void busy(const char* container) {
  throw error(EBUSY, (std::string(container) + ": an exclusive call overlaps another call").c_str());
}

/// In place of a polling_scope where nothing waits but faults, in which a worker runs no other thread.
struct Unscoped {
  Unscoped() noexcept {}
};

/// Waits between two tries; the thread holds nothing, and may be on another rank afterwards.
class Backoff {
 public:
  void pause() noexcept {
    if (++turn_ <= 16) {
      __builtin_ia32_pause();
    } else {
      kasane_thread_yield();
      std::this_thread::yield();
    }
  }

 private:
  unsigned turn_ = 0;
};

/// An array of 2^depth words and its depth in one word; behind word 0, which names the array that it
/// replaced.
struct Table {
  Word bits = 0;
  [[nodiscard]] static Table of(Word* array, unsigned depth) noexcept {
    return {reinterpret_cast<std::uintptr_t>(array) | Word{depth} << 56};
  }
  [[nodiscard]] Word* array() const noexcept {
    return reinterpret_cast<Word*>(static_cast<std::uintptr_t>(bits & ((Word{1} << 56) - 1)));
  }
  [[nodiscard]] unsigned depth() const noexcept { return static_cast<unsigned>(bits >> 56); }
  [[nodiscard]] std::size_t size() const noexcept { return std::size_t{1} << depth(); }
  [[nodiscard]] Word* at(std::uint64_t hash) const noexcept { return array() + 1 + (hash & (size() - 1)); }
  [[nodiscard]] static Word* allocate(unsigned depth, std::uint32_t rank) {
    return static_cast<Word*>(
        allocate_zeroed(((std::size_t{1} << depth) + 1) * sizeof(Word), 64, placement::on(rank).fixed()));
  }
};

}  // namespace kasane::detail::containers
