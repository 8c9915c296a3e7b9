// SPDX-License-Identifier: Apache-2.0
// The reservation and the mappings of a Space. Everything is MAP_NORESERVE, and shared memory is counted page
// by page. So a space of 1 TiB costs only addresses until it is touched.
//
// Thread safety: plain functions over system calls; no state.
// Invariant: Space::create either returns a whole Space or leaves the reservation at base as it found it.
#include "mem/space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/memory_file.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
extern "C" {
[[gnu::weak]] void __tsan_init();
[[gnu::weak]] void __asan_init();
}
#endif

namespace kasane::mem {
namespace {

// The alignment of a chosen base: then the space has whole page tables, and huge pages stay possible.
constexpr std::size_t kAlignment = 2 * 1024 * 1024;

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer reserves most of the address range for its shadow; only the kernel's own choice is sure to
// lie outside.
constexpr std::array<std::uintptr_t, 0> kCandidates{};
#else
// Far from where the kernel puts programs, heaps (0x55…) and libraries (0x7f…), far from AddressSanitizer's
// shadow (below 0x100100000000), and far from each other, so that one other mapping spoils one candidate
// only.
constexpr std::array<std::uintptr_t, 7> kCandidates{0x200000000000, 0x280000000000, 0x300000000000,
                                                    0x380000000000, 0x400000000000, 0x480000000000,
                                                    0x180000000000};
#endif

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char line[480];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

/// What to do where there is no room for a view. A sanitizer in the process keeps most addresses for itself,
/// which a smaller space does not change.
const char* advice() noexcept {
  // The sanitizers' entry points, weak: null where the program is built without.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return "a sanitizer leaves few addresses: try a smaller space, --space 16G";
#else
  if (__tsan_init != nullptr) {
    return "this program is built with ThreadSanitizer, which keeps most addresses for itself, and Kasane is "
           "not: build Kasane with -DKASANE_SANITIZER=thread, too (cmake --preset tsan)";
  }
  if (__asan_init != nullptr) {
    return "this program is built with AddressSanitizer, which keeps many addresses for itself, and Kasane "
           "is not: build Kasane with -DKASANE_SANITIZER=address, too (cmake --preset asan)";
  }
  return "see ulimit -v; try a smaller space";
#endif
}

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Reserves exactly this address, or returns null with errno. Kernels before 4.17 take the address as a hint;
// a mapping elsewhere is unmapped.
std::byte* reserve_at(std::uintptr_t address, std::size_t bytes) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, bytes, PROT_NONE, kReserveFlags | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) return static_cast<std::byte*>(got);
  if (got != MAP_FAILED) {
    ::munmap(got, bytes);
    errno = EEXIST;
  }
  return nullptr;
}

// Reserves any place, aligned: reserves more and gives back both ends. Null with errno.
std::byte* reserve_anywhere(std::size_t bytes) {
  const std::size_t more = bytes + kAlignment;
  if (more < bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  void* got = ::mmap(nullptr, more, PROT_NONE, kReserveFlags, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(got);
  const std::uintptr_t base = (start + kAlignment - 1) & ~(kAlignment - 1);
  if (base != start) ::munmap(got, base - start);
  ::munmap(reinterpret_cast<void*>(base + bytes), start + more - (base + bytes));
  return reinterpret_cast<std::byte*>(base);
}

Result<std::byte*> map_file(const char* what, int fd, std::uint64_t from, std::size_t bytes, int access,
                            std::byte* at) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0);
  void* got = ::mmap(at, bytes, access, flags, fd, static_cast<off_t>(from));
  if (got == MAP_FAILED)
    return fail_errno(
        Errc::limit, text("cannot map %s, %zu bytes at %p (47 bits of address hold V, A, T and the peers' M; "
                          "%s)",
                          what, bytes, static_cast<void*>(at), advice()));
  leave_out_of_core(got, bytes);
  return static_cast<std::byte*>(got);
}

}  // namespace

void punch_frames(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  const int saved = errno;
  while (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) != 0) {
    KASANE_CHECK(errno == EINTR, "a memory file lets go of frames");
  }
  errno = saved;
}

Result<std::byte*> reserve_space(std::size_t bytes, std::uintptr_t hint) {
  if (bytes == 0 || bytes % kPageBytes != 0)
    return fail(Errc::invalid_argument,
                text("a space of %zu bytes: it must be a positive multiple of %zu", bytes, kPageBytes));
  if (hint % kPageBytes != 0)
    return fail(Errc::invalid_argument,
                text("a space at %#" PRIxPTR ": the address must be a multiple of %#zx", hint, kPageBytes));
  if (hint != 0) {
    if (std::byte* base = reserve_at(hint, bytes)) return base;
    return fail_errno(Errc::limit, text("cannot reserve %zu bytes at %#" PRIxPTR, bytes, hint));
  }
  for (std::uintptr_t candidate : kCandidates)
    if (std::byte* base = reserve_at(candidate, bytes)) return base;
  if (std::byte* base = reserve_anywhere(bytes)) return base;
  return fail_errno(Errc::limit, text("cannot reserve %zu bytes of address anywhere (%s)", bytes, advice()));
}

std::uint64_t free_candidates(std::size_t bytes) {
  std::uint64_t free = 0;
  for (unsigned i = 0; candidate_base(i) != 0; ++i) {
    std::byte* base = reserve_at(candidate_base(i), bytes);
    if (base == nullptr) continue;
    ::munmap(base, bytes);
    free |= std::uint64_t{1} << i;
  }
  return free;
}

std::uintptr_t candidate_base(unsigned i) { return i < kCandidates.size() ? kCandidates[i] : 0; }

std::uint64_t place_parts(std::span<ViewPart> parts, std::uint64_t bytes) noexcept {
  for (ViewPart& part : parts) {
    part.offset = bytes + kPageBytes;
    bytes = (part.offset + part.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  return bytes;
}

AddressMap::AddressMap(std::byte* base, std::uint64_t bytes, std::span<const ViewPart> parts) noexcept
    : count_(1 + parts.size()) {
  KASANE_CHECK_OP(parts.size(), <=, kMostOtherParts);
  parts_[0] = {base, bytes, 0};
  std::ranges::copy(parts, parts_.begin() + 1);
}

const ViewPart* AddressMap::part_at(const void* p) const noexcept {
  for (std::size_t i = 1; i < count_; ++i)
    if (distance(p, parts_[i]) < parts_[i].bytes) return &parts_[i];
  return nullptr;
}

// Offsets between two parts lie nowhere; nothing is accessed there.
std::byte* AddressMap::address_in_window(std::uint64_t offset) const noexcept {
  std::size_t i = count_ - 1;
  while (offset < parts_[i].offset) --i;
  return parts_[i].at + (offset - parts_[i].offset);
}

std::uint64_t AddressMap::room_in_window(const void* p) const noexcept {
  const ViewPart* const part = part_at(p);
  return part != nullptr ? part->bytes - distance(p, *part) : 0;
}

std::uint64_t AddressMap::offset_in_window(const void* p) const noexcept {
  const ViewPart* const part = part_at(p);
  return part != nullptr ? part->offset + distance(p, *part) : kNowhere;
}

Result<Space> Space::create(std::byte* base, std::size_t bytes, std::span<const ViewPart> parts, bool keep) {
  if (base == nullptr || bytes == 0 || bytes % kPageBytes != 0)
    return fail(
        Errc::invalid_argument,
        text("a space of %zu bytes at %p: it must be a positive multiple of %zu, at a reserved address",
             bytes, static_cast<void*>(base), kPageBytes));
  Space s;  // from here on its destructor takes back what was made
  s.bytes_ = bytes;
  if (!parts.empty()) {
    const std::uint64_t end = parts.back().offset + parts.back().bytes;
    s.bytes_ = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  auto m = memory_file("kasane-M", s.bytes_);
  KASANE_TRY(m);
  s.m_fd_ = *m;
  auto t = memory_file("kasane-T", s.bytes_);
  KASANE_TRY(t);
  s.t_fd_ = *t;
  // Aligned as V is: large frames (mem/large_frames.h) fit both, and whole page tables (mem/page_tables.h)
  // belong to a range.
  s.a_ = reserve_anywhere(s.bytes_);
  auto a_view = map_file("A", s.m_fd_, 0, s.bytes_, PROT_READ | PROT_WRITE, s.a_);
  KASANE_TRY(a_view);
  s.a_ = *a_view;
  s.t_ = reserve_anywhere(s.bytes_);  // aligned as A is
  auto t_view = map_file("T", s.t_fd_, 0, s.bytes_, PROT_READ | PROT_WRITE, s.t_);
  KASANE_TRY(t_view);
  s.t_ = *t_view;
  // V comes last, so that a failed create never uses up the reservation; a failure at a part is final.
  auto v_view = map_file("V", s.m_fd_, 0, bytes, PROT_NONE, base);
  KASANE_TRY(v_view);
  s.map_ = AddressMap(base, bytes, {});
  for (const ViewPart& part : parts) {
    if (keep) s.copy_in(part);
    KASANE_TRY(map_file("the program's variables", s.m_fd_, part.offset, part.bytes, PROT_NONE, part.at));
  }
  s.map_ = AddressMap(base, bytes, parts);
  return s;
}

void look_for_frames(std::byte* view, std::span<unsigned char> has) noexcept {
  const int saved = errno;
  int result;
  while ((result = ::mincore(view, has.size() * kBlockBytes, has.data())) != 0 && errno == EAGAIN) {
  }
  if (result != 0) std::ranges::fill(has, static_cast<unsigned char>(1));
  errno = saved;
}

// Pages that the process has never touched stay holes of M: a large array of zeros costs nothing.
// /proc/self/pagemap says which pages were touched; where that file is not to be had all are copied.
void Space::copy_in(const ViewPart& part) const noexcept {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kSwapped = std::uint64_t{1} << 62;
  const int map = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::array<std::uint64_t, 512> entries;
  const std::uint64_t blocks = part.bytes / kBlockBytes,
                      first = reinterpret_cast<std::uintptr_t>(part.at) / kBlockBytes;
  for (std::uint64_t at = 0; at < blocks; at += entries.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(entries.size(), blocks - at);
    const auto wanted = static_cast<ssize_t>(count * sizeof entries[0]);
    if (map < 0 || ::pread(map, entries.data(), count * sizeof entries[0],
                           static_cast<off_t>((first + at) * sizeof entries[0])) != wanted)
      entries.fill(kPresent);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t offset = (at + i) * kBlockBytes;
      const bool touched = (entries[i] & (kPresent | kSwapped)) != 0 || offset < part.filled;
      if (touched) std::memcpy(a_ + part.offset + offset, part.at + offset, kBlockBytes);
    }
  }
  if (map >= 0) ::close(map);
}

// With an old size of 0, mremap makes a second mapping of the same shared memory, without a descriptor.
Result<void> Space::show(std::uint64_t offset, std::size_t bytes, std::byte* frames) {
  for (std::byte* view : {a_ + offset, v(offset)}) {
    if (::mremap(frames, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, view) == MAP_FAILED)
      return fail_errno(Errc::limit, text("cannot map %zu bytes of another rank's frames at %p", bytes,
                                          static_cast<void*>(view)));
  }
  return {};
}

Space::Space(Space&& o) noexcept
    : map_(std::exchange(o.map_, {})),
      a_(std::exchange(o.a_, nullptr)),
      t_(std::exchange(o.t_, nullptr)),
      bytes_(std::exchange(o.bytes_, 0)),
      m_fd_(std::exchange(o.m_fd_, -1)),
      t_fd_(std::exchange(o.t_fd_, -1)) {}

// The program's parts stay mapped: it may still name its variables.
Space::~Space() {
  if (map_.base() != nullptr) ::munmap(map_.base(), map_.parts()[0].bytes);
  for (std::byte* view : {a_, t_})
    if (view) ::munmap(view, bytes_);
  for (int fd : {m_fd_, t_fd_})
    if (fd >= 0) ::close(fd);
}

}  // namespace kasane::mem
