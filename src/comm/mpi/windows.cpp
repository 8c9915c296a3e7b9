// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/windows.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/memory_file.h"

namespace kasane::comm::mpi {
namespace {

// The experiment's times. They decide between two ways that are both correct, so on a busy machine only speed
// is at stake.
constexpr std::uint64_t kTargetSleepsNs = 6'000'000;
constexpr std::uint64_t kProberTriesNs = 2'000'000;  // much shorter than the target's sleep
constexpr std::uint64_t kOneSidedNs = 1'000'000;     // one-sided: no single operation took longer
constexpr int kRounds = 3;
constexpr std::size_t kScratchBytes = std::size_t{2} << 20;

/// A sparse page-cache file like the regions', mapped.
class Scratch {
 public:
  Scratch() : fd_(memory_file("kasane-mpi-probe", kScratchBytes).value_or(-1)) {
    if (fd_ >= 0) base_ = map_sparse(kScratchBytes, "a probe", fd_).value_or(nullptr);
  }
  ~Scratch() {
    if (base_ != nullptr) ::munmap(base_, kScratchBytes);
    if (fd_ >= 0) ::close(fd_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] bool populated() const noexcept {
    struct stat s{};
    return ::fstat(fd_, &s) == 0 && static_cast<std::size_t>(s.st_blocks) * 512 > kScratchBytes / 2;
  }

 private:
  int fd_;
  std::byte* base_ = nullptr;
};

/// True only if every rank says so.
Result<bool> everywhere(Library& library, bool mine) {
  auto all = library.out_of_band().allgather(mine ? "1" : "0");
  if (!all) return tl::unexpected<Error>(std::move(all).error());
  for (const auto& one : *all) {
    if (one != "1") return false;
  }
  return true;
}

void sleep_ns(std::uint64_t ns) noexcept {
  const timespec t{.tv_sec = 0, .tv_nsec = static_cast<long>(ns)};
  ::nanosleep(&t, nullptr);
}

/// Puts and gets a word repeatedly; the longest single operation decides.
bool quick(Library& library, Window window, std::uint32_t target) {
  std::uint64_t word = 1, longest = 0;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t now = begin; now - begin < kProberTriesNs;) {
    const int code = library.locked([&] {
      const Module& t = library.table();
      int c = t.put(window, &word, sizeof(word), target, 0);
      if (c == 0) c = t.flush(window, target);
      if (c == 0) c = t.get(window, &word, sizeof(word), target, 0);
      return c == 0 ? t.flush(window, target) : c;
    });
    if (code != 0) return false;
    const std::uint64_t after = now_ns();
    longest = std::max(longest, after - now);
    now = after;
  }
  return longest < kOneSidedNs;
}

/// Even ranks put to the next rank while odd ones sleep, then the other way round.
Result<bool> one_sided(Library& library, Window window) {
  const std::uint32_t me = raw(library.rank()), next = (me + 1) % library.ranks();
  if (library.ranks() == 1) return true;
  for (int round = 0; round < kRounds; ++round) {
    bool good = true;
    for (std::uint32_t turn = 0; turn < 2; ++turn) {
      KASANE_TRY(everywhere(library, true));  // all start together
      if (me % 2 != turn) {
        sleep_ns(kTargetSleepsNs);
      } else if (next % 2 != turn) {
        // with an odd number of ranks the last rank's next one does not sleep
        good = quick(library, window, next) && good;
      }
    }
    auto all_good = everywhere(library, good);
    if (!all_good || *all_good) return all_good;
  }
  return false;
}

Result<WindowFindings> experiment(Library& library, Communicator channel) {
  WindowFindings found;
  Scratch scratch;
  auto ready = everywhere(library, scratch.base() != nullptr);
  if (!ready) return tl::unexpected<Error>(std::move(ready).error());
  if (!*ready) return found;
  Window window{};
  const int code =
      library.locked([&] { return library.table().window(channel, scratch.base(), kScratchBytes, &window); });
  auto created = everywhere(library, code == 0);
  if (!created) return tl::unexpected<Error>(std::move(created).error());
  if (!*created) return found;
  found.created = true;
  auto sparse = everywhere(library, !scratch.populated());
  if (!sparse) return tl::unexpected<Error>(std::move(sparse).error());
  found.pins = !*sparse;
  auto sided = one_sided(library, window);
  if (!sided) return tl::unexpected<Error>(std::move(sided).error());
  found.one_sided = *sided;
  library.locked([&] { return library.table().free_window(&window); });
  return found;
}

}  // namespace

Result<WindowFindings> Windows::probe(Library& library, Communicator channel) {
  std::optional<WindowFindings>& known = library.window_findings();
  if (!known) {
    auto found = experiment(library, channel);
    if (!found) return found;
    known = *found;
  }
  return *known;
}

Result<void> Windows::open(RegionId id, std::byte* base, std::size_t bytes) {
  Window window{};
  const int code = library_.locked([&] { return library_.table().window(channel_, base, bytes, &window); });
  auto all = everywhere(library_, code == 0);
  if (!all) return tl::unexpected<Error>(std::move(all).error());
  windows_[raw(id)] = window;
  // release: a thread that sees it open sees the handle
  open_[raw(id)].store(*all, std::memory_order_release);
  return {};
}

void Windows::close_locked() noexcept {
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    // No thread uses it any more, so any order would do.
    if (open_[i].exchange(false, std::memory_order_acq_rel)) library_.table().free_window(&windows_[i]);
  }
}

}  // namespace kasane::comm::mpi
