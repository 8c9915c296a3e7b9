// SPDX-License-Identifier: Apache-2.0
// In place with UFFD_USER_MODE_ONLY, which is allowed without privileges; with delivery by SIGBUS a full
// userfaultfd would give nothing more, since system calls fail with EFAULT either way. To a thread without
// that flag, so that system calls wait.
#include "mem/userfaultfd.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "base/memory_file.h"
#include "base/renumbered.h"
#include "mem/madvise.h"
#include "mem/space.h"

namespace kasane::mem {
namespace {

// Newer than Debian 12's headers; the probe finds out whether the kernel knows it.
constexpr std::uint64_t kContinueModeWp = 1u << 1;  // UFFDIO_CONTINUE_MODE_WP, Linux 6.4
constexpr long kUserModeOnly = 1;                   // UFFD_USER_MODE_ONLY, Linux 5.11

struct Feature {
  std::uint64_t bit;
  const char* name;
};
constexpr Feature kFeatures[] = {{UFFD_FEATURE_MISSING_SHMEM, "MISSING_SHMEM (Linux 4.11)"},
                                 {UFFD_FEATURE_MINOR_SHMEM, "MINOR_SHMEM (Linux 5.14)"},
                                 {UFFD_FEATURE_WP_HUGETLBFS_SHMEM, "WP_HUGETLBFS_SHMEM (Linux 5.19)"}};
constexpr Feature delivery_feature(Delivery delivery) {
  return delivery == Delivery::in_place ? Feature{UFFD_FEATURE_SIGBUS, "SIGBUS (Linux 4.14)"}
                                        : Feature{UFFD_FEATURE_EXACT_ADDRESS, "EXACT_ADDRESS (Linux 5.18)"};
}

/// -1 with errno. Where the system call is only for the privileged, the device serves users that its file
/// mode allows (Linux 6.1).
int new_userfaultfd(Delivery delivery) {
  if (delivery == Delivery::in_place)
    return static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  const int fd = static_cast<int>(::syscall(SYS_userfaultfd, kFlags));
  if (fd >= 0 || errno != EPERM) return fd;
  const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  const int made = device < 0 ? -1 : renumbered(::ioctl(device, USERFAULTFD_IOC_NEW, kFlags));
  if (device >= 0) ::close(device);
  if (made < 0) errno = EPERM;  // of the two reasons the one that the user can remedy
  return made;
}

// The first feature that we need and this kernel lacks, or null. A handshake that asks for a missing feature
// fails, so this one asks for none.
const char* missing_feature(Delivery delivery) {
  const int fd = new_userfaultfd(delivery);
  uffdio_api api{UFFD_API, 0, 0};
  const bool told = fd >= 0 && ::ioctl(fd, UFFDIO_API, &api) == 0;
  if (fd >= 0) ::close(fd);
  if (!told) return "UFFD_API";
  for (const Feature& f : kFeatures)
    if ((api.features & f.bit) == 0) return f.name;
  const Feature last = delivery_feature(delivery);
  return (api.features & last.bit) == 0 ? last.name : nullptr;
}

template <class Argument>
int call(int fd, unsigned long request, Argument& argument) noexcept {
  const int saved = errno;
  const int result = ::ioctl(fd, request, &argument) == 0 ? 0 : errno;
  errno = saved;
  return result;
}

/// Calls once(at, part) from byte 0 on. It returns an errno; with EAGAIN, `part` bytes were done, and the
/// next call tells what is in the way.
template <class Once>
int in_parts(std::size_t bytes, std::size_t& done, const Once& once) noexcept {
  done = 0;
  for (;;) {
    std::int64_t part = 0;
    const int result = once(done, part);
    if (result == 0) done = bytes;
    if (result != EAGAIN) return result;
    if (part > 0) done += static_cast<std::size_t>(part);
  }
}

uffdio_range range_of(std::byte* address, std::size_t bytes) noexcept {
  return {reinterpret_cast<std::uintptr_t>(address), bytes};
}

// Maps a page that the file has, protected: no feature bit tells whether the kernel can.
int try_protected_map(const Userfaultfd& u, int file) {
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  void* view = ::mmap(nullptr, kBlockBytes, kBoth, MAP_SHARED, file, 0);
  if (view == MAP_FAILED) return errno;
  auto* page = static_cast<std::byte*>(view);
  std::size_t done = 0;
  int result = u.add(page, kBlockBytes);
  if (result == 0) result = u.map(page, kBlockBytes, true, done);
  ::munmap(view, kBlockBytes);
  return result;
}

}  // namespace

Result<Userfaultfd> Userfaultfd::open(Delivery delivery) {
  const int fd = new_userfaultfd(delivery);
  if (fd < 0 && delivery == Delivery::thread && errno == EPERM)
    return fail(Errc::unsupported,
                "the kernel gives this user no userfaultfd for which system calls wait: it needs "
                "CAP_SYS_PTRACE, or read and write access to /dev/userfaultfd (Linux 6.1), or "
                "sysctl vm.unprivileged_userfaultfd=1");
  if (fd < 0) return fail_errno(Errc::unsupported, "the kernel refuses userfaultfd");
  Userfaultfd u(fd);
  uffdio_api api{UFFD_API, delivery_feature(delivery).bit, 0};
  for (const Feature& f : kFeatures) api.features |= f.bit;
  if (::ioctl(fd, UFFDIO_API, &api) == 0) return u;
  const char* missing = missing_feature(delivery);
  return fail(Errc::unsupported,
              std::string("the kernel's userfaultfd has no ") + (missing != nullptr ? missing : "UFFD_API"));
}

int Userfaultfd::add(std::byte* address, std::size_t bytes) const noexcept {
  uffdio_register r{};
  r.range = range_of(address, bytes);
  r.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
  return call(fd_.get(), UFFDIO_REGISTER, r);
}

int Userfaultfd::remove(std::byte* address, std::size_t bytes) const noexcept {
  uffdio_range r = range_of(address, bytes);
  return call(fd_.get(), UFFDIO_UNREGISTER, r);
}

int Userfaultfd::map(std::byte* address, std::size_t bytes, bool protect, std::size_t& done) const noexcept {
  return in_parts(bytes, done, [&](std::size_t at, std::int64_t& mapped) {
    uffdio_continue c{};
    c.range = range_of(address + at, bytes - at);
    c.mode = UFFDIO_CONTINUE_MODE_DONTWAKE | (protect ? kContinueModeWp : 0);
    const int result = call(fd_.get(), UFFDIO_CONTINUE, c);
    mapped = c.mapped;
    return result;
  });
}

int Userfaultfd::make(std::byte* address, std::size_t bytes, std::size_t& done) const noexcept {
  return in_parts(bytes, done, [&](std::size_t at, std::int64_t& made) {
    uffdio_zeropage z{};
    z.range = range_of(address + at, bytes - at);
    z.mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE;
    const int result = call(fd_.get(), UFFDIO_ZEROPAGE, z);
    made = z.zeropage;
    return result;
  });
}

int Userfaultfd::copy(std::byte* address, const std::byte* from, std::size_t bytes, bool protect,
                      std::size_t& done) const noexcept {
  return in_parts(bytes, done, [&](std::size_t at, std::int64_t& copied) {
    uffdio_copy c{};
    c.dst = reinterpret_cast<std::uintptr_t>(address + at);
    c.src = reinterpret_cast<std::uintptr_t>(from + at);
    c.len = bytes - at;
    c.mode = UFFDIO_COPY_MODE_DONTWAKE | (protect ? UFFDIO_COPY_MODE_WP : 0);
    const int result = call(fd_.get(), UFFDIO_COPY, c);
    copied = c.copy;
    return result;
  });
}

int Userfaultfd::protect(std::byte* address, std::size_t bytes, bool on) const noexcept {
  uffdio_writeprotect w{};
  w.range = range_of(address, bytes);
  // Never both flags. With DONTWAKE the call that removes protection wakes no thread.
  w.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
  int result;
  while ((result = call(fd_.get(), UFFDIO_WRITEPROTECT, w)) == EAGAIN) {
  }
  return result;
}

std::size_t Userfaultfd::receive(std::span<UserFault> faults) const noexcept {
  std::array<uffd_msg, 16> messages;
  const ssize_t got =
      ::read(fd_.get(), messages.data(), std::min(faults.size(), messages.size()) * sizeof(uffd_msg));
  std::size_t n = 0;
  for (const uffd_msg& m :
       std::span(messages.data(), got > 0 ? static_cast<std::size_t>(got) / sizeof(uffd_msg) : 0)) {
    if (m.event != UFFD_EVENT_PAGEFAULT) continue;  // no other events were asked for
    constexpr std::uint64_t kWrite = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;
    faults[n++] = {reinterpret_cast<std::byte*>(m.arg.pagefault.address),
                   (m.arg.pagefault.flags & kWrite) != 0};
  }
  return n;
}

void Userfaultfd::wake(std::byte* address, std::size_t bytes) const noexcept {
  uffdio_range r = range_of(address, bytes);
  static_cast<void>(call(fd_.get(), UFFDIO_WAKE, r));
}

std::string probe_userfaultfd(Delivery delivery) {
  const auto u = Userfaultfd::open(delivery);
  if (!u) return u.error().message;
  if (::madvise(nullptr, 0, MADV_DONTNEED_LOCKED) != 0)  // pages leave by it
    return "the kernel refuses madvise(MADV_DONTNEED_LOCKED), as before Linux 5.18 and in sandboxes whose "
           "filter of system calls (seccomp) has no madvise";
  const int file = ::memfd_create("kasane-probe", MFD_CLOEXEC);
  const std::byte byte{1};
  int result = errno;
  const RaisedFileLimit raised;
  if (file >= 0) {
    result = ::pwrite(file, &byte, 1, 0) == 1 ? try_protected_map(*u, file) : errno;
    ::close(file);
  }
  if (result == 0) return {};
  if (result == EINVAL)
    return "the kernel's userfaultfd cannot map a page protected (UFFDIO_CONTINUE_MODE_WP, Linux 6.4)";
  return "trying the kernel's userfaultfd failed: " + std::generic_category().message(result);
}

}  // namespace kasane::mem
