// SPDX-License-Identifier: Apache-2.0
// --check globals: reports the thread_local variables of the program (of its executable, and of the libraries
// that --globals-of names) that user-level threads have changed. Such a variable is the worker's, not the
// thread's: a thread that goes on elsewhere finds another one there, and threads that share a worker share
// it.
//
// Each worker keeps a copy of its OS thread's block of thread_locals from before it ran threads, and compares
// afterwards. So a variable that got its old value back, or was only read, is not seen, and neither are those
// of other libraries.
//
// Thread safety: as noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/rank/program_objects.h"

namespace kasane::runtime {

/// A thread_local variable: where it lies in each OS thread's blocks, which follow each other in the order of
/// program_images(), and its readable name.
struct ThreadLocal {
  std::uint64_t offset, bytes;
  std::string name;
};

class ThreadLocalsCheck {
 public:
  /// Null: the program has no thread_locals.
  static std::unique_ptr<ThreadLocalsCheck> create(std::uint32_t workers);

  /// On worker's OS thread, before it runs user-level threads.
  void begin(std::uint32_t worker);
  /// On the same OS thread, when it runs none any more.
  void end(std::uint32_t worker);
  /// The names of those that were changed. Empty: none has been. After end() on all workers.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Image> images_;
  std::vector<ThreadLocal> variables_;
  std::vector<std::vector<std::byte>> before_;  ///< of each worker
  mutable std::mutex mutex_;                    ///< of changed_, which ends of workers write
  std::vector<bool> changed_;                   ///< by index in variables_
};

/// The program's thread_local variables, but for those of the runtime (where it is linked statically) and of
/// the compiler. Of a stripped program: one, without a name.
[[nodiscard]] std::vector<ThreadLocal> thread_locals_of_program();

}  // namespace kasane::runtime
