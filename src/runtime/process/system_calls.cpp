// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/system_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/call_selector.h"
#include "base/raw_call.h"
#include "comm/bootstrap/signals_for_main.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/process/bound_threads.h"
#include "runtime/process/call_table.h"
#include "runtime/process/output.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/process_calls.h"
#include "runtime/process/signals.h"
#include "runtime/process/streams.h"
#include "runtime/rank/call_memory.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/warn.h"
#include "traps/caught_calls.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using traps::CaughtCall;
using traps::copy_named;

Descriptors g_descriptors;  ///< constant before calls are caught
using NoteCall = void (*)(const CaughtCall&) noexcept;
constinit NoteCall g_note_call_of_child = nullptr;  ///< constant before calls are caught

const void* address(long word) noexcept { return reinterpret_cast<const void*>(word); }

long make_call(long number, const long (&arguments)[6]) noexcept {
  const ult::UserCode may_be_interrupted;  // the program's signal handlers run meanwhile
  return traps::issue_call(number, arguments);
}

/// Private memory for n objects, gone at the end of the scope: on the stack if they are few.
template <class T, std::size_t kFew>
class Scratch {
 public:
  Scratch() noexcept = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (at_ != few_.data()) ::munmap(at_, room_ * sizeof(T));
  }
  /// Keeps the first `kept` objects. False: no memory.
  [[nodiscard]] bool reserve(std::size_t n, std::size_t kept = 0) noexcept {
    if (n <= room_) return true;
    void* const got =
        ::mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return false;
    std::memcpy(got, static_cast<const void*>(at_), kept * sizeof(T));
    if (at_ != few_.data()) ::munmap(at_, room_ * sizeof(T));
    at_ = static_cast<T*>(got);
    room_ = n;
    return true;
  }
  [[nodiscard]] T* data() noexcept { return at_; }
  [[nodiscard]] std::size_t room() const noexcept { return room_; }

 private:
  std::array<T, kFew> few_;
  T* at_ = few_.data();
  std::size_t room_ = kFew;
};

/// What of a call's memory lies in the space: pinned until the end of the scope.
class Pins {
 public:
  explicit Pins(CallMemory& memory) noexcept : memory_(memory) {}
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() {
    for (std::size_t i = 0; i < count_; ++i) memory_.unpin(pins_.data()[i].at, pins_.data()[i].bytes);
  }

  /// Pins what is allocated of the range from its beginning on, and returns how much that is. The kernel
  /// finds the rest missing, if it gets there.
  std::size_t add(const void* at, std::size_t bytes, Way way) noexcept {
    if (bytes == 0 || !memory_.contains(at)) return bytes;
    if (runtime_of_parent() != nullptr) return touch_in_child(at, bytes);
    if (!memory_.can_pin(total_ + bytes) || (count_ == pins_.room() && !pins_.reserve(4 * count_, count_))) {
      too_much_ = true;
      return 0;
    }
    const std::size_t pinned = memory_.pin_allocated(at, bytes, way != Way::in);
    if (pinned == 0) return 0;
    pins_.data()[count_++] = {at, pinned};
    total_ += pinned;
    return pinned;
  }
  void add_text(const void* at) noexcept {
    constexpr std::size_t kBlock = mem::kBlockBytes, kLongest = 128 * 1024;  // MAX_ARG_STRLEN
    for (std::size_t seen = 0; seen <= kLongest && memory_.contains(at);) {
      const std::size_t bytes = kBlock - reinterpret_cast<std::uintptr_t>(at) % kBlock;
      if (add(at, bytes, Way::in) == 0 || std::memchr(at, 0, bytes) != nullptr) return;
      at = static_cast<const char*>(at) + bytes;
      seen += bytes;
    }
  }
  /// Texts that a list names.
  void add_texts(long list) noexcept {
    for (long word; list != 0; list += static_cast<long>(sizeof word)) {
      add(address(list), sizeof word, Way::in);
      if (!copy(&word, list, sizeof word) || word == 0) return;
      add_text(address(word));
    }
  }
  /// Copies what the program named, if it is pinned or private.
  [[nodiscard]] bool copy(void* to, long named, std::size_t bytes) noexcept {
    const void* const from = address(named);
    return (!memory_.contains(from) || holds(from, bytes)) && copy_named(to, from, bytes);
  }

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool too_much() const noexcept { return too_much_; }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }
  /// The kernel may have taken translations away. A load brings them back.
  void touch() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto [at, bytes] = pins_.data()[i];
      const auto* const first = static_cast<const volatile char*>(at);
      for (std::size_t k = 0; k < bytes; k += mem::kBlockBytes) (void)first[k];
      (void)first[bytes - 1];
    }
  }

 private:
  struct Pin {
    const void* at;
    std::size_t bytes;
  };
  [[nodiscard]] bool holds(const void* at, std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      const Pin& pin = pins_.data()[i];
      const auto begin = reinterpret_cast<std::uintptr_t>(pin.at), p = reinterpret_cast<std::uintptr_t>(at);
      if (p >= begin && p - begin + bytes <= pin.bytes) return true;
    }
    return memory_.in_open_stacks(at) || runtime_of_parent() != nullptr;
  }
  /// In a child of fork() memory stays once it is there.
  static std::size_t touch_in_child(const void* at, std::size_t bytes) noexcept {
    const auto* const first = static_cast<const char*>(at);
    for (std::size_t k = 0, part; k < bytes; k += part) {
      char byte;
      part = mem::kBlockBytes - reinterpret_cast<std::uintptr_t>(first + k) % mem::kBlockBytes;
      if (!copy_named(&byte, first + k, 1)) return k;
    }
    return bytes;
  }

  CallMemory& memory_;
  Scratch<Pin, 16> pins_;
  std::size_t count_ = 0, total_ = 0;
  bool too_much_ = false;
};

/// iovecs that a program named, and windows of them of a limited length.
class Vectors {
 public:
  /// 0, or -errno.
  long read(CallMemory& memory, long named, std::size_t count) noexcept {
    constexpr std::size_t kMost = 1024;  // UIO_MAXIOV
    if (count > kMost) return -EINVAL;
    if (!all_.reserve(2 * count)) return -ENOMEM;
    Pins pins(memory);
    pins.add(address(named), count * sizeof(iovec), Way::in);
    if (!pins.copy(all_.data(), named, count * sizeof(iovec))) return -EFAULT;
    count_ = count;
    for (std::size_t i = 0; i < count; ++i) total_ += all_.data()[i].iov_len;
    return 0;
  }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }

  /// The next bytes, at most `most`.
  std::size_t window(std::size_t most) noexcept {
    iovec* const to = window_begin();
    window_count_ = 0;
    std::size_t bytes = 0, skip = within_;
    for (std::size_t i = first_; i < count_ && (bytes < most || most == 0); ++i) {
      const iovec& from = all_.data()[i];
      const std::size_t part = std::min(from.iov_len - skip, most - bytes);
      to[window_count_++] = {static_cast<char*>(from.iov_base) + skip, part};
      bytes += part;
      skip = 0;
    }
    return bytes;
  }
  void advance(std::size_t bytes) noexcept {
    for (within_ += bytes; first_ < count_ && within_ >= all_.data()[first_].iov_len; ++first_)
      within_ -= all_.data()[first_].iov_len;
  }
  void pin_window(Pins& pins, Way way) noexcept {
    for (std::size_t i = 0; i < window_count_; ++i)
      pins.add(window_begin()[i].iov_base, window_begin()[i].iov_len, way);
    pins.add(window_begin(), window_count_ * sizeof(iovec), Way::in);  // perhaps main's stack
  }
  [[nodiscard]] iovec* window_begin() noexcept { return all_.data() + count_; }
  [[nodiscard]] std::size_t window_count() const noexcept { return window_count_; }

 private:
  Scratch<iovec, 16> all_;  ///< the program's, then the window's
  std::size_t count_ = 0, total_ = 0, first_ = 0, within_ = 0, window_count_ = 0;
};

/// One caught call that the runtime carries out.
class Carried {
 public:
  Carried(CallMemory& memory, const CaughtCall& call, const CallEntry& entry) noexcept
      : memory_(memory), entry_(entry), number_(call.number) {
    std::copy(std::begin(call.argument), std::end(call.argument), std::begin(a_));
  }

  long carry_out() noexcept {
    const NamedMemory& first = entry_.memory[0];
    switch (first.shape) {
      case Shape::vectors: return vectors(first);
      case Shape::header: return message(first);
      default:
        if (entry_.pieces != Pieces::none && count(first) > part_bytes() &&
            memory_.contains(pointer(first)) && may_be_cut())
          return in_parts(first);
        return whole();
    }
  }

 private:
  [[nodiscard]] const void* pointer(const NamedMemory& m) const noexcept { return address(a_[m.argument]); }
  [[nodiscard]] std::size_t count(const NamedMemory& m) const noexcept {
    return static_cast<std::size_t>(a_[m.length]);
  }
  [[nodiscard]] std::size_t part_bytes() const noexcept { return memory_.part_of_calls(); }
  [[nodiscard]] bool reads() const noexcept { return entry_.pieces == Pieces::reads; }

  /// Makes the call, all of whose memory is pinned by pins.
  long make(Pins& pins) noexcept {
    if (pins.too_much()) return refuse();
    long result = make_call(number_, a_);
    for (int tries = 0; result == -EFAULT && !pins.empty() && tries < 3; ++tries) {
      pins.touch();
      result = make_call(number_, a_);
    }
    return result;
  }
  [[gnu::noinline]] long refuse() noexcept {
    CrashText text;
    text.add("kasane: ").add(entry_.name);
    text.add(
        ": the call names more global memory than DRAM holds at once, and cannot be made in parts; "
        "raise --dram (KASANE_DRAM), or pass less\n");
    warn(text);
    return -ENOMEM;
  }

  void pin(Pins& pins, const NamedMemory& m) noexcept {
    const void* const at = pointer(m);
    switch (m.shape) {
      case Shape::none:
      case Shape::vectors:
      case Shape::header: return;
      case Shape::fixed: pins.add(at, m.item, m.way); return;
      case Shape::items:
        if (count(m) < std::size_t{1} << 47) pins.add(at, count(m) * m.item, m.way);
        return;
      case Shape::message:
        if (count(m) < std::size_t{1} << 47) pins.add(at, count(m) + sizeof(long), m.way);
        return;
      case Shape::bits:
        if (count(m) <= 1 << 20) pins.add(at, (count(m) + 63) / 64 * 8, m.way);
        return;
      case Shape::value: return pin_value(pins, m);
      case Shape::text: return pins.add_text(at);
      case Shape::texts: return pins.add_texts(a_[m.argument]);
      case Shape::headers: return pin_headers(pins, m);
    }
  }
  void pin_value(Pins& pins, const NamedMemory& m) noexcept {
    std::uint32_t bytes = 0;
    if (a_[m.length] == 0) return;
    pins.add(address(a_[m.length]), sizeof bytes, Way::both);
    if (pins.copy(&bytes, a_[m.length], sizeof bytes)) pins.add(pointer(m), bytes, m.way);
  }
  void pin_headers(Pins& pins, const NamedMemory& m) noexcept {
    const std::size_t n = std::min<std::size_t>(count(m) & 0xffffffffu, 1024);
    pins.add(pointer(m), n * sizeof(mmsghdr), Way::both);
    for (std::size_t i = 0; i < n; ++i) {
      msghdr header;
      if (!pins.copy(&header, a_[m.argument] + static_cast<long>(i * sizeof(mmsghdr)), sizeof header)) return;
      pin_parts_of(pins, header, m.way);
      Vectors v;
      if (v.read(memory_, reinterpret_cast<long>(header.msg_iov), header.msg_iovlen) != 0) continue;
      pins.add(header.msg_iov, header.msg_iovlen * sizeof(iovec), Way::in);
      v.window(v.total());
      for (std::size_t k = 0; k < v.window_count(); ++k)
        pins.add(v.window_begin()[k].iov_base, v.window_begin()[k].iov_len, m.way);
    }
  }
  static void pin_parts_of(Pins& pins, const msghdr& header, Way way) noexcept {
    if (header.msg_name != nullptr) pins.add(header.msg_name, header.msg_namelen, way);
    if (header.msg_control != nullptr) pins.add(header.msg_control, header.msg_controllen, Way::both);
  }
  /// All but the first.
  void pin_others(Pins& pins) noexcept {
    for (std::size_t i = 1; i < entry_.memory.size(); ++i) pin(pins, entry_.memory[i]);
  }

  long whole() noexcept {
    Pins pins(memory_);
    pin(pins, entry_.memory[0]);
    pin_others(pins);
    return make(pins);
  }

  /// Whether a call of more than a part may be made as several.
  [[nodiscard]] bool may_be_cut() noexcept {
    if (entry_.pieces == Pieces::sends) return is_stream();
    return entry_.pieces != Pieces::none;
  }
  [[nodiscard]] bool is_stream() noexcept {
    int type = 0, bytes = sizeof type;
    Pins pins(memory_);
    pins.add(&type, sizeof type, Way::out);
    pins.add(&bytes, sizeof bytes, Way::both);
    const long got = traps::issue_call(
        SYS_getsockopt,
        {a_[0], SOL_SOCKET, SO_TYPE, reinterpret_cast<long>(&type), reinterpret_cast<long>(&bytes), 0});
    return got == 0 && type == SOCK_STREAM;
  }
  /// Whether the call goes on after a whole part. What is read may be short where the rest would wait.
  [[nodiscard]] bool goes_on() noexcept {
    if (!reads()) return true;
    if (number_ == SYS_recvfrom) return (a_[3] & MSG_WAITALL) != 0;
    if (number_ == SYS_recvmsg) return (a_[2] & MSG_WAITALL) != 0;
    pollfd file{static_cast<int>(a_[0]), POLLIN, 0};
    Pins pins(memory_);
    pins.add(&file, sizeof file, Way::both);
    return traps::issue_call(SYS_poll, {reinterpret_cast<long>(&file), 1, 0, 0, 0, 0}) == 1 &&
           (file.revents & POLLIN) != 0;
  }
  void advance_place(long bytes) noexcept {
    if (entry_.offset != 0 && a_[entry_.offset] != -1) a_[entry_.offset] += bytes;
  }

  long in_parts(const NamedMemory& first) noexcept {
    long total = 0;
    std::size_t left = count(first);
    for (;;) {
      const std::size_t part = std::min(left, part_bytes());
      a_[first.length] = static_cast<long>(part);
      const long done = whole();
      if (done < 0) return total != 0 ? total : done;
      total += done;
      left -= static_cast<std::size_t>(done);
      if (static_cast<std::size_t>(done) < part || left == 0 || !goes_on()) return total;
      a_[first.argument] += done;
      advance_place(done);
    }
  }

  long vectors(const NamedMemory& m) noexcept {
    Vectors v;
    if (const long error = v.read(memory_, a_[m.argument], count(m)); error != 0) return error;
    const std::size_t most = entry_.pieces == Pieces::none ? v.total() : part_bytes();
    return over(v, most, [&](bool) {
      Pins pins(memory_);
      v.pin_window(pins, m.way);
      pin_others(pins);
      a_[m.argument] = reinterpret_cast<long>(v.window_begin());
      a_[m.length] = static_cast<long>(v.window_count());
      return make(pins);
    });
  }

  long message(const NamedMemory& m) noexcept {
    const long named = a_[m.argument];
    msghdr header;
    Pins outer(memory_);
    outer.add(address(named), sizeof header, m.way == Way::in ? Way::in : Way::both);
    if (!outer.copy(&header, named, sizeof header)) return -EFAULT;
    Vectors v;
    if (const long error = v.read(memory_, reinterpret_cast<long>(header.msg_iov), header.msg_iovlen);
        error != 0)
      return error == -EINVAL ? -EMSGSIZE : error;
    const std::size_t most = v.total() > part_bytes() && is_stream() ? part_bytes() : v.total();
    return over(v, most, [&](bool first) {
      Pins pins(memory_);
      if (first) {
        pin_parts_of(pins, header, m.way);
      } else {
        header.msg_controllen = 0;
      }
      v.pin_window(pins, m.way);
      header.msg_iov = v.window_begin();
      header.msg_iovlen = v.window_count();
      pins.add(&header, sizeof header, Way::both);
      a_[m.argument] = reinterpret_cast<long>(&header);
      const long result = make(pins);
      return m.way == Way::in || result < 0 || give_back(header, named) ? result : -EFAULT;
    });
  }
  /// What the kernel has written into our copy of the program's header.
  static bool give_back(const msghdr& header, long named) noexcept {
    auto* const to = reinterpret_cast<msghdr*>(named);
    return copy_named(&to->msg_namelen, &header.msg_namelen, sizeof header.msg_namelen) &&
           copy_named(&to->msg_controllen, &header.msg_controllen, sizeof header.msg_controllen) &&
           copy_named(&to->msg_flags, &header.msg_flags, sizeof header.msg_flags);
  }

  /// make(first) for windows of at most `most` bytes, until one is short.
  template <class Make>
  long over(Vectors& v, std::size_t most, const Make& make) noexcept {
    long total = 0;
    for (;;) {
      const std::size_t part = v.window(most);
      const long done = make(total == 0);
      if (done < 0) return total != 0 ? total : done;
      total += done;
      if (static_cast<std::size_t>(done) < part || static_cast<std::size_t>(total) == v.total() || !goes_on())
        return total;
      v.advance(static_cast<std::size_t>(done));
      advance_place(done);
    }
  }

  CallMemory& memory_;
  const CallEntry& entry_;
  const long number_;
  long a_[6];
};

/// A futex's word is not pinned, since the call may wait for long: it is made present, and the call looks at
/// it at once.
long carry_out_futex(CallMemory& memory, const CaughtCall& call) noexcept {
  const long op = call.argument[1] & FUTEX_CMD_MASK;
  const bool waits = op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET || op == FUTEX_LOCK_PI ||
                     op == FUTEX_WAIT_REQUEUE_PI || op == 13 /* FUTEX_LOCK_PI2 */;
  const bool stores = op == FUTEX_WAKE_OP || op == FUTEX_LOCK_PI || op == FUTEX_UNLOCK_PI || op == 13;
  Pins pins(memory);
  if (waits) pins.add(address(call.argument[3]), 16, Way::in);
  long result = -EFAULT;
  for (int tries = 0; result == -EFAULT && tries < 100; ++tries) {
    for (const int word : {0, 4}) {
      Pins present(memory);
      const long at = call.argument[word];
      if (at != 0 && present.add(address(at), 4, stores ? Way::both : Way::in) == 0) return -EFAULT;
      present.touch();
    }
    result = make_call(call.number, call.argument);
  }
  return result;
}

/// A call that the table does not know, with an argument that may name global memory.
long carry_out_unknown(const CaughtCall& call) noexcept {
  const long result = make_call(call.number, call.argument);
  if (result != -EFAULT) return result;
  CrashText text;
  text.add("kasane: system call ").signed_decimal(call.number);
  text.add(
      ": its arguments are not known, and one that is an address of global memory is not present; use "
      "private memory, a view (kasane::view), or --faults uffd-thread\n");
  warn(text);
  return result;
}

/// A new descriptor's number becomes one of this rank's. It stays what it is where the rank has none left, or
/// it takes the place of a standard one.
long number_of_this_rank(long opened, long least) noexcept {
  if (opened <= STDERR_FILENO) {  // the program had closed it
    tell_redirection(static_cast<int>(opened), process().rank);
    return opened;
  }
  if (g_descriptors.owner(opened) != kNoRank) return opened;
  const bool closes = (traps::issue_call(SYS_fcntl, {opened, F_GETFD, 0, 0, 0, 0}) & FD_CLOEXEC) != 0;
  for (const Descriptors::Numbers& part : g_descriptors.own()) {
    if (part.count == 0 || part.first < least) continue;
    const long number =
        traps::issue_call(SYS_fcntl, {opened, closes ? F_DUPFD_CLOEXEC : F_DUPFD, part.first, 0, 0, 0});
    if (number < 0) continue;
    const bool fits = number < part.first + part.count;
    traps::issue_call(SYS_close, {fits ? opened : number, 0, 0, 0, 0, 0});
    if (fits) return number;
  }
  return opened;
}

long number_opened(const CaughtCall& call, const UsedDescriptors& used, long result) noexcept {
  if (used.opens) return number_of_this_rank(result, call.number == SYS_fcntl ? call.argument[2] : 0);
  if (used.opens_two < 0) return result;
  int two[2];
  auto* const named = reinterpret_cast<int*>(call.argument[used.opens_two]);
  if (!copy_named(two, named, sizeof two)) return result;
  for (int& number : two) number = static_cast<int>(number_of_this_rank(number, 0));
  (void)copy_named(named, two, sizeof two);
  return result;
}

bool writes_line(const CaughtCall& call) noexcept {
  return (call.number == SYS_write || call.number == SYS_writev) && writes_in_turns(call.argument[0]);
}

/// Null: calls pass.
CallMemory* memory_for_calls() noexcept {
  Runtime* const runtime = Runtime::current();
  Runtime* const own = runtime != nullptr ? runtime : runtime_of_parent();
  return own != nullptr ? &own->call_memory() : nullptr;
}

/// The rank that opened a descriptor of the call, which is not open here. kNoRank: none did.
Rank opener_of(const CaughtCall& call, const UsedDescriptors& used) noexcept {
  for (const std::int8_t argument : used.used) {
    const long number = argument < 0 ? -1 : call.argument[argument];
    if (g_descriptors.elsewhere(number)) return g_descriptors.owner(number);
  }
  return kNoRank;
}

/// The rank that has redirected standard output or error, if the call writes there. kNoRank: this one.
Rank standard_of(const CaughtCall& call) noexcept {
  const bool writes = call.number == SYS_write || call.number == SYS_writev;
  return writes ? output_elsewhere(call.argument[0]) : kNoRank;
}

[[gnu::cold]] void say_that_threads_stay(Rank opener) noexcept {
  static std::atomic_flag said;
  if (said.test_and_set()) return;
  CrashText text;
  text.add("kasane: a descriptor was opened on rank ").decimal(raw(opener));
  text.add(", and OS threads of the program stay where they are: use it on a thread, in run(), or in main\n");
  warn(text);
}

/// The entry of the call, or `own` for one whose command says what it names. Null: not in the table.
const CallEntry* entry_of(const CaughtCall& call, CallEntry& own) noexcept {
  const auto command = static_cast<std::uint64_t>(call.argument[1]);
  if (call.number == SYS_ioctl)
    own = {"ioctl", {argument_of_ioctl(command)}};
  else if (call.number == SYS_fcntl)
    own = {"fcntl", {argument_of_fcntl(command)}};
  else
    return find_call(call.number);
  return &own;
}

bool concerns(const CaughtCall& call) noexcept {
  if (concerns_descriptors(call)) return true;
  const CallMemory* const memory = memory_for_calls();
  if (memory == nullptr) return false;
  const bool open_stacks = runtime_of_parent() == nullptr;
  if (!open_stacks) g_note_call_of_child(call);
  const auto absent = [&](long word) {
    return memory->contains(address(word)) && !(open_stacks && memory->in_open_stacks(address(word)));
  };
  if (writes_line(call) || standard_of(call) != kNoRank) return true;
  if (g_descriptors.divided()) {
    const UsedDescriptors d = used_descriptors(call.number, call.argument[1]);
    if (d.opens || d.opens_two >= 0) return true;
    for (const std::int8_t argument : d.used)
      if (argument >= 0 && g_descriptors.elsewhere(call.argument[argument])) return true;
  }
  CallEntry own;
  const CallEntry* const entry = entry_of(call, own);
  if (entry == nullptr) {
    return !manages_addresses(call.number) &&
           std::any_of(std::begin(call.argument), std::end(call.argument), absent);
  }
  for (const NamedMemory& m : entry->memory) {
    const long word = call.argument[m.argument];
    switch (m.shape) {
      case Shape::none: break;
      case Shape::texts:
      case Shape::vectors:
      case Shape::header:
      case Shape::headers:
        if (word != 0) return true;
        break;
      case Shape::value:
        if (absent(call.argument[m.length])) return true;
        [[fallthrough]];
      default:
        if (absent(word)) return true;
    }
  }
  return false;
}

/// A program in place of one rank of several: the others would wait for it. Nothing where the kernel refuses,
/// as for most of the folders that execvp() tries.
void end_before_exec(CallMemory& memory, const CaughtCall& call) noexcept {
  if ((call.number != SYS_execve && call.number != SYS_execveat) || runtime_of_parent() != nullptr ||
      process().ranks == 1)
    return;
  const bool at = call.number == SYS_execveat;
  const CaughtCall look{
      SYS_faccessat, {at ? call.argument[0] : AT_FDCWD, call.argument[at ? 1 : 0], X_OK}, 0, 0, 0, 0};
  if (Carried(memory, look, *find_call(SYS_faccessat)).carry_out() != 0) return;
  give_up(Error{
      Errc::unsupported,
      "exec: the program would take the place of this rank alone, of " + std::to_string(process().ranks) +
          ". Start it by posix_spawn, system, or fork and exec; or exec it before kasane run, from a "
          "script; on one rank (-n 1) exec works"});
}

/// Not inlined: the caller may go on in another OS thread and process between two calls.
[[gnu::noinline]] long carry_out_here(const CaughtCall& call) noexcept {
  CallMemory* const memory = memory_for_calls();
  if (memory == nullptr) return traps::issue_call(call.number, call.argument);
  const ult::RuntimeSection section;
  if (concerns_descriptors(call)) return call_beside_own(call, make_call);
  if (call.number == SYS_futex) return carry_out_futex(*memory, call);
  end_before_exec(*memory, call);
  CallEntry own;
  const CallEntry* const entry = entry_of(call, own);
  if (entry == nullptr) return carry_out_unknown(call);
  std::optional<OutputTurn> turn;
  if (writes_line(call)) turn.emplace(static_cast<int>(call.argument[0]));
  return Carried(*memory, call, *entry).carry_out();
}

/// The call at another rank: a thread goes there, and stays; main and bound threads have a thread make it.
long carry_out_at(Rank opener, const CaughtCall& call) noexcept {
  if (ult::Pool::self() != kNoSlot) {
    if (!ult::Pool::may_switch()) return -EBADF;  // in a handler of a signal
    check_no_mutex_held("a call on a descriptor of another rank");
    ult::Pool::go_to(opener);
    return carry_out_here(call);
  }
  if (!Runtime::current()->at_main() &&
      (BoundThreads::here() == nullptr || !in_space(__builtin_frame_address(0)))) {
    // Loops that close all that may be open make no use of it.
    if (call.number != SYS_close && call.number != SYS_fcntl) say_that_threads_stay(opener);
    return -EBADF;
  }
  struct Trip {
    const CaughtCall& call;
    long result;
  } trip{call, 0};
  call_for_main(
      {opener, "system call"},
      [](void* p) {
        auto& t = *static_cast<Trip*>(p);
        t.result = carry_out_here(t.call);
      },
      &trip);
  return trip.result;
}

long carry_out(CaughtCall& call) noexcept {
  UsedDescriptors used;
  if (g_descriptors.divided()) used = used_descriptors(call.number, call.argument[1]);
  if (const Rank there = standard_of(call); there != kNoRank) return carry_out_at(there, call);
  long result = carry_out_here(call);
  if (result == -EBADF)
    if (const Rank opener = opener_of(call, used); opener != kNoRank) result = carry_out_at(opener, call);
  return result < 0 ? result : number_opened(call, used, result);
}

}  // namespace

void number_descriptors(const Descriptors& descriptors) noexcept { g_descriptors = descriptors; }

Rank descriptor_elsewhere(int descriptor) noexcept {
  if (!g_descriptors.elsewhere(descriptor)) return kNoRank;
  const bool open_here = traps::issue_call(SYS_fcntl, {descriptor, F_GETFD, 0, 0, 0, 0}) >= 0;
  return open_here ? kNoRank : g_descriptors.owner(descriptor);
}

constinit bool g_calls_wrapped = false;

long make_call_here(CaughtCall call) noexcept {
  // As user code, which a signal may interrupt; sections are opened within.
  return concerns(call) ? carry_out(call) : traps::issue_call(call.number, call.argument);
}

// Not inlined: the thread may be on another OS thread after the call.
[[gnu::noinline]] long finish_call(long result) noexcept { return as_libc(result); }

long make_wrapped_call(CaughtCall call) noexcept { return finish_call(make_call_here(call)); }

void catch_calls_of_child(void (*note)(const CaughtCall&) noexcept) noexcept {
  g_note_call_of_child = note;
  g_descriptors = {};
  guard_call_signal();
  const Result<void> ruled = traps::rule_caught_calls({concerns, carry_out}, call_other_sigsys);
  g_calls_wrapped = !ruled || !traps::catch_calls_of_child();
}

void begin_catching_calls(bool kernel_waits) noexcept {
  guard_call_signal();
  Result<void> ruled = traps::rule_caught_calls({concerns, carry_out}, call_other_sigsys);
  if (ruled && !traps::catch_calls_of_program())
    ruled = fail_errno(Errc::unsupported, "prctl(PR_SET_SYSCALL_USER_DISPATCH), which Linux 5.11 has");
  if (ruled) return;
  g_calls_wrapped = true;
  if (kernel_waits) return;
  check_stream_errors();
  if (raw(process().rank) != 0) return;
  CrashText text;
  text.add("kasane: system calls cannot be caught here: ").add(ruled.error().message.c_str());
  text.add(
      ". Those by libc's functions (read, write) work on global memory; those within libc or by syscall() "
      "may fail with EFAULT: then use private buffers, views (kasane::view), or --faults uffd-thread\n");
  warn(text);
}

}  // namespace kasane::runtime

// A child that shares the memory until it has become another program (posix_spawn, and within libc system and
// popen): its calls are not caught, so what they name is pinned before. A sanitizer has its own.

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace {

using kasane::runtime::Hidden;
using kasane::runtime::Way;

class ForChild {
 public:
  void text(const char* at) noexcept {
    if (pins_) pins_->add_text(at);
  }
  void texts(char* const* list) noexcept {
    if (pins_) pins_->add_texts(reinterpret_cast<long>(list));
  }
  template <class T>
  void object(const T* at) noexcept {
    if (pins_) pins_->add(at, sizeof(T), Way::in);
  }

 private:
  struct Made : std::optional<kasane::runtime::Pins> {
    Made() noexcept {
      if (auto* const memory = kasane::runtime::memory_for_calls()) emplace(*memory);
    }
  };
  Made pins_;
};

using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                      char* const*, char* const*);

int spawn(Spawn libc, pid_t* child, const char* file, const posix_spawn_file_actions_t* actions,
          const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  ForChild present;
  present.text(file);
  present.object(actions);
  present.object(attributes);
  present.texts(arguments);
  present.texts(environment);
  const int error = libc(child, file, actions, attributes, arguments, environment);
  if (error == 0 && child != nullptr) kasane::comm::note_child(*child);
  return error;
}

constinit Hidden<Spawn> g_spawn("posix_spawn"), g_spawnp("posix_spawnp");
constinit Hidden<int (*)(const char*)> g_system("system");
constinit Hidden<FILE* (*)(const char*, const char*)> g_popen("popen");

}  // namespace

extern "C" [[gnu::visibility("default")]] int posix_spawn(pid_t* child, const char* path,
                                                          const posix_spawn_file_actions_t* actions,
                                                          const posix_spawnattr_t* attributes,
                                                          char* const* arguments, char* const* environment) {
  return spawn(g_spawn.get(), child, path, actions, attributes, arguments, environment);
}

extern "C" [[gnu::visibility("default")]] int posix_spawnp(pid_t* child, const char* file,
                                                           const posix_spawn_file_actions_t* actions,
                                                           const posix_spawnattr_t* attributes,
                                                           char* const* arguments, char* const* environment) {
  return spawn(g_spawnp.get(), child, file, actions, attributes, arguments, environment);
}

extern "C" [[gnu::visibility("default")]] int system(const char* command) {
  ForChild present;
  present.text(command);
  return g_system.get()(command);
}

std::FILE* kasane::runtime::popen_of_libc(const char* command, const char* mode) noexcept {
  ForChild present;
  present.text(command);
  return g_popen.get()(command, mode);
}

#endif
