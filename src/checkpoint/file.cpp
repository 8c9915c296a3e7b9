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
#include <deque>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/options.h"
#include "base/output_file.h"

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
  struct statvfs s{};
  if (::statvfs(folder_of(path).c_str(), &s) != 0) return "an unknown number of bytes";
  return fmt::format("{} bytes", std::uint64_t{s.f_bavail} * s.f_frsize);
}

// ulimit -f would end the process by SIGXFSZ.
FileResult<void> check_limit(const FileLayout& layout, const std::string& path) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      layout.file_bytes <= limit.rlim_cur)
    return {};
  return refuse_errno(EFBIG, fmt::format("cannot write {}, which needs {} bytes where ulimit -f allows {}",
                                         path, layout.file_bytes, limit.rlim_cur));
}

// Writes all bytes. 0 or an errno.
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

// Reads all bytes. 0, an errno, or -1 where the file ends before.
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

bool is_there(const std::string& path, struct stat& s) { return ::lstat(path.c_str(), &s) == 0; }

int open_new(const std::string& path, NewFile& file) {
  // The mode of the file that it replaces is applied only at the end (take_mode).
  struct stat old{};
  const mode_t mode = is_there(path, old) ? 0600 : 0666;
  if (!file.named) {
    const int fd = ::open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    file.named = true;  // a file system that has only files with names
  }
  return ::open(temporary_name(path, file).c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, mode);
}

// Gives the new file the owner, group and permissions of the one that it replaces, as far as this user may. 0
// or an errno.
int take_mode(int fd, const std::string& path) {
  struct stat old{}, now{};
  if (!is_there(path, old)) return errno == ENOENT ? 0 : errno;
  if (!S_ISREG(old.st_mode)) return EINVAL;
  if (::fstat(fd, &now) != 0) return errno;
  if (now.st_uid != old.st_uid) (void)!::fchown(fd, old.st_uid, static_cast<gid_t>(-1));  // only root may
  bool same_group = now.st_gid == old.st_gid;
  if (!same_group) same_group = ::fchown(fd, static_cast<uid_t>(-1), old.st_gid) == 0;
  mode_t mode = old.st_mode & 0777;
  // Rights of one group are no rights of another
  if (!same_group) mode = (mode & ~mode_t{070}) | ((mode & 07) << 3);
  return ::fchmod(fd, mode) == 0 ? 0 : errno;
}

// The last steps: 0 or an errno, and the step that failed.
int take_name(const NewFile& file, const std::string& path, std::string& tried) {
  const std::string temporary = temporary_name(path, file);
  if (!file.named) {
    tried = "naming it " + temporary;
    if (::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.fd).c_str(), AT_FDCWD, temporary.c_str(),
                 AT_SYMLINK_FOLLOW) != 0)
      return errno;
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
  if (number == 0 || number == EINVAL) return {};  // a file system that cannot flush directories
  return refuse_errno(number, path +
                                  " is written and has its name, but the name may not survive a power "
                                  "failure: flushing its directory");
}

}  // namespace

FileResult<std::string> resolve(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::absolute(path, failure);
  if (failure) return refuse_errno(failure.value(), "cannot find " + path);
  std::deque<std::filesystem::path> rest(whole.begin(), whole.end());
  std::filesystem::path resolved;
  struct stat s{};
  for (int links = 0; !rest.empty();) {
    const std::filesystem::path part = rest.front();
    rest.pop_front();
    if (part == ".." || part == "." || part.empty()) {
      if (part == "..") resolved = resolved.parent_path();
      if (rest.empty() && part != "..") return refuse_errno(EISDIR, "cannot write " + path);
      continue;
    }
    const std::filesystem::path next = resolved / part;
    if (!is_there(next.string(), s)) {
      if (errno != ENOENT) return refuse_errno(errno, "cannot find " + path);
    } else if (S_ISLNK(s.st_mode)) {
      if (++links > kMostLinks) return refuse_errno(ELOOP, "cannot find " + path);
      if (planted(resolved.string(), s)) {
        return refuse(EACCES, fmt::format("cannot use {}: {} is a symbolic link of user {} in a directory "
                                          "that all users may write to; name the file itself",
                                          path, next.string(), s.st_uid));
      }
      const std::filesystem::path target = std::filesystem::read_symlink(next, failure);
      if (failure) return refuse_errno(failure.value(), "cannot find " + path);
      rest.insert(rest.begin(), target.begin(), target.end());
      if (target.is_absolute()) resolved.clear();
      continue;
    }
    resolved = next;
  }
  if (is_there(resolved.string(), s) && !S_ISREG(s.st_mode)) {
    return S_ISDIR(s.st_mode) ? refuse_errno(EISDIR, "cannot use " + path)
                              : refuse(EINVAL, "cannot use " + path + ": not a regular file");
  }
  return resolved.string();
}

std::string temporary_name(const std::string& path, const NewFile& file) {
  return file.aside ? fmt::format("{}.kasane-new.{:016x}{:016x}", path, file.mark[0], file.mark[1])
                    : path + ".kasane-new";
}

FileResult<NewFile> create(const std::string& path, const FileLayout& layout, bool for_hosts) {
  if (auto allowed = check_limit(layout, path); !allowed) return tl::unexpected(allowed.error());
  NewFile file;
  file.named = for_hosts;
  file.holder = ::getpid();
  if (::getrandom(file.mark, sizeof file.mark, 0) != sizeof file.mark)
    return refuse_errno(EIO, fmt::format("cannot write {}: no random numbers", path));
  ::unlink(temporary_name(path, file).c_str());  // left behind by a killed job
  struct stat stays{};
  file.aside = is_there(temporary_name(path, file), stays);
  file.fd = open_new(path, file);
  if (file.fd < 0)
    return refuse_errno(errno, fmt::format("cannot write {} ({} bytes)", path, layout.file_bytes));
  std::array<std::byte, sizeof file.mark> mark{};
  std::memcpy(mark.data(), file.mark, sizeof file.mark);
  int number = 0;
  if (::ftruncate(file.fd, static_cast<off_t>(layout.file_bytes)) != 0) number = errno;
  if (number == 0) number = write_all(file.fd, mark, 0);
  if (number == 0) return file;
  abandon(file, path);
  return refuse_errno(number, fmt::format("cannot write {}, which needs up to {} bytes where {} are free",
                                          path, layout.file_bytes, free_text(path)));
}

FileResult<int> open_same(const std::string& path, const FileLayout& layout, const NewFile& file) {
  if (auto allowed = check_limit(layout, path); !allowed) return tl::unexpected(allowed.error());
  const std::string name = file.named ? temporary_name(path, file) : through_proc(file.holder, file.fd);
  // /proc's are links
  const int fd =
      ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (file.named ? O_NOFOLLOW : 0));
  if (fd < 0) return refuse_errno(errno, "cannot open " + name);
  std::array<std::byte, sizeof file.mark> mark{};
  if (read_all(fd, mark, 0) == 0 && std::memcmp(mark.data(), file.mark, mark.size()) == 0) return fd;
  ::close(fd);
  return refuse(ESTALE, name + " is another file here");
}

FileResult<void> write(int fd, std::span<const std::byte> bytes, std::uint64_t chunk,
                       const FileLayout& layout, const std::string& path) {
  const std::uint64_t offset = layout.offset_of(chunk);
  const int number = write_all(fd, bytes, offset);
  if (number == 0) {
    // On its way to the disk now: a memory control group has room for little that is yet to be written, and
    // the kernel kills in it rather than write by itself (cgroup v1). Errors are flush()'s to report.
    (void)::sync_file_range(fd, static_cast<off64_t>(offset), static_cast<off64_t>(bytes.size()),
                            SYNC_FILE_RANGE_WRITE);
    return {};
  }
  return refuse_errno(
      number,
      fmt::format(
          "writing {} bytes of {} from chunk {} of {} on; the file needs up to {} bytes, {} are free there",
          bytes.size(), path, chunk, layout.chunks, layout.file_bytes, free_text(path)));
}

FileResult<void> flush(int fd, const std::string& path) {
  if (::fsync(fd) == 0) return {};
  const int number = errno;
  return refuse_errno(number, fmt::format("flushing {}, where {} are free", path, free_text(path)));
}

FileResult<void> commit(NewFile& file, const Contents& contents, std::span<const std::uint64_t> table,
                        const std::string& path) {
  const FileLayout layout(contents.bytes());
  std::vector<std::byte> head(kHeaderBytes + table.size_bytes());
  const Header header = make_header(contents, table);
  std::memcpy(head.data(), &header, sizeof header);
  if (!table.empty()) std::memcpy(head.data() + kHeaderBytes, table.data(), table.size_bytes());
  const int number = write_all(file.fd, head, 0);
  FileResult<void> done;
  if (number != 0) {
    done = refuse_errno(
        number, fmt::format("writing the header of {}; the file needs up to {} bytes, {} are free there",
                            path, layout.file_bytes, free_text(path)));
  } else if (const int failed = take_mode(file.fd, path)) {
    done = refuse_errno(
        failed,
        fmt::format("the file for {} is written, but cannot have the permissions of the one that it replaces",
                    path));
  } else {
    done = flush(file.fd, path);
  }
  if (!done) {
    abandon(file, path);
    return done;
  }
  std::string tried;
  if (const int failed = take_name(file, path, tried))
    done = refuse_errno(failed, fmt::format("the file for {} is written, but not {}", path, tried));
  ::close(std::exchange(file.fd, -1));
  return done ? flush_folder(path) : done;
}

void abandon(NewFile& file, const std::string& path) noexcept {
  if (file.fd < 0) return;
  if (file.named) ::unlink(temporary_name(path, file).c_str());
  ::close(std::exchange(file.fd, -1));
}

// ---- reading ----

FileResult<OldFile> OldFile::open(const std::string& path) {
  // A FIFO would wait for a writer
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat s{};
  if (fd < 0 || ::fstat(fd, &s) != 0) {
    const int number = errno;
    if (fd >= 0) ::close(fd);
    if (number == ENXIO) return refuse(EINVAL, path + " is not a regular file");  // a socket
    return refuse(number, fmt::format("cannot read {}: {}", path, std::strerror(number)));
  }
  OldFile file(fd, path);
  if (!S_ISREG(s.st_mode)) return refuse(EINVAL, path + " is not a regular file");
  // The kernel would read ahead, by megabytes on some disks, and a memory control group that allows the
  // budget and the documented slack has no room for that: read() asks for what comes next.
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  const auto file_bytes = static_cast<std::uint64_t>(s.st_size);
  const auto read_failure = [&](int number) {
    return refuse_errno(number < 0 ? EIO : number, "reading the header of " + path);
  };
  const std::uint64_t head = std::min<std::uint64_t>(file_bytes, sizeof(Header));
  if (const int number = read_all(fd, std::as_writable_bytes(std::span(&file.header_, 1)).first(head), 0))
    return read_failure(number);
  if (auto good = check(file.header_, file_bytes, path); !good) return tl::unexpected(good.error());
  file.table_.resize(file.header_.chunks);
  if (const int number = read_all(fd, std::as_writable_bytes(std::span(file.table_)), kHeaderBytes))
    return read_failure(number);
  if (checksum(file.table_.data(), file.table_.size() * sizeof(std::uint64_t)) != file.header_.table_checksum)
    return refuse(EIO, path + ": the table of chunks is damaged (its checksum does not match)");
  return file;
}

FileResult<void> OldFile::read(std::span<std::byte> bytes, std::uint64_t first) const {
  const FileLayout layout(header_.contents().bytes());
  const int number = read_all(fd_.get(), bytes, layout.offset_of(first));
  if (number != 0) {
    return number < 0
               ? refuse(EIO,
                        fmt::format(
                            "{} became shorter while it was read; chunk {} or one after it is incomplete",
                            path_, first))
               : refuse_errno(number, fmt::format("reading {} bytes of {} from chunk {} of {} on",
                                                  bytes.size(), path_, first, layout.chunks));
  }
  const std::uint64_t next = layout.offset_of(first) + bytes.size();
  (void)::posix_fadvise(fd_.get(), static_cast<off_t>(next), static_cast<off_t>(bytes.size()),
                        POSIX_FADV_WILLNEED);
  for (std::uint64_t chunk = first; !bytes.empty(); ++chunk) {
    const std::span<std::byte> one = bytes.first(layout.bytes_of(chunk));
    if (chunk_word(one.data(), one.size()) != table_[chunk])
      return refuse(
          EIO, fmt::format(
                   "{}: chunk {} of {} is damaged (its checksum does not match): bytes {} to {} of the data",
                   path_, chunk, layout.chunks, chunk * kChunkBytes, chunk * kChunkBytes + one.size() - 1));
    bytes = bytes.subspan(one.size());
  }
  return {};
}

}  // namespace kasane::checkpoint
