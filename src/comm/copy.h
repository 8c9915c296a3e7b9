// SPDX-License-Identifier: Apache-2.0
// Copies between memory that several ranks map: by fixed moves up to a cache line, by the C library above
// (which uses non-temporal stores where a copy exceeds its share of the last-level cache).
//
// Thread safety: as memcpy. A copy of 1, 2, 4 or 8 bytes that are aligned is one store: a reader never sees
// half of it, and may overwrite it as soon as it sees it. Longer copies may store a byte twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::comm {

namespace detail {

using Sixteen = long long __attribute__((vector_size(16)));

template <class Word>
[[gnu::always_inline]] inline void move(std::byte* to, const std::byte* from) noexcept {
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::memcpy(to, &word, sizeof word);
}

/// Moves 2 words, which overlap where bytes is no power of two: both are loaded before one is stored.
template <class Word>
[[gnu::always_inline]] inline void move_ends(std::byte* to, const std::byte* from,
                                             std::size_t bytes) noexcept {
  Word first, last;
  std::memcpy(&first, from, sizeof(Word));
  std::memcpy(&last, from + bytes - sizeof(Word), sizeof(Word));
  std::memcpy(to, &first, sizeof(Word));
  std::memcpy(to + bytes - sizeof(Word), &last, sizeof(Word));
}

[[gnu::always_inline]] inline void move_line(std::byte* to, const std::byte* from,
                                             std::size_t bytes) noexcept {
  Sixteen a, b, c, d;  // 32 … 64 bytes
  std::memcpy(&a, from, 16);
  std::memcpy(&b, from + 16, 16);
  std::memcpy(&c, from + bytes - 32, 16);
  std::memcpy(&d, from + bytes - 16, 16);
  std::memcpy(to, &a, 16);
  std::memcpy(to + 16, &b, 16);
  std::memcpy(to + bytes - 32, &c, 16);
  std::memcpy(to + bytes - 16, &d, 16);
}

/// Out of line, so that the calls that copy stay short enough to be inlined where they are made.
[[gnu::noinline]] inline void copy_other(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 64) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= 32) {
    move_line(to, from, bytes);
  } else if (bytes > 16) {
    move_ends<Sixteen>(to, from, bytes);
  } else if (bytes == 16) {
    move<Sixteen>(to, from);
  } else if (bytes > 8) {
    move_ends<std::uint64_t>(to, from, bytes);
  } else if (bytes > 4) {
    move_ends<std::uint32_t>(to, from, bytes);
  } else if (bytes == 4) {
    move<std::uint32_t>(to, from);
  } else if (bytes == 3) {
    move_ends<std::uint16_t>(to, from, bytes);
  } else if (bytes == 2) {
    move<std::uint16_t>(to, from);
  } else if (bytes == 1) {
    *to = *from;
  }
}

#ifdef KASANE_SANITIZER_THREAD
/// The thread sanitizer takes a plain move for several accesses; this tells it that an aligned word is loaded
/// and stored whole. False: it is no aligned word.
template <class Word>
bool move_word(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes != sizeof(Word) || reinterpret_cast<std::uintptr_t>(to) % sizeof(Word) != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % sizeof(Word) != 0)
    return false;
  // relaxed: the fences of copy_in() and copy_out() order it.
  __atomic_store_n(reinterpret_cast<Word*>(to),
                   __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  return true;
}
#endif

}  // namespace detail

/// memmove up to 64 bytes, memcpy above.
[[gnu::always_inline]] inline void copy_bytes(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
#ifdef KASANE_SANITIZER_THREAD
  if (detail::move_word<std::uint64_t>(to, from, bytes) || detail::move_word<std::uint32_t>(to, from, bytes))
    return;
#endif
  if (bytes == 8) {
    detail::move<std::uint64_t>(to, from);
  } else {
    detail::copy_other(to, from, bytes);
  }
}

// Fences by another name: GCC warns that the thread sanitizer does not model them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
/// From another rank's memory. acquire before: a flag that the caller read relaxed orders these loads;
/// acquire after: the caller's next loads come after them. On x86 both fences constrain only the compiler.
[[gnu::always_inline]] inline void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  copy_bytes(to, from, bytes);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
/// Into another rank's memory. release: a flag that the caller sets next, even relaxed, is seen after the
/// bytes.
[[gnu::always_inline]] inline void copy_out(std::byte* to, const std::byte* from,
                                            std::size_t bytes) noexcept {
  copy_bytes(to, from, bytes);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
/// Between other ranks' memory, which may be the same and overlap.
inline void move_between(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  // acquire, release: as in copy_in() and copy_out()
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (bytes != 0) std::memmove(to, from, bytes);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
/// release: what was stored into other ranks' memory word by word is seen there before what the caller stores
/// next, even relaxed.
inline void fence_release() noexcept { __atomic_thread_fence(__ATOMIC_RELEASE); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace kasane::comm
