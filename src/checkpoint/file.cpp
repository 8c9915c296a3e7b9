// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/options.h"

namespace kasane::checkpoint {
namespace {

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

const char* remedy(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR: return "; create the directory, or name another one";
    case EROFS:
    case EACCES:
    case EPERM: return "; name a file that this user can write";
    case ENOSPC: return "; free space there, or name another directory";
    case EDQUOT: return "; the disk quota is used up: free space there, or name another directory";
    case EFBIG: return "; the limit of file sizes (ulimit -f) or the file system is too small for it";
    default: return "";
  }
}

tl::unexpected<FileError> refuse_errno(int number, const std::string& what) {
  return refuse(number, fmt::format("{}: {}{}", what, std::strerror(number), remedy(number)));
}

std::string free_text(const std::string& path) {
  struct statvfs s {};
  if (::statvfs(folder_of(path).c_str(), &s) != 0) return "an unknown number of bytes";
  return fmt::format("{} bytes", std::uint64_t{s.f_bavail} * s.f_frsize);
}

// ulimit -f would end the process by SIGXFSZ.
FileResult<void> check_limit(const Layout& layout, const std::string& path) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || layout.file_bytes <= limit.rlim_cur) return {};
  return refuse_errno(EFBIG, fmt::format("cannot write {}, which needs {} bytes where ulimit -f allows {}", path, layout.file_bytes, limit.rlim_cur));
}

// All or an errno; 0 is success.
int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return 0;
}

// All, an errno, or -1 where the file ends before.
int read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return -1;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return 0;
}

std::string through_proc(pid_t process, int fd) { return fmt::format("/proc/{}/fd/{}", process, fd); }

int open_new(const std::string& path, bool& named) {
  if (!named) {
    const int fd = ::open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    named = true;   // a file system that has only files with names
  }
  return ::open(temporary_name(path).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
}

// The last steps: 0 or an errno, and what was tried.
int take_name(const NewFile& file, const std::string& path, std::string& tried) {
  const std::string temporary = temporary_name(path);
  if (!file.named) {
    tried = "naming it " + temporary;
    if (::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.fd).c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) return errno;
  }
  tried = "renaming " + temporary;
  if (::rename(temporary.c_str(), path.c_str()) == 0) return 0;
  const int number = errno;
  ::unlink(temporary.c_str());
  return number;
}

FileResult<void> flush_folder(const std::string& path) {
  const int fd = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int number = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (number == 0 || number == EINVAL) return {};   // a file system that does not do this for directories
  return refuse_errno(number, path + " is written and has its name, but the name may not survive a power failure: flushing its directory");
}

}  // namespace

FileResult<std::string> resolve(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(std::filesystem::absolute(path, failure), failure);
  if (failure) return refuse_errno(failure.value(), "cannot find " + path);
  if (!resolved.has_filename()) return refuse_errno(EISDIR, "cannot write " + path);
  const auto status = std::filesystem::status(resolved, failure);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return std::filesystem::is_directory(status) ? refuse_errno(EISDIR, "cannot use " + path) : refuse(EINVAL, "cannot use " + path + ": not a regular file");
  }
  return resolved.string();
}

std::string temporary_name(const std::string& path) { return path + ".kasane-new"; }

FileResult<NewFile> create(const std::string& path, const Layout& layout, bool for_hosts) {
  if (auto allowed = check_limit(layout, path); !allowed) return tl::unexpected(allowed.error());
  ::unlink(temporary_name(path).c_str());   // what a job left that was killed
  NewFile file;
  file.named = for_hosts;
  file.holder = ::getpid();
  file.fd = open_new(path, file.named);
  if (file.fd < 0) return refuse_errno(errno, fmt::format("cannot write {} ({} bytes)", path, layout.file_bytes));
  std::array<std::byte, sizeof file.mark> mark{};
  int number = ::getrandom(file.mark, sizeof file.mark, 0) == sizeof file.mark ? 0 : EIO;
  std::memcpy(mark.data(), file.mark, sizeof file.mark);
  if (number == 0 && ::ftruncate(file.fd, static_cast<off_t>(layout.file_bytes)) != 0) number = errno;
  if (number == 0) number = write_all(file.fd, mark, 0);
  if (number == 0) return file;
  abandon(file, path);
  return refuse_errno(number, fmt::format("cannot write {}, which needs up to {} bytes where {} are free", path, layout.file_bytes, free_text(path)));
}

FileResult<int> open_same(const std::string& path, const Layout& layout, const NewFile& file) {
  if (auto allowed = check_limit(layout, path); !allowed) return tl::unexpected(allowed.error());
  const std::string name = file.named ? temporary_name(path) : through_proc(file.holder, file.fd);
  const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return refuse_errno(errno, "cannot open " + name);
  std::array<std::byte, sizeof file.mark> mark{};
  if (read_all(fd, mark, 0) == 0 && std::memcmp(mark.data(), file.mark, mark.size()) == 0) return fd;
  ::close(fd);
  return refuse(ESTALE, name + " is another file here");
}

FileResult<void> write(int fd, std::span<const std::byte> bytes, std::uint64_t chunk, const Layout& layout, const std::string& path) {
  const int number = write_all(fd, bytes, layout.offset_of(chunk));
  if (number == 0) return {};
  return refuse_errno(number, fmt::format("writing {} bytes of {} from chunk {} of {} on; the file needs up to {} bytes, {} are free there", bytes.size(),
                                          path, chunk, layout.chunks, layout.file_bytes, free_text(path)));
}

FileResult<void> flush(int fd, const std::string& path) {
  if (::fsync(fd) == 0) return {};
  const int number = errno;
  return refuse_errno(number, fmt::format("flushing {}, where {} are free", path, free_text(path)));
}

FileResult<void> commit(NewFile& file, const Contents& contents, std::span<const std::uint64_t> table, const std::string& path) {
  const Layout layout(contents.bytes());
  std::vector<std::byte> head(kHeaderBytes + table.size_bytes());
  const Header header = make_header(contents, table);
  std::memcpy(head.data(), &header, sizeof header);
  if (!table.empty()) std::memcpy(head.data() + kHeaderBytes, table.data(), table.size_bytes());
  const int number = write_all(file.fd, head, 0);
  FileResult<void> done;
  if (number != 0) {
    done = refuse_errno(number, fmt::format("writing the header of {}; the file needs up to {} bytes, {} are free there", path, layout.file_bytes,
                                            free_text(path)));
  } else {
    done = flush(file.fd, path);
  }
  if (!done) {
    abandon(file, path);
    return done;
  }
  std::string tried;
  if (const int failed = take_name(file, path, tried)) done = refuse_errno(failed, fmt::format("the file for {} is written, but not {}", path, tried));
  ::close(std::exchange(file.fd, -1));
  return done ? flush_folder(path) : done;
}

void abandon(NewFile& file, const std::string& path) noexcept {
  if (file.fd < 0) return;
  if (file.named) ::unlink(temporary_name(path).c_str());
  ::close(std::exchange(file.fd, -1));
}

// ---- reading ------------------------------------------------------------------------------------------------------------------

FileResult<OldFile> OldFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat s {};
  if (fd < 0 || ::fstat(fd, &s) != 0) {
    const int number = errno;
    if (fd >= 0) ::close(fd);
    return refuse(number, fmt::format("cannot read {}: {}", path, std::strerror(number)));
  }
  OldFile file(fd, path);
  if (!S_ISREG(s.st_mode)) return refuse(EINVAL, path + " is not a regular file");
  const auto file_bytes = static_cast<std::uint64_t>(s.st_size);
  const auto read_failure = [&](int number) { return refuse_errno(number < 0 ? EIO : number, "reading the header of " + path); };
  const std::uint64_t head = std::min<std::uint64_t>(file_bytes, sizeof(Header));
  if (const int number = read_all(fd, std::as_writable_bytes(std::span(&file.header_, 1)).first(head), 0)) return read_failure(number);
  if (auto good = check(file.header_, file_bytes, path); !good) return tl::unexpected(good.error());
  file.table_.resize(file.header_.chunks);
  if (const int number = read_all(fd, std::as_writable_bytes(std::span(file.table_)), kHeaderBytes)) return read_failure(number);
  if (checksum(file.table_.data(), file.table_.size() * sizeof(std::uint64_t)) != file.header_.table_checksum)
    return refuse(EIO, path + ": the table of chunks is damaged (its checksum does not match)");
  return file;
}

OldFile::OldFile(OldFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), header_(other.header_), table_(std::move(other.table_)) {}

OldFile::~OldFile() {
  if (fd_ >= 0) ::close(fd_);
}

FileResult<void> OldFile::read(std::span<std::byte> bytes, std::uint64_t first) const {
  const Layout layout(header_.contents().bytes());
  const int number = read_all(fd_, bytes, layout.offset_of(first));
  if (number != 0) {
    return number < 0 ? refuse(EIO, fmt::format("{} became shorter while it was read; chunk {} or one after it is incomplete", path_, first))
                      : refuse_errno(number, fmt::format("reading {} bytes of {} from chunk {} of {} on", bytes.size(), path_, first, layout.chunks));
  }
  for (std::uint64_t chunk = first; !bytes.empty(); ++chunk) {
    const std::span<std::byte> one = bytes.first(layout.bytes_of(chunk));
    if (chunk_word(one.data(), one.size()) != table_[chunk])
      return refuse(EIO, fmt::format("{}: chunk {} of {} is damaged (its checksum does not match): bytes {} to {} of the data", path_, chunk, layout.chunks,
                                     chunk * kChunkBytes, chunk * kChunkBytes + one.size() - 1));
    bytes = bytes.subspan(one.size());
  }
  return {};
}

}  // namespace kasane::checkpoint
