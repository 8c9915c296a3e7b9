// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/pmix.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/helper_folder.h"
#include "comm/mpi/place.h"
#include "comm/mpi/pmix_module.h"

namespace kasane::comm::mpi {
namespace {

tl::unexpected<Error> failed(const char* what, const char* why) {
  return fail(Errc::io, std::string("PMIx: ") + what + ": " + why);
}

class ByPmix final : public OutOfBand {
 public:
  ByPmix(const PmixModule& pmix, Rank rank, std::uint32_t ranks) noexcept
      : pmix_(pmix), rank_(rank), ranks_(ranks) {}
  ~ByPmix() override { end(); }
  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return ranks_; }

  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    const std::string key = "kasane." + std::to_string(round_++);
    std::string text(1, '.');  // PMIx keeps no value of no bytes
    text += mine;
    if (const char* why = pmix_.begin(key.c_str(), text.data(), text.size())) return failed("fence", why);
    for (bool done = false; !done;) {
      progress_built();
      if (const char* why = pmix_.done(&done)) return failed("fence", why);
      const timespec nap{.tv_sec = 0, .tv_nsec = 50'000};
      if (!done) ::nanosleep(&nap, nullptr);
    }
    std::vector<std::string> all(ranks_);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const auto take = [](void* into, const char* data, std::size_t bytes) {
        if (bytes != 0) static_cast<std::string*>(into)->assign(data + 1, bytes - 1);
      };
      if (const char* why = pmix_.get(r, key.c_str(), take, &all[r]))
        return failed(("what rank " + std::to_string(r) + " has put").c_str(), why);
    }
    return all;
  }

  void end() noexcept override {
    if (!std::exchange(ended_, true)) pmix_.finalize();
  }

 private:
  const PmixModule& pmix_;
  const Rank rank_;
  const std::uint32_t ranks_;
  std::uint32_t round_ = 0;
  bool ended_ = false;
};

Result<const PmixModule*> open_module() {
  const std::string file = "kasane-pmix.so", path = find_helper(file);
  const char* const instead = ", or say which MPI the ranks are for (KASANE_MPI=openmpi or mpich)";
  if (path.empty())
    return fail(Errc::unsupported, "a launcher with PMIx started this process, and " + file +
                                       " is not there: install it (Debian: kasane-pmix), build Kasane where "
                                       "libpmix-dev is installed" +
                                       instead);
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: libpmix has had a thread
  if (module == nullptr) return fail(Errc::unsupported, "cannot load " + path + ": " + ::dlerror() + instead);
  const auto* table = static_cast<const PmixModule*>(::dlsym(module, PmixModule::kSymbol));
  if (table == nullptr || table->abi != PmixModule::kAbi || table->bytes != sizeof(PmixModule))
    return fail(Errc::unsupported, path + " belongs to another build of Kasane");
  return table;
}

}  // namespace

bool meets_by_pmix(std::string_view which) noexcept {
  return which == "pmix" || (which == "auto" && place(environ).mpi == LaunchedFor::unnamed);
}

Result<std::unique_ptr<OutOfBand>> meet_by_pmix() {
  if (has_borrowed_rights())
    return fail(Errc::unsupported,
                "a program that is set-user-id, or has capabilities of its file, connects to no launcher");
  auto pmix = open_module();
  KASANE_TRY(pmix);
  std::uint32_t rank = 0, ranks = 0;
  if (const char* why = (*pmix)->init(&rank, &ranks)) return failed("connecting to the launcher", why);
  // Programs that this process starts are no ranks of this job.
  for (const char* name : {"PMIX_RANK", "PMIX_NAMESPACE"}) ::unsetenv(name);
  return std::make_unique<ByPmix>(**pmix, Rank{rank}, ranks);
}

}  // namespace kasane::comm::mpi
