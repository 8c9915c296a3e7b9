// SPDX-License-Identifier: Apache-2.0
// The one table of system calls and their memory: number → which arguments name memory, how much, and whether
// the kernel reads or writes it. Calls without memory, and those that manage addresses (mmap, madvise …), are
// not in it.
//
// Thread safety: constant. Async-signal-safe.
#pragma once

#include <array>
#include <cstdint>

namespace kasane::runtime {

/// How much memory an argument names.
enum class Shape : std::uint8_t {
  none,
  fixed,    ///< `item` bytes
  items,    ///< the argument `length` times `item` bytes
  message,  ///< items, after a word (System V messages)
  bits,     ///< the argument `length` bits, in whole words (select)
  value,    ///< as many bytes as the 32-bit word says that the argument `length` names; the word, too
  text,     ///< up to a 0
  texts,    ///< words up to a 0, each names a text (execve)
  vectors,  ///< the argument `length` iovecs, and what they name
  header,   ///< a msghdr, and what it names
  headers,  ///< the argument `length` mmsghdrs, and what they name
};
enum class Way : std::uint8_t { in, out, both };  ///< the kernel reads it, writes it

struct NamedMemory {
  std::uint8_t argument = 0;
  Shape shape = Shape::none;
  Way way = Way::in;
  std::uint8_t length = 0;
  std::uint16_t item = 1;
};

/// What may be done of a call whose memory is more than can be pinned at once.
enum class Pieces : std::uint8_t {
  none,    ///< it is made as a whole, or fails
  reads,   ///< its first memory may be cut; the call goes on behind it where it would not wait
  writes,  ///< cut, and goes on until it is short
  sends,   ///< as writes, on a stream; else as none
};

struct CallEntry {
  const char* name = nullptr;  ///< null: not in the table
  std::array<NamedMemory, 4> memory{};
  Pieces pieces = Pieces::none;
  std::uint8_t offset = 0;  ///< the argument that is the place in a file, or 0
};

/// Null: not in the table.
[[nodiscard]] const CallEntry* find_call(long number) noexcept;
/// Whether the call takes addresses without touching memory there, or never fails with EFAULT.
[[nodiscard]] bool manages_addresses(long number) noexcept;

/// What the argument of an ioctl or fcntl names, which its command says; Shape::none: nothing.
[[nodiscard]] NamedMemory argument_of_ioctl(std::uint64_t command) noexcept;
[[nodiscard]] NamedMemory argument_of_fcntl(std::uint64_t command) noexcept;

}  // namespace kasane::runtime
