// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/library.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/helper_folder.h"
#include "comm/mpi/place.h"
#include "comm/settings.h"
#include "comm/shm_files.h"

namespace kasane::comm::mpi {
namespace {

// ---- which MPI, and where its module lies -----------------------------------------------------------------

Result<std::string> resolve(std::string_view which) {
  if (which == "openmpi" || which == "mpich") return std::string(which);
  if (which != "auto")
    return fail(Errc::invalid_argument,
                "MPI '" + std::string(which) + "' is not known: openmpi, mpich or auto");
  switch (place(environ).mpi) {
    case LaunchedFor::openmpi: return std::string("openmpi");
    case LaunchedFor::mpich: return std::string("mpich");
    case LaunchedFor::unnamed:
      return fail(Errc::invalid_argument,
                  "a launcher started this process (PMIX_RANK is set), but does not say for which MPI: name "
                  "the one that it is built for "
                  "with --mpi (KASANE_MPI=openmpi or mpich)");
    case LaunchedFor::agent:
      return fail(Errc::invalid_argument, "kasane run --hosts started this process, and no MPI did");
    case LaunchedFor::none: break;
  }
  return fail(Errc::invalid_argument,
              "no mpirun started this process (none of OMPI_COMM_WORLD_RANK, PMI_RANK and PMIX_RANK is set): "
              "start it by mpirun, or name the MPI");
}

Result<const Module*> open_module(const std::string& name) {
  const std::string file = "kasane-mpi-" + name + ".so";
  const std::string path = find_helper(file);
  if (path.empty()) {
    std::string tried;
    for (const std::string& folder : helper_folders()) tried += (tried.empty() ? "" : ", ") + folder;
    return fail(Errc::unsupported, file + " is not in " + tried +
                                       ": build Kasane where this MPI's development package is installed");
  }
  // Global: plug-ins that Open MPI loads later look for its symbols there. Never closed: MPIs leave
  // thread-specific keys and handlers behind.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) return fail(Errc::unsupported, "cannot load " + path + ": " + ::dlerror());
  const auto* table = static_cast<const Module*>(::dlsym(module, kModuleSymbol));
  if (table == nullptr || table->abi != kModuleAbi || table->bytes != sizeof(Module)) {
    return fail(Errc::unsupported, path + " belongs to another build of Kasane");
  }
  return table;
}

// ---- what the MPI must leave alone ------------------------------------------------------------------------

constexpr const char* kSingleCopy = "OMPI_MCA_btl_vader_single_copy_mechanism";
bool g_single_copy_off = false;  ///< by set_defaults_for_program()

/// Defaults, where the user has set nothing else.
void prepare_environment() noexcept {
  if (g_single_copy_off) ::unsetenv(kSingleCopy);
  g_single_copy_off = false;
  constexpr int kKeep = 0;
  // no stack-trace handlers on SIGSEGV: Kasane handles faults
  ::setenv("OMPI_MCA_opal_signal", "", kKeep);
  // no hooks in mmap and munmap, which the runtime calls all the time
  ::setenv("OMPI_MCA_memory", "^patcher", kKeep);
  if (void* loaded = ::dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD)) {
    // too late for UCX: it read its environment when it was loaded
    ::dlclose(loaded);
    return;
  }
  ::setenv("UCX_HANDLE_ERRORS", "none", kKeep);  // UCX, on which both MPIs may stand: no handlers …
  ::setenv("UCX_DEBUG_SIGNO", "0", kKeep);       // … and which would take SIGHUP
  ::setenv("UCX_MEM_EVENTS", "n", kKeep);
}

/// Settings while the MPI starts. On one host its ranks need no sockets that other processes could connect
/// to.
void prepare_start(Settings& settings, const std::optional<ShmFolder>& folder) {
  if (folder) settings.set("UCX_POSIX_DIR", folder->path());
  const Place here = place(environ);
  if (here.ranks == 0 || here.local_ranks != here.ranks) return;
  settings.set("OMPI_MCA_btl", "^tcp,uct,openib,ofi");  // the last three as distributions do
  settings.set("UCX_TLS", "posix,cma,self");
}

/// Restores the dispositions of the synchronous signals after a library may have changed them.
class KeepSignals {
 public:
  KeepSignals() noexcept {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// ---- out of band ------------------------------------------------------------------------------------------

class OverMpi final : public OutOfBand {
 public:
  OverMpi(Library& library, Communicator channel) noexcept : library_(library), channel_(channel) {}
  Rank rank() const noexcept override { return library_.rank(); }
  std::uint32_t ranks() const noexcept override { return library_.ranks(); }

  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    const std::size_t n = ranks();
    // Sizes first.
    const int size = static_cast<int>(mine.size());
    std::vector<int> sizes(n), counts(n, static_cast<int>(sizeof(int))), offsets(n);
    for (std::size_t r = 0; r < n; ++r) offsets[r] = static_cast<int>(r * sizeof(int));
    KASANE_TRY(gather(&size, sizeof(size), sizes.data(), counts, offsets));
    int total = 0;
    for (std::size_t r = 0; r < n; ++r) {
      offsets[r] = total;
      total += sizes[r];
    }
    std::string everything(static_cast<std::size_t>(total), '\0');
    KASANE_TRY(gather(mine.data(), size, everything.data(), sizes, offsets));
    std::vector<std::string> all(n);
    for (std::size_t r = 0; r < n; ++r)
      all[r] = everything.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r]));
    return all;
  }

 private:
  Result<void> gather(const void* mine, int bytes, void* all, const std::vector<int>& counts,
                      const std::vector<int>& offsets) {
    Request request{};
    const int code = library_.locked([&] {
      return library_.table().allgather(channel_, mine, bytes, all, counts.data(), offsets.data(), &request);
    });
    if (code != 0) return library_.failed(code, "allgather");
    return library_.finish(request, "allgather", [this] { progress_built(); });
  }

  Library& library_;
  Communicator channel_;
};

}  // namespace

// ---- Library ----------------------------------------------------------------------------------------------

bool Library::launched() noexcept { return place(environ).launched(); }

void Library::yield() noexcept { ::sched_yield(); }

tl::unexpected<Error> Library::failed(int code, std::string_view what) {
  std::array<char, 512> text{};
  locked([&] {
    table_->error_text(code, text.data(), text.size());
    return 0;
  });
  return fail(Errc::io, std::string(name()) + ": " + std::string(what) + ": " + text.data());
}

Result<void> Library::before_finalize(void (*function)()) {
  if (const int code = table_->before_finalize(function); code != 0)
    return failed(code, "an attribute of MPI_COMM_SELF");
  return {};
}

void Library::abort(int status) noexcept {
  // Without the lock: its holder may be the cause of the error, and nothing comes after this.
  table_->abort(status);
  std::abort();
}

Result<void> Library::join(const void* communicator) {
  std::array<char, 64> text{};
  table_->version(text.data(), text.size());
  version_ = text.data();
  const int code = table_->communicator(communicator, &out_of_band_channel_, &rank_, &ranks_);
  if (code != 0) return failed(code, "duplicating the communicator");
  out_of_band_ = std::make_unique<OverMpi>(*this, out_of_band_channel_);
  return {};
}

Library::~Library() { end(); }

void Library::end() noexcept {
  if (std::exchange(ended_, true)) return;
  while (!lock_.try_lock()) yield();  // never unlocked
  for (AtEnd* user : at_end_) user->give_back();
  if (out_of_band_ != nullptr && table_->running()) table_->free_communicator(&out_of_band_channel_);
  if (finalize_) table_->finalize();
}

Result<std::shared_ptr<Library>> load(std::string_view which, int* argc, char*** argv) {
  if (has_borrowed_rights()) {
    return fail(Errc::unsupported,
                "a program that is set-user-id, or has capabilities of its file, loads no MPI: its variables "
                "say what code to load");
  }
  auto name = resolve(which);
  if (!name) return tl::unexpected<Error>(std::move(name).error());
  prepare_environment();
  std::optional<ShmFolder> folder;
  // otherwise UCX uses its own default
  if (auto made = ShmFolder::create()) folder.emplace(std::move(*made));
  Settings settings;
  prepare_start(settings, folder);
  const KeepSignals keep;  // around dlopen too: libraries install handlers when they are loaded
  auto table = open_module(*name);
  if (!table) return tl::unexpected<Error>(std::move(table).error());
  bool ours = false, level_ok = false;
  const int code = (*table)->init(argc, argv, &ours, &level_ok);
  std::shared_ptr<Library> library(new Library(*table, ours && code == 0));
  claim_segments_of_open_mpi();
  if (folder) {
    folder->remove_name();
    library->ucx_folder_.emplace(std::move(*folder));
  }
  if (code != 0) return library->failed(code, "MPI_Init_thread");
  Result<void> joined;
  if (!level_ok) {
    joined = fail(Errc::unsupported, std::string((*table)->name) +
                                         " allows one thread only: MPI_THREAD_SERIALIZED or above is needed");
  } else {
    joined = library->join(nullptr);
  }
  if (joined) return library;
  // Other ranks may go on, and MPI_Finalize would wait for them. Without it mpirun ends the job when this
  // process ends.
  library->ended_ = true;
  return tl::unexpected<Error>(std::move(joined).error());
}

// ---- the program's own MPI --------------------------------------------------------------------------------

void set_defaults_for_program(bool single_copy) noexcept {
  prepare_environment();
  if (single_copy || std::getenv(kSingleCopy) != nullptr) return;
  ::setenv(kSingleCopy, "none", 1);
  g_single_copy_off = true;
}

namespace {

/// The MPI whose functions this process has; empty: none that is seen by all, or one that is not known.
std::string loaded_mpi() {
  const auto version =
      reinterpret_cast<int (*)(char*, int*)>(::dlsym(RTLD_DEFAULT, "MPI_Get_library_version"));
  if (version == nullptr) return {};
  constexpr std::size_t kLongest = 8192;
  std::string text(kLongest, '\0');
  int length = 0;
  version(text.data(), &length);
  if (text.starts_with("Open MPI")) return "openmpi";
  return text.starts_with("MPICH") ? "mpich" : std::string();
}

}  // namespace

Result<std::shared_ptr<Library>> adopt(std::string_view which, const void* communicator) {
  const std::string loaded = loaded_mpi();
  if (which == "auto" && place(environ).mpi == LaunchedFor::none) {
    if (communicator == nullptr) return nullptr;
    if (!loaded.empty()) which = loaded;
  }
  auto name = resolve(which);
  if (!name) return tl::unexpected<Error>(std::move(name).error());
  if (!loaded.empty() && loaded != *name) {
    return fail(Errc::invalid_argument,
                "the program uses " + loaded + ", and " +
                    (which == "auto" ? "the launcher that started it is that of " : "was asked for is ") +
                    *name + ": use one MPI");
  }
  const KeepSignals keep;
  auto table = open_module(*name);
  if (!table) return tl::unexpected<Error>(std::move(table).error());
  if (!(*table)->running())
    return fail(Errc::invalid_argument, std::string((*table)->name) + " does not run: call MPI_Init before");
  std::shared_ptr<Library> library(new Library(*table, false));
  static bool claimed = false;  // for good
  if (!std::exchange(claimed, true)) claim_segments_of_open_mpi();
  KASANE_TRY(library->join(communicator));
  return library;
}

}  // namespace kasane::comm::mpi
