// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/options.h"
#include "base/renumbered.h"

namespace kasane::mem {
namespace {

// A file without a name; -1 and errno on failure. Where the file needs a name for a moment, a kill within
// those microseconds leaves an empty file.
int open_nameless(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = directory + "/kasane-spill.XXXXXX";
  const int named = renumbered(::mkostemp(name.data(), O_CLOEXEC));
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

bool set_direct(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  return ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Writes a block and reads it back. 0 or an errno.
int try_block(int fd) {
  alignas(kBlockBytes) static constexpr char kBytes[kBlockBytes] = {'k'};
  alignas(kBlockBytes) char back[kBlockBytes];
  const auto whole = static_cast<ssize_t>(kBlockBytes);
  errno = EIO;  // for a short transfer
  if (::pwrite(fd, kBytes, kBlockBytes, 0) != whole) return errno;
  errno = EIO;
  if (::pread(fd, back, kBlockBytes, 0) != whole) return errno;
  return std::memcmp(kBytes, back, kBlockBytes) == 0 ? 0 : EIO;
}

void punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  // Best effort: `stored` decides what is read; a file system without holes keeps the space.
  (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes));
}

std::string free_text(int fd) {
  struct statvfs s{};
  if (::fstatvfs(fd, &s) != 0) return "an unknown number of";
  const std::uint64_t bytes = std::uint64_t{s.f_bavail} * s.f_frsize;
  return bytes_text(bytes >> 20 != 0 ? bytes >> 20 << 20 : bytes);
}

bool in_memory(int fd) {
  struct statfs s{};
  return ::fstatfs(fd, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

const char* remedy(int number) {
  switch (number) {
    case ENOSPC: return "free space there, or name another directory or several (--spill DIR:DIR)";
    case EDQUOT: return "the disk quota is used up: free space there, or name another directory";
    case ENOENT:
    case ENOTDIR: return "create it, or name another directory (--spill DIR)";
    case EROFS:
    case EACCES:
    case EPERM: return "name a directory that this user can write to (--spill DIR)";
    case EFBIG:
      return "the file system, or the limit of file sizes (ulimit -f), is too small for offsets of this "
             "space: name another directory, or a smaller --space";
    case ENOMEM:
      return "there is no memory for its frames: raise the limit of the control group, or lower --dram";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    default: return "look at the kernel's log (dmesg) for the device's errors, or name another directory";
  }
}

// visit(directory) for each; the first error.
template <class F>
Result<> for_each_directory(std::string_view directories, const F& visit) {
  for (;;) {
    const std::size_t colon = directories.find(':');
    const std::string directory(directories.substr(0, colon));
    if (directory.empty())
      return fail(Errc::invalid_argument, "a spill directory has an empty name: write DIR or DIR:DIR");
    KASANE_TRY(visit(directory));
    if (colon == std::string_view::npos) return {};
    directories.remove_prefix(colon + 1);
  }
}

// bytes: of the space.
Error refusal(const std::string& directory, std::uint64_t bytes, int number) {
  return fail_errno(Errc::io,
                    fmt::format("no spill file can be made in {} (it is sparse: as long as the space, {}, "
                                "see --space, and takes what is spilled); {}",
                                directory, bytes_text(bytes), remedy(number)),
                    number)
      .value();
}

}  // namespace

Result<SpillFile> SpillFile::create(std::string_view directories, std::uint64_t bytes) {
  auto stored = BlockSet::create(bytes / kBlockBytes);
  KASANE_TRY(stored);
  SpillFile file(std::move(*stored));
  KASANE_TRY(for_each_directory(directories,
                                [&](const std::string& directory) { return file.add(directory, bytes); }));
  return file;
}

Result<> SpillFile::check(std::string_view directories, std::uint64_t bytes) {
  return for_each_directory(directories, [&](const std::string& directory) -> Result<> {
    // The slash makes access() fail for a file that is no directory. Making files there needs the rights to
    // write and to search.
    if (::access((directory + "/").c_str(), W_OK | X_OK) != 0)
      return tl::unexpected(refusal(directory, bytes, errno));
    return {};
  });
}

Result<> SpillFile::add(const std::string& directory, std::uint64_t bytes) {
  const auto refuse = [&](int number) { return tl::unexpected(refusal(directory, bytes, number)); };
  rlimit limit{};
  // Checked beforehand: beyond the limit the kernel sends SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) return refuse(EFBIG);
  const int fd = open_nameless(directory);
  if (fd < 0) return refuse(errno);
  files_.push_back({directory, fd, set_direct(fd, true)});  // The destructor closes it from here on.
  OneFile& file = files_.back();
  // The full length from the start: writes that extend a file are serialised.
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return refuse(errno);
  int error = try_block(fd);
  // The device's sectors are larger than a block, or the file system refuses direct access only now.
  if (error == EINVAL && file.direct) {
    file.direct = false;
    set_direct(fd, false);
    error = try_block(fd);
  }
  if (error != 0) return refuse(error);
  punch(fd, 0, kBlockBytes);
  return {};
}

SpillFile::SpillFile(SpillFile&& o) noexcept
    : files_(std::exchange(o.files_, {})), stored_(std::move(o.stored_)), counts_(std::move(o.counts_)) {}

SpillFile::~SpillFile() {
  for (const OneFile& p : files_) ::close(p.fd);
}

void SpillFile::forget(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = stored_.next(offset / kBlockBytes); at < end / kBlockBytes;) {
    const std::uint64_t first = at * kBlockBytes,
                        stripe_end = (first / kSpillStripeBytes + 1) * kSpillStripeBytes;
    const std::uint64_t stop = std::min(end, stripe_end) / kBlockBytes;
    std::uint64_t last = at;  // of a run
    for (; last < stop && stored_.contains(BlockId{last}); ++last) stored_.erase(BlockId{last});
    punch(fd(first), first, last * kBlockBytes - first);
    at = stored_.next(last);
  }
}

Error SpillFile::error(SpillOp op, int number, std::uint64_t offset, std::uint64_t bytes) const {
  const OneFile& file = of(offset);
  const char* verb = op == SpillOp::read ? "reading" : "writing";
  const std::string what =
      fmt::format("{} {} at offset {:#x} of the spill file in {} failed, where {} bytes are free; {}", verb,
                  bytes_text(bytes), offset, file.path, free_text(file.fd), remedy(number));
  return fail_errno(Errc::io, what, number).value();
}

std::vector<std::string> SpillFile::describe() const {
  std::vector<std::string> lines;
  for (const OneFile& p : files_) {
    const char* const way =
        p.direct ? "direct" : "through the page cache (the file system has no direct I/O)";
    const char* const odd = in_memory(p.fd) ? "; it is memory, not a disk, and saves none" : "";
    lines.push_back(fmt::format("{}: {}, {} bytes free{}", p.path, way, free_text(p.fd), odd));
  }
  return lines;
}

}  // namespace kasane::mem
