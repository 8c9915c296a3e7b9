// SPDX-License-Identifier: Apache-2.0
// Arrays in .npy files, a slab at a time: some rows of the array, which are consecutive in the file, pass
// through a buffer in global memory, since the thread may be on another rank after a get or put. It opens the
// file anew for each slab, for the same reason.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <kasane/array_layout.hpp>
#include <kasane/array_owners.hpp>
#include <string>

#include "arrays/error.h"
#include "arrays/npy_header.h"

namespace kasane::detail {
namespace {

using arrays::NpyHeader;

constexpr std::size_t kSlabBytes = std::size_t{1} << 20;

/// What to do about an error of the system; reading: of a file that has to be there.
const char* remedy(int number, bool reading) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return reading ? "; name a file that is there" : "; create the directory, or name another file";
    case EROFS:
    case EACCES:
    case EPERM: return "; name a file that this user may use";
    case ENOSPC:
    case EDQUOT: return "; free space there, or name another directory";
    default: return "";
  }
}
/// A file's name on the running stack, which is present: a system call of the library may read it.
struct Name {
  char text[4096];
  explicit Name(const char* call, const char* path, const char* suffix = "") {
    if (std::snprintf(text, sizeof text, "%s%s", path, suffix) >= static_cast<int>(sizeof text))
      arrays::fail(ENAMETOOLONG, "kasane::array::%s: a name of more than 4095 bytes; name another file",
                   call);
  }
};
[[noreturn]] void fail_errno(int number, const char* call, const Name& path) {
  arrays::fail(number, "kasane::array::%s: %.300s: %s%s", call, path.text, std::strerror(number),
               remedy(number, std::strcmp(call, "load") == 0));
}

/// An open file, as long as the thread stays on this rank.
class File {
 public:
  File(const char* call, const Name& path, int flags)
      : call_(call), path_(path), fd_(::open(path.text, flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_errno(errno, call_, path_);
    // A memory control group may have no room for what the kernel reads ahead.
    (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }

  /// All of n bytes, by ::pread or ::pwrite.
  template <class Transfer, class Byte>
  void all(Transfer transfer, Byte* p, std::size_t n, std::size_t offset) const {
    while (n > 0) {
      const ssize_t done = transfer(fd_, p, n, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail_errno(errno, call_, path_);
      if (done == 0)
        arrays::fail(EIO, "kasane::array::%s: %.300s ends %zu bytes early; it was cut off", call_, path_.text,
                     n);
      p += done;
      n -= static_cast<std::size_t>(done);
      offset += static_cast<std::size_t>(done);
    }
  }
  void write(const std::byte* p, std::size_t n, std::size_t offset) const {
    all(::pwrite, p, n, offset);
    // On its way to the disk now: a group may have no room for much that is yet to be written, either.
    (void)::sync_file_range(fd_, static_cast<off64_t>(offset), static_cast<off64_t>(n),
                            SYNC_FILE_RANGE_WRITE);
  }
  void read(std::byte* p, std::size_t n, std::size_t offset) const { all(::pread, p, n, offset); }
  void flush() const {
    if (::fsync(fd_) != 0) fail_errno(errno, call_, path_);
  }

 private:
  const char* call_;
  const Name& path_;
  int fd_;
};

/// Calls f(first, last, bytes) for slabs of at most kSlabBytes in C's order.
template <class F>
void each_slab(const ArrayLayout& l, const F& f) {
  // A slab is some elements of dimension d, with all that follow; dimensions before d have one index.
  std::size_t d = l.dimensions - 1, each = l.element_bytes;
  for (; d > 0 && each * l.extents[d] <= kSlabBytes; --d) each *= l.extents[d];
  const std::size_t step = std::max<std::size_t>(1, kSlabBytes / each);
  std::size_t first[ArrayLayout::kMost] = {}, last[ArrayLayout::kMost];
  for (;;) {
    for (std::size_t i = 0; i < l.dimensions; ++i) last[i] = i < d ? first[i] + 1 : l.extents[i];
    last[d] = std::min(first[d] + step, l.extents[d]);
    f(first, last, (last[d] - first[d]) * each);
    std::size_t i = d;
    first[d] = last[d];
    while (first[i] == l.extents[i]) {
      if (i == 0) return;
      first[i] = 0;
      ++first[--i];
    }
  }
}

NpyHeader header_of(const ArrayLayout& l, const char* type) {
  return {type, false, {l.extents, l.extents + l.dimensions}};
}

/// Of a file; `bytes`: where its data begin.
NpyHeader read_header(const Name& path, std::size_t& bytes) {
  const File file("load", path, O_RDONLY);
  const auto read = [&](std::size_t n) {
    std::string text(n, '\0');
    const view present(text.data(), n, read_write);
    file.read(reinterpret_cast<std::byte*>(present.data()), n, 0);
    return text;
  };
  bytes = arrays::npy_header_bytes(read(arrays::kNpyPrefix));
  NpyHeader h;
  if (bytes > arrays::kNpyPrefix && bytes <= kSlabBytes && arrays::parse_npy(read(bytes), h)) return h;
  arrays::fail(EINVAL,
               "kasane::array::load: %.300s is no .npy file of format 1.0 or 2.0 with elements of one type; "
               "write it by "
               "numpy.save",
               path.text);
}

[[noreturn]] void refuse(const Name& path, const std::string& what) {
  arrays::fail(EINVAL, "kasane::array::load: %.300s holds %s", path.text, what.c_str());
}
void check_order(const Name& path, const NpyHeader& h) {
  if (h.fortran_order && h.extents.size() > 1)
    refuse(path, "an array in Fortran's order; save it by numpy.ascontiguousarray");
}
NpyHeader checked_header(const Name& path, const char* type, std::size_t dimensions, std::size_t& bytes) {
  NpyHeader h = read_header(path, bytes);
  if (h.type != type)
    refuse(path, "elements of NumPy's type " + h.type + ", not " + type +
                     "; load an array of that type, or use astype");
  check_order(path, h);
  if (h.extents.size() != dimensions)
    refuse(path, "an array of " + std::to_string(h.extents.size()) + " dimensions, not " +
                     std::to_string(dimensions) + "; load an array of as many dimensions");
  return h;
}
/// Removes the unfinished file, unless it has got its name.
struct Unfinished {
  const Name& name;
  bool done = false;
  ~Unfinished() {
    if (!done) ::unlink(name.text);
  }
};

void save_by_caller(const ArrayLayout& l, const char* path, const char* type) {
  const Name name("save", path), unfinished("save", path, ".kasane-new");
  const std::string text = arrays::npy_text(header_of(l, type));
  {
    const File file("save", unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    const view bytes(text.data(), text.size());
    file.write(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), 0);
  }
  Unfinished remove{unfinished};
  const auto buffer = make_array<std::byte>(kSlabBytes + l.element_bytes);
  std::size_t offset = text.size();
  each_slab(l, [&](const std::size_t* first, const std::size_t* last, std::size_t bytes) {
    l.get(first, last, buffer.get(), nullptr, nullptr);
    const view present(buffer.get(), bytes, read_write);
    File("save", unfinished, O_WRONLY).write(present.data(), bytes, offset);
    offset += bytes;
  });
  File("save", unfinished, O_WRONLY).flush();
  if (std::rename(unfinished.text, name.text) != 0) fail_errno(errno, "save", name);
  remove.done = true;
}

void load_by_caller(const ArrayLayout& l, const char* path, const char* type) {
  const Name name("load", path);
  std::size_t offset = 0;
  const NpyHeader h = checked_header(name, type, l.dimensions, offset);
  for (std::size_t d = 0; d < l.dimensions; ++d)
    if (h.extents[d] != l.extents[d])
      arrays::fail(EINVAL,
                   "kasane::array::load: %.300s has %zu elements in dimension %zu, the array %zu; make an "
                   "array of the file's extents",
                   name.text, h.extents[d], d, l.extents[d]);
  const auto buffer = make_array<std::byte>(kSlabBytes + l.element_bytes);
  each_slab(l, [&](const std::size_t* first, const std::size_t* last, std::size_t bytes) {
    {
      const view present(buffer.get(), bytes, write_only);
      File("load", name, O_RDONLY).read(present.data(), bytes, offset);
    }
    l.put(first, last, buffer.get(), nullptr, nullptr);
    offset += bytes;
  });
}

Digest digest_of(const char* path, const char* type) {
  Digest digest;
  digest.bytes(path, std::strlen(path)).bytes(type, std::strlen(type));
  return digest;
}

}  // namespace

void ArrayLayout::save(const char* path, const char* type) const {
  const Bulk bulk("kasane::array::save", {this}, digest_of(path, type).value());
  by_one_rank([&] { save_by_caller(*this, path, type); });
}

void npy_extents(const char* path, const char* type, std::size_t dimensions, std::size_t* extents) {
  ranks_meet("kasane::array::load", digest_of(path, type).add(dimensions));
  const auto read = [&] {
    std::size_t bytes = 0;
    const NpyHeader h = checked_header(Name("load", path), type, dimensions, bytes);
    std::copy(h.extents.begin(), h.extents.end(), extents);
  };
  by_one_rank(read, extents, dimensions * sizeof *extents);
}

void ArrayLayout::load(const char* path, const char* type) const {
  const Bulk bulk("kasane::array::load", {this}, digest_of(path, type).value());
  by_one_rank([&] { load_by_caller(*this, path, type); });
  kasane_acquire_all();  // after direct changes
}

}  // namespace kasane::detail
