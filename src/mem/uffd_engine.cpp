// SPDX-License-Identifier: Apache-2.0
// Shut out. Registering a plain run again when it loses its rights, and undoing that when it gets them back,
// changes mappings: 5 µs each way beside the 3 that remain. A stack that is stolen pays both, and is seldom
// accessed here meanwhile. So a short plain run keeps its mapping and gets guard markers in its page table
// entries instead (SIGSEGV, mem/stack_guard.h), where the kernel has them: one call to shut the run out, one
// to let it in. It is registered only when it is to be read. Letting a run in removes all markers in it, also
// that of a stack's own guard: the code that arms a stack installs its guard again.
//
// The kernel may drop a translation that we made (it reclaims memory). So a byte a block says which rights V
// has. A fault that they allow is served here, without the handler: the block is mapped again. The serving
// thread counts itself in that byte, and protect() waits until no thread that came under the old rights is
// left. Such a thread holds nothing else, so that wait ends.
//
// Delivery to a thread (mem/fault_threads.h) differs in three points. No run is shut out by markers, since
// system calls would fail there. A fault that the rights allow is served by whichever of the two threads
// receives it. A block that the handler calls wild, or for whose frame there is no memory, is closed
// (mem/closed_blocks.h): the access, run again, then comes here in place, or its system call fails.
//
// Invariants: the low bits of a byte change only in protect() and fill(), whose caller holds the block's busy
// bit. plain implies write. A registered block is mapped with more than its rights only while one of these
// runs.
#include "mem/uffd_engine.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/memory_file.h"
#include "mem/closed_blocks.h"
#include "mem/fault_ranges.h"
#include "mem/fault_threads.h"
#include "mem/madvise.h"
#include "mem/mappings.h"
#include "mem/page_tables.h"
#include "mem/stack_guard.h"
#include "mem/userfaultfd.h"

namespace kasane::mem {
namespace {

// The state of a block, a byte.
constexpr std::uint8_t kRights = 3;  // an Access
constexpr std::uint8_t kPlain = 4;   // not registered; without rights: shut out
constexpr std::uint8_t kState = kRights | kPlain;
constexpr std::uint8_t kServing = 8;  // a thread that maps the block under its rights; up to 31

constexpr std::uint8_t state_of(Access access) { return static_cast<std::uint8_t>(access); }
constexpr std::uint8_t kOpenPlain = state_of(Access::write) | kPlain, kShutOut = kPlain;
// Blocks; a marker costs a page table entry, so long runs are registered
constexpr std::uint64_t kMostShutOut = 16;
constexpr unsigned kNapsWithoutMemory = 100;  // of 10 ms

class UffdEngine final : public FaultEngine, private FaultServer {
 public:
  UffdEngine(const Space& space, Delivery delivery, Userfaultfd uffd, std::atomic<std::uint8_t>* blocks,
             std::uint64_t limit)
      : map_(space.addresses()),
        a_(space.a(0)),
        bytes_(space.bytes()),
        uffd_(std::move(uffd)),
        blocks_(blocks),
        mappings_(limit),
        closed_(map_) {
    if (delivery == Delivery::thread) threads_.emplace(uffd_, static_cast<FaultServer&>(*this));
  }

  Result<void> open() {
    for (const ViewPart& part : map_.parts()) {
      if (const int result = uffd_.add(part.at, part.bytes); result != 0)
        return fail_errno(Errc::unsupported,
                          "userfaultfd does not take " + std::to_string(part.bytes) + " bytes of the space",
                          result);
    }
    return allow_all();  // only now: until here the protection of the whole mapping kept all threads out
  }

  ~UffdEngine() override {
    stop();
    shut();  // before our descriptor closes, which makes all of V plain
    ::munmap(blocks_, bytes_ / kBlockBytes);
  }

  std::string_view name() const noexcept override { return threads_ ? kUffdThread : kUffd; }

  Result<void> start(FaultHandler handler, void* context) override {
    KASANE_CHECK(handler != nullptr && handler_ == nullptr);
    handler_ = handler;
    context_ = context;
    auto started = register_ranges(map_, on_fault, this, traps::FaultSignals::segv_and_bus);
    if (started && threads_) {
      started = start_threads();
      if (!started) unregister_ranges(map_);
    }
    if (!started) handler_ = nullptr;
    return started;
  }

  void stop() noexcept override {
    if (handler_ == nullptr) return;
    unregister_ranges(map_);
    if (threads_) stop_threads();
    handler_ = nullptr;
  }

  void await_handlers() const noexcept override {
    if (threads_) threads_->await_answer();
  }

  Result<void> leave_open(BlockRange run) override {
    if (const int result = uffd_.remove(v(run), bytes(run)); result != 0)
      return fail_errno(Errc::limit,
                        "cannot leave " + std::to_string(run.count) + " blocks of the space to the kernel",
                        result);
    return {};
  }

  bool protect(BlockRange run, Access access) noexcept override {
    const std::uint64_t blocks = bytes_ / kBlockBytes;
    KASANE_CHECK(raw(run.first) <= blocks && run.count <= blocks - raw(run.first));
    if (access == Access::none) return forbid(run);
    for (BlockRange rest = run; rest.count != 0;) {
      const BlockRange alike = first_alike(rest);
      if (!(access == Access::read ? allow_read(alike) : allow_write(alike))) return false;
      rest = {BlockId{raw(alike.first) + alike.count}, rest.count - alike.count};
    }
    return true;
  }

  /// Cached blocks split no mappings, so dropping them would merge none.
  bool crowded() const noexcept override { return false; }

  // relaxed: as in punched().
  bool makes_frames(BlockId b) const noexcept override {
    return punched({b, 1}) && small_frames_.load(std::memory_order_relaxed);
  }

  // The bytes are in the frame before any thread sees it, and the rights follow: under rights given earlier a
  // thread would make a frame of zeros where there is none yet.
  std::uint64_t fill(BlockRange run, const std::byte* from, Access right) noexcept override {
    const BlockRange alike = first_alike(run);
    if (state(raw(alike.first)) != state_of(Access::none) || !punched(alike)) return 0;
    std::size_t done = 0;
    static_cast<void>(uffd_.copy(v(alike), from, bytes(alike), right == Access::read, done));
    const BlockRange filled{alike.first, done / kBlockBytes};
    if (filled.count != 0) set(filled, state_of(right));
    return filled.count;
  }

  // Blocks that were mapped protected have left markers, which keep the page table. Nothing is mapped now,
  // and a block that is mapped later gets the protection of its rights, so the markers can go.
  void give_tables_back(BlockRange run) noexcept override {
    for (BlockRange rest = run; rest.count != 0;) {
      const BlockRange alike = first_alike(rest);
      if (state(raw(alike.first)) == state_of(Access::none))
        KASANE_CHECK_OP(uffd_.protect(v(alike), bytes(alike), false), ==, 0);
      rest = {BlockId{raw(alike.first) + alike.count}, rest.count - alike.count};
    }
    drop_translations(v(run), bytes(run));
  }

  // Where blocks were shut out by guard markers, stores into punched pages were seen (Linux 6.18).
  void expect_punches(std::uint64_t offset, std::uint64_t bytes,
                      std::uint64_t frame_bytes) noexcept override {
    small_frames_.store(frame_bytes == kBlockBytes);
    punched_bytes_.store(bytes);
    punched_.store(offset);
  }

 private:
  std::byte* v(BlockRange run) const noexcept { return map_.address(offset_of(run.first)); }
  static std::size_t bytes(BlockRange run) noexcept { return run.count * kBlockBytes; }
  std::atomic<std::uint8_t>& byte(std::uint64_t block) const noexcept { return blocks_[block]; }
  // relaxed: the caller holds the busy bit, so the state is the one that the last protect() left.
  std::uint8_t state(std::uint64_t block) const noexcept {
    return byte(block).load(std::memory_order_relaxed) & kState;
  }

  BlockRange first_alike(BlockRange run) const noexcept {
    const std::uint64_t first = raw(run.first), end = first + run.count;
    std::uint64_t at = first + 1;
    while (at != end && state(at) == state(first)) ++at;
    return {run.first, at - first};
  }

  /// Changes the state of the blocks, which all have the same; returns when no thread maps one of them under
  /// the old rights.
  void set(BlockRange run, std::uint8_t to) noexcept {
    const std::uint64_t first = raw(run.first);
    const auto change = static_cast<std::uint8_t>(state(first) ^ to);
    // Release: a thread that comes under the new rights sees the bytes put into the frame before. seq_cst for
    // closed_, which is read next.
    for (std::uint64_t b = first; b != first + run.count; ++b) byte(b).fetch_xor(change);
    for (std::uint64_t b = first; b != first + run.count; ++b) await_servers(b);
    if ((to & kRights) != 0) closed_.open(run);
  }

  // Waits also for threads that came under the new rights; they hold nothing.
  void await_servers(std::uint64_t block) const noexcept {
    // acquire: what they mapped is mapped before the caller takes it away.
    while (byte(block).load(std::memory_order_acquire) >= kServing) ::sched_yield();
  }

  bool forbid(BlockRange run) noexcept {
    bool any = false;
    for (BlockRange rest = run; rest.count != 0;) {
      const BlockRange alike = first_alike(rest);
      if (state(raw(alike.first)) == kOpenPlain && !shut_out(alike) && !register_run(alike)) return false;
      any |= (state(raw(alike.first)) & kRights) != 0;
      rest = {BlockId{raw(alike.first) + alike.count}, rest.count - alike.count};
    }
    if (!any) return true;
    for (BlockRange rest = run; rest.count != 0;) {
      const BlockRange alike = first_alike(rest);
      if ((state(raw(alike.first)) & kRights) != 0) set(alike, state_of(Access::none));
      rest = {BlockId{raw(alike.first) + alike.count}, rest.count - alike.count};
    }
    KASANE_CHECK(advise(run, MADV_DONTNEED_LOCKED));
    return true;
  }

  // relaxed: set before the first punch.
  bool punched(BlockRange run) const noexcept {
    return offset_of(run.first) - punched_.load(std::memory_order_relaxed) <
           punched_bytes_.load(std::memory_order_relaxed);
  }

  /// Keeps a plain run, writable so far, out of V by guard markers. False: it is too long, or the kernel
  /// cannot.
  bool shut_out(BlockRange run) noexcept {
    if (threads_ || run.count > kMostShutOut || punched(run) || !guards_available()) return false;
    set(run, kShutOut);
    if (advise(run, MADV_GUARD_INSTALL)) return true;
    set(run, kOpenPlain);
    return false;
  }

  bool advise(BlockRange run, int advice) const noexcept { return mem::advise(v(run), bytes(run), advice); }

  bool allow_read(BlockRange run) noexcept {
    std::uint8_t before = state(raw(run.first));
    if (before == state_of(Access::read)) return true;
    if (before == kShutOut) {
      if (!register_run(run)) return false;
      KASANE_CHECK(advise(run, MADV_GUARD_REMOVE));
      before = state_of(Access::none);
    } else if ((before & kPlain) != 0) {
      // Maps the run, so that system calls can go on reading it: from now on only this engine maps what is
      // not mapped yet. A failure is ignored, because a stack's guard may lie in the run.
      advise(run, MADV_POPULATE_READ);
      if (!register_run(run)) return false;
    }
    set(run, state_of(Access::read));
    if (before == state_of(Access::none)) {
      map(run, Access::read);
    } else {
      KASANE_CHECK_OP(uffd_.protect(v(run), bytes(run), true), ==, 0);
    }
    return true;
  }

  bool allow_write(BlockRange run) noexcept {
    const std::uint8_t before = state(raw(run.first));
    if ((before & kRights) == state_of(Access::write)) return true;
    if (before == kShutOut) {
      set(run, kOpenPlain);
      KASANE_CHECK(advise(run, MADV_GUARD_REMOVE));
      return true;
    }
    set(run, state_of(Access::write));
    if (before == state_of(Access::read)) {
      KASANE_CHECK_OP(uffd_.protect(v(run), bytes(run), false), ==, 0);
      return true;
    }
    const std::uint64_t mapped = map(run, Access::write);
    if (const BlockRange rest{BlockId{raw(run.first) + mapped}, run.count - mapped};
        rest.count != 0 && !make_frames(rest))
      leave_to_kernel(rest);
    return true;
  }

  /// For registered blocks, writable, where frames come and go. One call for all, instead of a change of
  /// mappings, a fault in the kernel for each, and another change when they leave. False: not such blocks; or
  /// the kernel has no memory, which a thread that touches them will find. The kernel makes large frames
  /// itself.
  bool make_frames(BlockRange run) const noexcept {
    if (!makes_frames(run.first)) return false;
    for (std::size_t at = 0; at != bytes(run);) {
      std::size_t done = 0;
      int result = uffd_.make(v(run) + at, bytes(run) - at, done);
      at += done;
      if (result == EEXIST) {  // A put or a read has made it there. It is mapped, or is mapped now.
        result = uffd_.map(v(run) + at, kBlockBytes, false, done);
        if (result == 0 || result == EEXIST) at += kBlockBytes;
      }
      if (result != 0 && result != EEXIST) return false;
    }
    return true;
  }

  /// Maps registered blocks of equal rights. Blocks to be written: up to the first hole of M; returns their
  /// number. Blocks to be read: all that have a frame. Makes no frame for a hole: a guard's block must stay a
  /// hole, which keeps us from mapping over the guard.
  std::uint64_t map(BlockRange run, Access access) noexcept {
    std::size_t at = 0;
    while (at != bytes(run)) {
      std::size_t done = 0;
      const int result = uffd_.map(v(run) + at, bytes(run) - at, access == Access::read, done);
      at += done;
      if (result == 0) break;
      if (result == EEXIST || (result == EFAULT && access == Access::read)) {
        // Another thread that faulted on this block was faster, or the block is mapped when it is touched.
        at += kBlockBytes;
      } else {
        // Blocks from here on are mapped when they are touched. ENOENT: here is a guard of the kind that
        // splits the mapping; ENOMEM: the kernel has no memory for a page table.
        break;
      }
    }
    return at / kBlockBytes;
  }

  /// 0, or an errno.
  int make_frame(std::uint64_t offset) const noexcept {
    return mem::try_advise(a_ + offset, kBlockBytes, MADV_POPULATE_WRITE);
  }

  /// The blocks, writable, become plain. Where mappings are crowded they stay registered, and are mapped as
  /// they are touched.
  void leave_to_kernel(BlockRange run) noexcept {
    if (mappings_.crowded()) return;
    mappings_.spend();
    if (uffd_.remove(v(run), bytes(run)) == 0) {
      set(run, kOpenPlain);
    } else {
      mappings_.refused();
    }
  }

  /// Registers the run: its faults come to us again.
  bool register_run(BlockRange run) noexcept {
    mappings_.spend();
    const int result = uffd_.add(v(run), bytes(run));
    if (result == 0) return true;
    KASANE_CHECK_OP(result, ==, ENOMEM);
    mappings_.refused();
    return false;
  }

  static bool on_fault(void* self, void* address, bool write, int signal) {
    auto& engine = *static_cast<UffdEngine*>(self);
    const auto offset = engine.map_.offset(address);
    const Access wanted = write ? Access::write : Access::read;
    const BlockId block = block_of(offset);
    // A SIGSEGV is the guard of a stack, which no mapping cures, or a closed block.
    const bool curable = signal == SIGBUS || engine.closed_.open({block, 1});
    if (curable && engine.enter(raw(block), wanted)) return engine.serve_and_leave(raw(block), wanted);
    return engine.handler_(engine.context_, offset, wanted, Served::in_place);
  }

  void shut() const noexcept {
    for (const ViewPart& part : map_.parts()) ::mprotect(part.at, part.bytes, PROT_NONE);
  }

  // ---- delivery to a thread ----

  Result<void> allow_all() noexcept {
    for (const ViewPart& part : map_.parts()) {
      if (::mprotect(part.at, part.bytes, PROT_READ | PROT_WRITE) != 0)
        return fail_errno(Errc::limit,
                          "cannot make " + std::to_string(part.bytes) + " bytes of the space accessible");
    }
    return {};
  }

  Result<void> start_threads() {
    if (stopped_) KASANE_TRY(allow_all());
    stopped_ = false;
    return threads_->start();
  }

  /// No thread serves faults any more, so an access must not wait for that: V is closed until start().
  void stop_threads() noexcept {
    threads_->stop();
    stopped_ = true;
    closed_.open({BlockId{0}, bytes_ / kBlockBytes});
    shut();
    for (const ViewPart& part : map_.parts()) uffd_.wake(part.at, part.bytes);
  }

  static Access wanted(const UserFault& fault) noexcept { return fault.write ? Access::write : Access::read; }
  BlockId block(const UserFault& fault) const noexcept { return block_of(map_.offset(fault.address)); }

  bool serve_allowed(const UserFault& fault) noexcept override {
    const BlockId b = block(fault);
    if (!enter(raw(b), wanted(fault))) return false;
    if (!serve_and_leave(raw(b), wanted(fault))) closed_.close(b, [] { return false; });
    put_off(fault);
    return true;
  }

  void answer(const UserFault& fault) noexcept override {
    if (serve_allowed(fault)) return;  // allowed meanwhile
    const BlockId b = block(fault);
    if (!handler_(context_, map_.offset(fault.address), wanted(fault), Served::for_another))
      closed_.close(b, [this, b] { return (byte(raw(b)).load() & kRights) != 0; });
    put_off(fault);
  }

  // Wakes all threads that sleep for the block; their faults come later, and find it served. One wake too
  // many does no harm, one too few is a hang.
  void put_off(const UserFault& fault) noexcept override { uffd_.wake(v({block(fault), 1}), kBlockBytes); }

  /// Counts the caller in, unless the block's rights do not suffice.
  bool enter(std::uint64_t block, Access wanted) noexcept {
    std::uint8_t old = byte(block).load(std::memory_order_relaxed);  // relaxed: the exchange decides
    while ((old & kRights) >= state_of(wanted)) {
      if (old >= 31 * kServing) {
        ::sched_yield();
        old = byte(block).load(std::memory_order_relaxed);
        continue;
      }
      // acquire: the bytes put there by the thread that gave these rights.
      if (byte(block).compare_exchange_weak(old, static_cast<std::uint8_t>(old + kServing),
                                            std::memory_order_acquire, std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  /// False: the kernel refuses a frame or its mapping, for a second, and errno says why.
  bool serve_and_leave(std::uint64_t block, Access wanted) noexcept {
    // relaxed: the caller entered under these rights.
    const bool read_only = (byte(block).load(std::memory_order_relaxed) & kRights) == state_of(Access::read);
    int result = map_again(BlockId{block}, read_only, wanted);
    // It may be short of memory for a moment.
    for (unsigned naps = 0; result != 0 && naps != kNapsWithoutMemory; ++naps) {
      const timespec nap{.tv_sec = 0, .tv_nsec = 10'000'000};
      ::nanosleep(&nap, nullptr);
      result = map_again(BlockId{block}, read_only, wanted);
    }
    byte(block).fetch_sub(kServing, std::memory_order_release);  // release: await_servers()
    if (result != 0) errno = result;
    return result == 0;
  }

  /// 0, or the errno with which the kernel refuses. Without a frame that can be made, the access would fault
  /// again without end.
  int map_again(BlockId block, bool read_only, Access wanted) const noexcept {
    const BlockRange run{block, 1};
    std::size_t done = 0;
    int result = uffd_.map(v(run), kBlockBytes, read_only, done);
    // A frame that left between the two calls: the access faults again.
    if (result == EFAULT && (result = make_frame(offset_of(block))) == 0 &&
        (result = uffd_.map(v(run), kBlockBytes, read_only, done)) == EFAULT)
      return 0;
    // Another thread mapped it, but perhaps when it was read-only.
    if (result == EEXIST) result = wanted == Access::write ? uffd_.protect(v(run), kBlockBytes, false) : 0;
    // ENOENT, of any of these: the block is plain now, and is mapped when the access runs again.
    return result == ENOENT ? make_frame(offset_of(block)) : result;
  }

  const AddressMap map_;
  std::byte* const a_;
  const std::size_t bytes_;
  Userfaultfd uffd_;
  std::atomic<std::uint8_t>* const blocks_;
  std::atomic<std::uint64_t> punched_{0}, punched_bytes_{0};  ///< where frames are punched
  std::atomic<bool> small_frames_{false};                     ///< and made one by one
  MappingBudget mappings_;
  ClosedBlocks closed_;
  FaultHandler handler_ = nullptr;  // constant between start() and stop()
  void* context_ = nullptr;
  bool stopped_ = false;                 // V is closed until start()
  std::optional<FaultThreads> threads_;  // Delivery::thread
};

}  // namespace

Result<std::unique_ptr<FaultEngine>> make_uffd_engine(const Space& space, Delivery delivery,
                                                      std::uint64_t mapping_limit) {
  if (std::string missing = probe_userfaultfd(delivery); !missing.empty())
    return fail(Errc::unsupported, std::move(missing));
  auto uffd = Userfaultfd::open(delivery);
  KASANE_TRY(uffd);
  auto bytes = map_sparse(space.blocks(), "the rights of blocks");
  KASANE_TRY(bytes);
  auto* const rights = reinterpret_cast<std::atomic<std::uint8_t>*>(*bytes);
  auto engine = std::make_unique<UffdEngine>(space, delivery, std::move(*uffd), rights, mapping_limit);
  KASANE_TRY(engine->open());
  return engine;
}

}  // namespace kasane::mem
