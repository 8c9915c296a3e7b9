/* SPDX-License-Identifier: Apache-2.0 */
// The boundary to an MPI library: one table of C functions, which a module (kasane-mpi-openmpi.so,
// kasane-mpi-mpich.so) fills. MPI has no binary interface of its own, so the same source is built against
// each MPI, and only that source includes mpi.h.
//
// Functions that return int return 0, or the MPI's error code (see error_text). Handles are the MPI's own,
// widened to 64 bits.
//
// Thread safety: none. The MPI is initialised for MPI_THREAD_SERIALIZED: Library's lock is held around every
// call. Of a program's own MPI (adopt()) it may be any level: one thread makes all calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::comm::mpi {

/// Increased whenever the table changes: a module of another build is refused instead of misread.
inline constexpr std::uint32_t kModuleAbi = 2;
inline constexpr const char* kModuleSymbol = "kasane_mpi_module";

struct Request {
  std::uint64_t bits;
};
struct Communicator {
  std::uint64_t bits;
};
struct Window {
  std::uint64_t bits;
};

/// What a finished receive has brought.
struct Arrival {
  std::uint32_t source;
  std::uint32_t bytes;
};

inline constexpr int kAnySource = -1;
inline constexpr int kNothing = -1;    ///< test_any: none has finished
inline constexpr int kMostTested = 8;  ///< requests that test_any takes at once

struct Module {
  std::uint32_t abi;    ///< kModuleAbi
  std::uint32_t bytes;  ///< sizeof(Module)
  const char* name;     ///< "Open MPI", "MPICH"

  /// Initialises the MPI unless the program has done so. *ours: Kasane must call finalize(). *level_ok: calls
  /// from changing threads are allowed.
  int (*init)(int* argc, char*** argv, bool* ours, bool* level_ok);
  /// Between MPI_Init and MPI_Finalize.
  bool (*running)();
  /// MPI_Finalize calls function before it does anything. Once a process.
  int (*before_finalize)(void (*function)());
  int (*finalize)();
  void (*version)(char* text, std::size_t bytes);
  void (*error_text)(int code, char* text, std::size_t bytes);
  void (*abort)(int status);  ///< ends the job; does not return

  /// A duplicate whose errors come back as codes. of: an MPI_Comm*; null: the world. Collective over it.
  int (*communicator)(const void* of, Communicator*, std::uint32_t* rank, std::uint32_t* ranks);
  int (*free_communicator)(Communicator*);  ///< collective

  int (*send)(Communicator, const void* from, std::uint32_t bytes, std::uint32_t to, int tag, Request*);
  int (*receive)(Communicator, void* to, std::uint32_t bytes, int from, int tag, Request*);
  int (*test)(Request*, bool* done, Arrival*);
  /// Tests count ≤ kMostTested requests. *index: of one that has finished, or kNothing. Makes the MPI
  /// progress once.
  int (*test_any)(Request*, int count, int* index, Arrival*);
  int (*cancel)(Request*);  ///< the request must still be tested afterwards
  int (*barrier)(Communicator, Request*);
  /// counts and offsets by rank, in bytes; they and the buffers stay valid until the request has finished.
  int (*allgather)(Communicator, const void* mine, int bytes, void* all, const int* counts,
                   const int* offsets, Request*);

  /// A window over [base, base + bytes), open to all ranks until it is freed. Collective; it may wait for the
  /// others.
  int (*window)(Communicator, void* base, std::uint64_t bytes, Window*);
  int (*free_window)(Window*);  ///< collective
  int (*put)(Window, const void* from, std::uint32_t bytes, std::uint32_t to, std::uint64_t offset);
  int (*get)(Window, void* to, std::uint32_t bytes, std::uint32_t from, std::uint64_t offset);
  int (*request_put)(Window, const void* from, std::uint32_t bytes, std::uint32_t to, std::uint64_t offset,
                     Request*);
  int (*request_get)(Window, void* to, std::uint32_t bytes, std::uint32_t from, std::uint64_t offset,
                     Request*);
  /// Waits until puts and gets to target have completed here and, for puts, also there.
  int (*flush)(Window, std::uint32_t target);
};

}  // namespace kasane::comm::mpi
