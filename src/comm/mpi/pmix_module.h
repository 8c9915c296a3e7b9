// SPDX-License-Identifier: Apache-2.0
// The boundary to libpmix: a table of functions that the module kasane-pmix.so fills. Only it includes
// PMIx's headers.
//
// Thread safety: none; one thread makes all calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::comm::mpi {

/// What the module offers. Functions return null, or what PMIx says of the failure.
struct PmixModule {
  static constexpr std::uint32_t kAbi = 1;
  static constexpr const char* kSymbol = "kasane_pmix_module";
  std::uint32_t abi, bytes;  ///< kAbi, sizeof(PmixModule)

  const char* (*init)(std::uint32_t* rank, std::uint32_t* ranks);
  /// Begins a fence that collects what each rank puts under its key; done() says when it has ended.
  const char* (*begin)(const char* key, const char* data, std::size_t bytes);
  const char* (*done)(bool* done);
  /// take(into, data, bytes) gets what the rank has put under this key.
  const char* (*get)(std::uint32_t rank, const char* key,
                     void (*take)(void* into, const char* data, std::size_t bytes), void* into);
  void (*finalize)();
};

}  // namespace kasane::comm::mpi
