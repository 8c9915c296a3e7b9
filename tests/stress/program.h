// SPDX-License-Identifier: Apache-2.0
// Random data-race-free fork-join programs, and the value that every read must return.
//
// A program is a tree of threads; each runs a list of operations on *cells* (1, 2, 4 or 8 bytes) of
// *objects*: heap memory that threads allocate and free, and arrays on threads' own stacks. Cells of many
// threads share blocks and pages, also pages of stacks.
//
// Generation follows the sequential elision (a fork runs the child at once), and keeps for each cell its
// value and the threads that may use it:
//   - a cell is written by the one thread that holds it; a fork may hand cells to the child, or lend them to
//     be read; a join brings them back
//   - a group of siblings meets at barriers: in even phases each writes its part of a common set, in odd
//     phases all read all of it
//   - a lock guards a pair of counters: under the lock both are equal; at the end they are the sum of what
//     was added
//   - a freed object's memory may be allocated by any thread of any rank
// So every read has one right value, whatever the schedule: the oracle.
//
// Program and its operations are plain data, to be copied into global memory.
// Thread safety: constant after generate().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kasane::stress {

enum class OpKind : std::uint8_t {
  write,     ///< object, offset, width, value
  read,      ///< object, offset, width; must return value
  fork,      ///< target: thread; slot: which of the parent's children
  join,      ///< slot
  add,       ///< target: lock; under it both counters are equal, and value is added to both
  check,     ///< target: lock; both counters are value (all threads that add were joined)
  barrier,   ///< target
  allocate,  ///< object
  release,   ///< object: freed
  work,      ///< value: iterations of nothing
  yield,
};

struct Op {
  OpKind kind;
  std::uint8_t width;
  std::uint16_t slot;
  std::uint32_t target;  ///< object, thread, lock or barrier
  std::uint64_t offset;
  std::uint64_t value;
};

/// Memory that cells lie in.
struct Object {
  std::uint32_t bytes;
  std::uint32_t thread;  ///< the thread on whose stack it lies, or kHeap
  /// from one piece of kTogether bytes to the next, if it was stretched; the bytes between belong to no cell
  std::uint32_t distance = 0;
};
inline constexpr std::uint32_t kHeap = 0xFFFFFFFFu;

struct Thread {
  std::uint32_t first_op, ops;
  std::uint32_t frame;  ///< the object on its stack
};

/// Threads of a barrier.
struct Group {
  std::uint32_t members;
};

struct Limits {
  std::uint32_t threads = 40;
  std::uint32_t actions = 14;  ///< of a thread, about
  std::uint32_t depth = 5;
  std::uint32_t work = 300;  ///< longest OpKind::work
  bool stacks = true;        ///< cells on stacks
};

inline constexpr std::uint32_t kMaxChildren = 16;  ///< of a thread
inline constexpr std::uint32_t kFrameBytes = 256;  ///< of an object on a stack
inline constexpr std::uint32_t kLocks = 3;

struct Program {
  std::uint64_t seed = 0;
  std::vector<Op> ops;
  std::vector<Thread> threads;  ///< 0 is the root
  std::vector<Object> objects;
  std::vector<Group> barriers;
};

/// The program of a seed: equal seeds and limits give equal programs.
Program generate(std::uint64_t seed, const Limits& limits = {});

/// The same operations on larger memory: the heap's objects become equally large, so that those that are
/// never freed have `kept_bytes` together or a little less. Their cells lie in pieces as far from each other
/// as possible, so cells that were neighbours still share a block, and a page holds few of them.
/// `kept_bytes`: a MiB for each of a hundred objects, at least.
void stretch(Program&, std::uint64_t kept_bytes);
inline constexpr std::uint32_t kTogether = 64;

/// One line an operation, for looking at a failure.
std::string to_string(const Program&);

}  // namespace kasane::stress
