// SPDX-License-Identifier: Apache-2.0
#include "base/memory_file.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>

namespace kasane {
namespace {

/// The limit belongs to the process: the first holder saves it, the last one restores it.
struct {
  std::mutex mutex;
  unsigned holders = 0;
  rlimit before{};
} g_raised;

rlim_t file_limit() noexcept {
  rlimit now{};
  return ::getrlimit(RLIMIT_FSIZE, &now) == 0 ? now.rlim_cur : RLIM_INFINITY;
}

}  // namespace

RaisedFileLimit::RaisedFileLimit() noexcept {
  const std::lock_guard lock(g_raised.mutex);
  if (g_raised.holders++ != 0) return;
  g_raised.before = {RLIM_INFINITY, RLIM_INFINITY};
  if (::getrlimit(RLIMIT_FSIZE, &g_raised.before) != 0 || g_raised.before.rlim_cur == RLIM_INFINITY) return;
  const rlimit none{RLIM_INFINITY, RLIM_INFINITY}, most{g_raised.before.rlim_max, g_raised.before.rlim_max};
  // the first limit only with privileges, as root has them
  if (::setrlimit(RLIMIT_FSIZE, &none) != 0) ::setrlimit(RLIMIT_FSIZE, &most);
}

RaisedFileLimit::~RaisedFileLimit() {
  const std::lock_guard lock(g_raised.mutex);
  if (--g_raised.holders != 0 || g_raised.before.rlim_cur == RLIM_INFINITY) return;
  ::setrlimit(RLIMIT_FSIZE, &g_raised.before);
}

Result<void> check_file_limit(const std::string& what, std::size_t bytes) {
  if (file_limit() >= bytes) return {};
  const RaisedFileLimit raised;
  const rlim_t limit = file_limit();
  if (limit >= bytes) return {};
  return fail(Errc::limit, what + ", " + std::to_string(bytes) +
                               " bytes, is beyond the limit of file sizes, " + std::to_string(limit) +
                               " bytes, which holds for memory files, too: raise it "
                               "(ulimit -f unlimited; where the shell refuses, as root, or in "
                               "/etc/security/limits.conf), or try a smaller --space (KASANE_SPACE)");
}

Result<int> memory_file(const char* name, std::size_t bytes) {
  const std::string what = "the memory file " + std::string(name);
  // checked beforehand: beyond the limit the kernel sends SIGXFSZ
  KASANE_TRY(check_file_limit(what, bytes));
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) return fail_errno(Errc::limit, what + " cannot be made (memfd_create; see ulimit -n)");
  std::optional<RaisedFileLimit> raised;
  if (file_limit() < bytes) raised.emplace();
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  const int number = errno;
  ::close(fd);
  return fail_errno(Errc::out_of_memory, what + " of " + std::to_string(bytes) + " bytes cannot be made",
                    number);
}

Result<std::byte*> map_sparse(std::size_t bytes, const std::string& what, int file) {
  const int flags = (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_NORESERVE;
  void* got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (got == MAP_FAILED) {
    return fail_errno(Errc::out_of_memory,
                      "cannot map " + std::to_string(bytes) + " bytes for " + what + " (see ulimit -v)");
  }
  // a huge page behind every touched word would commit memory 512 times faster than it is used
  ::madvise(got, bytes, MADV_NOHUGEPAGE);
  leave_out_of_core(got, bytes);
  return static_cast<std::byte*>(got);
}

void leave_out_of_core(void* mapping, std::size_t bytes) noexcept {
  if (bytes > kMostInCore) ::madvise(mapping, bytes, MADV_DONTDUMP);
}

}  // namespace kasane
