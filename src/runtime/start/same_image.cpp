// SPDX-License-Identifier: Apache-2.0
// Runs before libc has set `environ`, so it reads the environment that the loader passes. Nothing here
// allocates.
#include "runtime/start/same_image.h"

#include <elf.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/start/load_again.h"

namespace kasane::runtime {
namespace {

/// In the environment of the second and the third start only. Its value is the program's original stack
/// limit, and for the third start also the address and size of the second start's image.
constexpr char kMarker[] = "KASANE_SAME_IMAGE=";
constexpr std::size_t kNumbers = 3, kMarkerBytes = sizeof kMarker + kNumbers * 21;
constexpr rlim_t kStackBytes = 8 << 20;  ///< the limit determines where the kernel maps libraries

bool g_same_image = false;

// ---- the first start --------------------------------------------------------------------------------------

/// Returns the old limit.
rlim_t set_stack_limit(rlim_t bytes) noexcept {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return bytes;
  const rlim_t before = std::exchange(limit.rlim_cur, std::min(limit.rlim_max, bytes));
  ::setrlimit(RLIMIT_STACK, &limit);
  return before;
}

/// kMarker and the numbers, in decimal.
void write_marker(char* to, const rlim_t (&numbers)[kNumbers]) noexcept {
  to = std::copy_n(kMarker, sizeof kMarker - 1, to);
  for (const rlim_t n : numbers) {
    to = std::to_chars(to, to + 20, n).ptr;
    *to++ = ' ';
  }
  *--to = '\0';
}

/// Started as an argument of the dynamic loader (ld.so program): /proc/self/exe is the loader then.
bool loader_is_program() noexcept { return ::getauxval(AT_BASE) == 0; }

/// Executes the program again. Where the system refuses to switch randomisation off, the second start still
/// has the fixed stack limit, which determines the layout of the image. Returns only if the program cannot be
/// executed: then the ranks compare their loaded objects.
void start_again(char** argv, char** environment) noexcept {
  const int before = ::personality(0xFFFFFFFF);
  if (before >= 0) ::personality(static_cast<unsigned long>(before) | ADDR_NO_RANDOMIZE);
  const rlim_t stack = set_stack_limit(kStackBytes);
  std::size_t n = 0;
  while (environment[n] != nullptr) ++n;
  auto** longer = static_cast<char**>(__builtin_alloca((n + 2) * sizeof(char*)));
  std::copy_n(environment, n, longer);
  char marker[kMarkerBytes];
  write_marker(marker, {stack, 0, 0});
  longer[n] = marker;
  longer[n + 1] = nullptr;
  // By its real path, so that ps shows the program's name.
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) {
    path[length] = '\0';
    ::execve(path, argv, longer);
  }
  ::execve("/proc/self/exe", argv, longer);
  // Without /proc: by the name from the command line.
  ::execve(reinterpret_cast<const char*>(::getauxval(AT_EXECFN)), argv, longer);
  if (before >= 0) ::personality(static_cast<unsigned long>(before));
  set_stack_limit(stack);
}

// ---- the second start -------------------------------------------------------------------------------------

bool is_marker(const char* variable) noexcept {
  return std::strncmp(variable, kMarker, sizeof kMarker - 1) == 0;
}

/// The numbers of the last marker. False: there is none.
bool read_marker(char* const* environment, rlim_t (&numbers)[kNumbers]) noexcept {
  const char* found = nullptr;
  for (; *environment != nullptr; ++environment) {
    if (is_marker(*environment)) found = *environment;
  }
  if (found == nullptr) return false;
  char* at = const_cast<char*>(found) + sizeof kMarker - 1;
  for (rlim_t& number : numbers) number = std::strtoull(at, &at, 10);
  return true;
}

void take_markers(char** environment) noexcept {
  char** to = environment;
  for (char** from = environment; *from != nullptr; ++from) {
    if (!is_marker(*from)) *to++ = *from;
  }
  *to = nullptr;
}

/// FNV-1a, then a finish in which every bit depends on every byte (SplitMix64).
class Mix {
 public:
  void add(const void* bytes, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i)
      hash_ = (hash_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001B3u;
  }
  void add(const char* text) noexcept {
    if (text != nullptr) add(static_cast<const void*>(text), std::strlen(text) + 1);
  }
  [[nodiscard]] std::uint64_t value(std::uint64_t which) const noexcept {
    std::uint64_t x = hash_ + which * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

/// A hash of the program's segments and their sizes: the same on all ranks, another one for another build.
void add_program(Mix& mix) noexcept {
  const auto* headers = reinterpret_cast<const Elf64_Phdr*>(::getauxval(AT_PHDR));
  if (headers != nullptr) mix.add(headers, ::getauxval(AT_PHNUM) * sizeof(Elf64_Phdr));
}

/// A text that this job has and other jobs have not, from one source alone: all ranks must find the same, and
/// variables of an allocation or an outer job may be set on the host of mpirun and missing on others. First
/// the launcher's own secret, which it puts into every rank's environment; then the user's key, also a
/// secret; last PMIx's name, which every rank gets and which is not secret. Slurm's numbers are not used:
/// mpirun inherits them, other hosts may not have them.
const char* job_secret(char* const* environment) noexcept {
  // the first and the last then belong to an outer job
  const bool mpich = comm::mpi::place(environment).mpi == comm::mpi::LaunchedFor::mpich;
  for (const char* name : {mpich ? nullptr : "OMPI_MCA_orte_precondition_transports", kJobKeyVariable,
                           mpich ? nullptr : "PMIX_NAMESPACE"}) {
    const char* value = name != nullptr ? comm::mpi::find_variable(environment, name) : nullptr;
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

Mix job_identity(char* const* environment) noexcept {
  Mix mix;
  add_program(mix);
  mix.add(job_secret(environment));
  return mix;
}

/// Has no canary itself: the canary at its end would differ from the one at its begin.
[[gnu::no_stack_protector, gnu::noinline]] void set_guards(std::uint64_t canary,
                                                           std::uint64_t pointers) noexcept {
  // Where glibc keeps them (tcbhead_t). The canary's first byte is 0, so that no string operation copies it.
  asm volatile("movq %0, %%fs:0x28\n\tmovq %1, %%fs:0x30"
               :
               : "r"(canary & ~std::uint64_t{0xFF}), "r"(pointers)
               : "memory");
}

[[gnu::noinline]] void prepare(char** argv, char** environment, std::uint64_t& canary,
                               std::uint64_t& pointers) noexcept {
  if (!mpi_place(environment).launched() || loader_is_program()) return;
  rlim_t numbers[kNumbers];
  if (!read_marker(environment, numbers)) return start_again(argv, environment);
  const auto [stack, first, first_bytes] = numbers;
  const int now = ::personality(0xFFFFFFFF);
  if (loaded_again()) {
    drop_first_image({first, first_bytes}, environment);
  } else if ((now & ADDR_NO_RANDOMIZE) == 0) {  // the system refused it
    const FirstImage image = first_image();
    char marker[kMarkerBytes];
    write_marker(marker, {stack, image.program, image.bytes});
    load_again(argv, environment, marker);  // returns on failure: the ranks then compare their objects
  }
  take_markers(environment);
  // Programs that ranks start are randomised and have the user's limit; the layout of this one is complete.
  set_stack_limit(stack);
  if (now >= 0)
    ::personality(static_cast<unsigned long>(now) & ~static_cast<unsigned long>(ADDR_NO_RANDOMIZE));
  const Mix mix = job_identity(environment);
  canary = mix.value(1);
  pointers = mix.value(2);
  g_same_image = true;
}

}  // namespace

comm::mpi::Place mpi_place(char* const* environment) noexcept {
  return comm::mpi::find_variable(environment, "KASANE_RANKS") != nullptr ? comm::mpi::Place{}
                                                                          : comm::mpi::place(environment);
}

bool same_image() noexcept { return g_same_image; }

// Has no canary itself: it would lie on the stack while the canary changes.
[[gnu::no_stack_protector]] void become_same_image(char** argv, char** environment) noexcept {
  std::uint64_t canary = 0, pointers = 0;
  prepare(argv, environment, canary, pointers);
  if (g_same_image) set_guards(canary, pointers);
}

}  // namespace kasane::runtime
