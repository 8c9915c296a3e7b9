// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a segment of a kasane::vector holds elements, each of which is read and written as a whole, and says
/// whether it was written at all (its ready mark). Not for programs.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/bucket.hpp>
#include <kasane/containers/bytes.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace kasane::detail::containers {

/// A segment, and the place of an element in it.
struct Spot {
  Word base;             ///< 0: there is no such segment
  std::size_t size;      ///< elements of the segment
  std::size_t position;  ///< of the element
};

/// The hardware reads and writes it as a whole.
template <class Type>
concept one_access = (sizeof(Type) == 1 || sizeof(Type) == 2 || sizeof(Type) == 4 || sizeof(Type) == 8);

/// Elements of one access: an array of them, then one of ready marks, a byte each, so that a store sets it.
template <class Type>
struct Plain {
  static constexpr bool kMarksApart = true;
  static constexpr std::size_t kSlot = sizeof(Type);
  [[nodiscard]] static std::size_t bytes(std::size_t n) noexcept { return n * (sizeof(Type) + 1); }
  [[nodiscard]] static Type* value(const Spot& s) noexcept {
    return reinterpret_cast<Type*>(s.base) + s.position;
  }
  [[nodiscard]] static char* mark(const Spot& s) noexcept {
    return reinterpret_cast<char*>(s.base) + s.size * sizeof(Type) + s.position;
  }

  template <class Access>
  static void fill(const Spot& s, const Bytes<Type>* from, std::size_t n) {
    if (n == 1)
      Access::write(value(s), from, sizeof(Type));
    else
      Access::write(value(s), from, n * sizeof(Type));
  }
  /// on: they are ready; else not any more.
  template <class Access>
  static void set(const Spot& s, std::size_t n, const Bytes<Type>*, bool on = true) {
    if constexpr (std::same_as<Access, Near>) {
      asm volatile("" ::: "memory");  // values first
      if (n == 1)
        *static_cast<volatile char*>(mark(s)) = static_cast<char>(on);
      else
        std::memset(mark(s), on ? 1 : 0, n);
    } else {
      const std::vector<char> marks(n, static_cast<char>(on));
      Access::write(mark(s), marks.data(), n);
    }
  }
  /// How many of the n from there on are ready.
  template <class Access>
  [[nodiscard]] static std::size_t ready(const Spot& s, std::size_t n) {
    if constexpr (std::same_as<Access, Near>) {
      const void* const hole = std::memchr(mark(s), 0, n);
      asm volatile("" ::: "memory");
      return hole == nullptr ? n : static_cast<std::size_t>(static_cast<const char*>(hole) - mark(s));
    } else {
      std::vector<char> marks(n);
      Access::read(marks.data(), mark(s), n);
      return static_cast<std::size_t>(std::find(marks.begin(), marks.end(), 0) - marks.begin());
    }
  }
  template <class Access>
  [[nodiscard]] static bool is_ready(const Spot& s) {
    char is = 0;
    Access::read(&is, mark(s), 1);
    return is != 0;
  }
  /// known: it is ready. False: it is not.
  template <class Access>
  [[nodiscard]] static bool read(const Spot& s, Bytes<Type>& to, bool known) {
    if (!known && !is_ready<Access>(s)) return false;
    Access::read(&to, value(s), sizeof to);
    return true;
  }
  /// All n are ready.
  template <class Access>
  static void read_all(const Spot& s, Bytes<Type>* to, std::size_t n) {
    Access::read(to, value(s), n * sizeof(Type));
  }
  template <class Access>
  [[nodiscard]] static bool write(const Spot& s, const Bytes<Type>& x, bool known) {
    if (!known && !is_ready<Access>(s)) return false;
    Access::write(value(s), &x, sizeof x);
    return true;
  }
};

/// Larger elements: each has a word as buckets do, with lock, version and checksum; 0: it is not ready.
template <class Type>
struct Verified {
  static constexpr bool kMarksApart = false;
  struct Slot {
    Word word;
    Bytes<Type> value;
  };
  static constexpr std::size_t kSlot = sizeof(Slot);
  static_assert(sizeof(Slot) % sizeof(Word) == 0);
  [[nodiscard]] static std::size_t bytes(std::size_t n) noexcept { return n * sizeof(Slot); }
  [[nodiscard]] static Slot* slot(const Spot& s) noexcept {
    return reinterpret_cast<Slot*>(s.base) + s.position;
  }
  [[nodiscard]] static std::uint32_t sum_of(const Bytes<Type>& x) noexcept {
    return bucket::folded(bucket::mix(1, x.of, sizeof x));
  }

  /// Of slots whose word is 0.
  template <class Access>
  static void fill(const Spot& s, const Bytes<Type>* from, std::size_t n) {
    if constexpr (std::same_as<Access, Near>) {
      for (std::size_t i = 0; i < n; ++i) Near::write(&slot(s)[i].value, from + i, sizeof(Type));
    } else {
      std::vector<Slot> slots(n);
      for (std::size_t i = 0; i < n; ++i) slots[i] = {0, from[i]};
      Access::write(slot(s), slots.data(), n * sizeof(Slot));
    }
  }
  template <class Access>
  static void set(const Spot& s, std::size_t n, const Bytes<Type>* from, bool on = true) {
    const auto word = [&](std::size_t i) { return on ? bucket::changed(0, 1, sum_of(from[i])) : 0; };
    if constexpr (std::same_as<Access, Near>) {
      for (std::size_t i = 0; i < n; ++i) Near::store(&slot(s)[i].word, word(i));
    } else {
      std::vector<Word> words(n);
      for (std::size_t i = 0; i < n; ++i) words[i] = word(i);
      kasane::put_strided(global_ptr<Word>(&slot(s)->word), words.data(),
                          patch{1, n, sizeof(Slot) / sizeof(Word), 1});
    }
  }
  template <class Access>
  [[nodiscard]] static std::size_t ready(const Spot& s, std::size_t n) {
    std::vector<Word> words(n);
    if constexpr (std::same_as<Access, Near>)
      for (std::size_t i = 0; i < n; ++i) words[i] = Near::load(&slot(s)[i].word);
    else
      kasane::get_strided(words.data(), global_ptr<const Word>(&slot(s)->word),
                          patch{1, n, sizeof(Slot) / sizeof(Word), 1});
    return static_cast<std::size_t>(std::find(words.begin(), words.end(), 0) - words.begin());
  }
  /// Its bytes belong together. At the owner the word before and after says so.
  [[nodiscard]] static bool whole(const Slot& copy) noexcept {
    return !bucket::locked(copy.word) && bucket::checksum(copy.word) == sum_of(copy.value);
  }
  template <class Access>
  [[nodiscard]] static bool look(const Spot& s, Slot& copy) {
    if constexpr (std::same_as<Access, Near>) {
      copy.word = Near::load(&slot(s)->word);
      Near::read(&copy.value, &slot(s)->value, sizeof copy.value);
      return !bucket::locked(copy.word) && Near::load(&slot(s)->word) == copy.word;
    } else {
      Access::read(&copy, slot(s), sizeof copy);
      return copy.word == 0 || whole(copy);
    }
  }
  template <class Access>
  [[nodiscard]] static bool read(const Spot& s, Bytes<Type>& to, bool) {
    Slot copy;
    for (unsigned turn = 0; !look<Access>(s, copy); ++turn)
      if (turn > 16) std::this_thread::yield();
    to = copy.value;
    return copy.word != 0;
  }
  template <class Access>
  static void read_all(const Spot& s, Bytes<Type>* to, std::size_t n) {
    std::vector<Slot> slots(std::same_as<Access, Far> ? n : 0);
    if (!slots.empty()) Access::read(slots.data(), slot(s), n * sizeof(Slot));
    for (std::size_t i = 0; i < n; ++i) {
      if (!slots.empty() && slots[i].word != 0 && whole(slots[i]))
        to[i] = slots[i].value;
      else
        static_cast<void>(read<Access>({s.base, s.size, s.position + i}, to[i], true));
    }
  }
  /// As a change of a bucket.
  template <class Access>
  [[nodiscard]] static bool write(const Spot& s, const Bytes<Type>& x, bool) {
    using bucket::Change;
    Slot copy;
    bool ok = true;
    std::conditional_t<std::same_as<Access, Far>, polling_scope, Unscoped> keep;
    for (Change step = Change::read; step != Change::done; step = bucket::next(step, ok)) {
      switch (step) {
        case Change::read:
          ok = look<Access>(s, copy);
          if (ok && copy.word == 0) return false;
          if (!ok) std::this_thread::yield();
          break;
        case Change::lock:
          ok = Access::compare_swap(&slot(s)->word, copy.word, copy.word | bucket::kLocked);
          break;
        case Change::entries: Access::write(&slot(s)->value, &x, sizeof x); break;
        case Change::publish: Access::store(&slot(s)->word, bucket::changed(copy.word, 1, sum_of(x))); break;
        case Change::done: break;
      }
    }
    return true;
  }
};

template <class Type>
using Elements = std::conditional_t<one_access<Type>, Plain<Type>, Verified<Type>>;

}  // namespace kasane::detail::containers
