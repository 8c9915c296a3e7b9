// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/agreement.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "mem/space.h"

namespace kasane::runtime {
namespace {

/// Every row's value, a line each.
std::string written(Options& options) {
  const OptionTable table = option_table(options);
  std::string text;
  for (std::size_t i = 0; i < table.rows().size(); ++i) text += table.value_text(i) + "\n";
  return text;
}

Result<void> take(Options& options, std::string_view text) {
  OptionTable table = option_table(options);
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return fail(Errc::unsupported,
                  "rank 0 has other options than this rank: the program is of another build");
    KASANE_TRY(table.set(i, text.substr(0, end), OptionSource::environment));
    text.remove_prefix(end + 1);
  }
  return {};
}

template <class T>
Result<std::vector<T>> gather(comm::OutOfBand& ranks, const T& mine) {
  const auto all = ranks.allgather({reinterpret_cast<const char*>(&mine), sizeof mine});
  if (!all) return tl::unexpected<Error>(all.error());
  std::vector<T> values;
  for (const std::string& bytes : *all) {
    if (bytes.size() != sizeof(T)) return fail(Errc::unsupported, "a rank speaks another version of Kasane");
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(T));
  }
  return values;
}

std::string hexadecimal(std::uintptr_t n) {
  char text[20];
  std::snprintf(text, sizeof text, "%#zx", static_cast<std::size_t>(n));
  return text;
}

/// The rank that an error names when no candidate is free on all: the first without which one would be free,
/// or the first that has the fewest.
std::size_t culprit(const std::vector<std::uint64_t>& free) {
  for (std::size_t r = 0; r < free.size(); ++r) {
    std::uint64_t others = ~std::uint64_t{0};
    for (std::size_t q = 0; q < free.size(); ++q) others &= q == r ? ~std::uint64_t{0} : free[q];
    if (others != 0) return r;
  }
  return static_cast<std::size_t>(std::min_element(free.begin(), free.end()) - free.begin());
}

Result<std::byte*> agree_on_base(comm::OutOfBand& ranks, std::size_t bytes) {
  const auto free = gather(ranks, mem::free_candidates(bytes));
  KASANE_TRY(free);
  std::uint64_t everywhere = ~std::uint64_t{0};
  for (const std::uint64_t mask : *free) everywhere &= mask;
  if (everywhere == 0) {
    return fail(Errc::limit, "rank " + std::to_string(culprit(*free)) + " has no room for a space of " +
                                 bytes_text(bytes) +
                                 " at an address that is free on the other ranks (see ulimit -v there; try a "
                                 "smaller --space, KASANE_SPACE)");
  }
  const std::uintptr_t base = mem::candidate_base(static_cast<unsigned>(std::countr_zero(everywhere)));
  auto reserved = mem::reserve_space(bytes, base);
  const auto succeeded = gather(ranks, std::uint8_t{reserved.has_value()});
  KASANE_TRY(succeeded);
  const auto failed = std::find(succeeded->begin(), succeeded->end(), 0);
  if (failed == succeeded->end()) return reserved;
  return fail(Errc::limit, "rank " + std::to_string(failed - succeeded->begin()) +
                               " cannot reserve the space at " + hexadecimal(base) +
                               (reserved ? std::string() : ": " + reserved.error().message));
}

}  // namespace

Result<std::byte*> agree(comm::OutOfBand& ranks, Options& options, std::uint64_t default_workers) {
  const auto texts = ranks.allgather(written(options));
  if (!texts) return tl::unexpected<Error>(texts.error());
  const Options own = options;
  KASANE_TRY(take(options, texts->front()));
  const auto differs = [](const char* variable, const std::string& here, const std::string& there) {
    return fail(Errc::invalid_argument, std::string(variable) + " is \"" + here + "\" on this rank and \"" +
                                            there + "\" on rank 0: pass it to all ranks (mpirun -x, -genv)");
  };
  // Of these the libraries have been looked up already.
  if (options.globals_of != own.globals_of)
    return differs("KASANE_GLOBALS_OF", own.globals_of, options.globals_of);
  if (options.code_of != own.code_of) return differs("KASANE_CODE_OF", own.code_of, options.code_of);
  struct Machine {
    std::uint64_t workers, numa_pools;
  };
  const auto machines = gather(ranks, Machine{default_workers, options.numa_pools});
  KASANE_TRY(machines);
  if (options.workers == 0) options.workers = std::ranges::min(*machines, {}, &Machine::workers).workers;
  options.numa_pools = std::ranges::max(*machines, {}, &Machine::numa_pools).numa_pools;
  if (options.space_bytes == 0) options.space_bytes = usual_space(ranks.ranks());
  return agree_on_base(ranks, options.space_bytes);
}

}  // namespace kasane::runtime
