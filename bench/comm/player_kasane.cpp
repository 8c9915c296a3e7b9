// SPDX-License-Identifier: Apache-2.0
// Kasane's player: a program on kasane::comm as a user of the installed package writes it (examples/comm).
// launch() makes it the two ranks of a job, or joins those that mpirun started; KASANE_RANKS,
// KASANE_TRANSPORT and KASANE_MPI say which. KASANE_ISSUE says whose threads issue and complete: the caller's
// (direct, if nothing is said), or the engine's own. Completions set a flag of
// their operation's slot: no two threads store to one word.
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <stdexcept>

#include <kasane/comm/collectives.hpp>
#include <kasane/comm/engine.hpp>
#include <kasane/comm/launch.hpp>

#include "player_main.h"

namespace kasane::bench {
namespace {

constexpr comm::RegionId kRegion{1};
constexpr comm::HandlerId kRequest{16}, kSend{17};

std::unique_ptr<comm::Session> session;  // launched before the player begins

template <class T>
T take(Result<T> result, const char* what) {
  if (!result) throw std::runtime_error(std::string(what) + ": " + result.error().message);
  return std::move(*result);
}

struct alignas(64) Slot {
  std::atomic<bool> busy{false};
  std::uint64_t result = 0;
};

class KasaneLane {
 public:
  KasaneLane(const Window& window, comm::Engine& engine, std::byte* mine, bool mapped, unsigned lane)
      : window_(window),
        engine_(engine),
        transport_(engine.transport()),
        mine_(mine),
        peer_(Rank{1 - raw(transport_.rank())}),
        mapped_(mapped),
        own_progress_(!mapped && engine.mode() == comm::Mode::direct),
        lane_(lane),
        target_(window.target(lane)),
        source_(window.source(lane)),
        word_(window.word(lane)),
        data_{window.data(lane, false), window.data(lane, true)},
        flag_{window.flag(lane, false), window.flag(lane, true)} {}

  [[nodiscard]] std::byte* source() const { return mine_ + source_; }
  [[nodiscard]] const std::byte* arrived(bool together) const { return mine_ + data_[together]; }

  [[gnu::always_inline]] void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    comm::Callback done;
    if (!mapped_) {
      // The peer's flag said that the last one has arrived, so its source is free; completions come a little
      // later.
      Slot& slot = passed_[rounds_++ % kPassed];
      wait(slot, Patience(true));
      done = occupy(slot);
    }
    while (!engine_.try_write_notify_async(
        {there(data_[together]), {kRegion, source_}, bytes, flag_[together], flag, done}))
      move_on();
  }

  [[gnu::always_inline]] void await(std::uint64_t, bool together, std::uint64_t flag, Patience patience) {
    const std::atomic_ref<std::uint64_t> here(*reinterpret_cast<std::uint64_t*>(mine_ + flag_[together]));
    while (here.load(std::memory_order_acquire) != flag) {  // acquire: the data after it
      if (own_progress_) transport_.progress();
      patience.look();
    }
  }

  [[gnu::always_inline]] void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    if (mapped_ && op <= Op::atomic) {
      at_once(op, bytes, i);
    } else {
      issue_for_later(op, bytes, i);
    }
  }
  [[nodiscard]] unsigned outstanding() const { return static_cast<unsigned>(head_ - tail_); }
  [[gnu::always_inline]] void drain(unsigned at_most, Patience patience) {
    while (head_ - tail_ > at_most) wait(slots_[tail_++ % Window::kWindow], patience);
    if (at_most != 0) return;
    for (Slot& slot : passed_) wait(slot, patience);
  }

 private:
  [[gnu::noinline]] void issue_for_later(Op op, std::uint64_t bytes, std::uint64_t i) {
    Slot& slot = slots_[head_ % Window::kWindow];
    const std::uint64_t at = window_.spread(i, bytes);
    const comm::LocalAddr here{kRegion, source_ + at};
    const comm::RemoteAddr target = there(target_ + at);
    const comm::Callback done = occupy(slot);
    ++head_;
    switch (op) {
      case Op::read: return retry([&] { return engine_.try_read_async({target, here, bytes, done}); });
      case Op::write: return retry([&] { return engine_.try_write_async({target, here, bytes, done}); });
      case Op::atomic:
        return retry([&] {
          return engine_.try_atomic_async(
              {comm::AtomicOp::fetch_add, comm::Width::eight, there(word_), 1, 0, &slot.result, done});
        });
      case Op::request:
        return retry(
            [&] { return engine_.try_request_async({peer_, kRequest, payload(bytes), &slot.result, done}); });
      case Op::send:
        return retry([&] { return engine_.try_send_async({peer_, kSend, payload(bytes), done}); });
    }
  }
  /// Where memory is mapped an operation has completed when the call returns: nothing to wait for, no
  /// callback.
  [[gnu::always_inline]] void at_once(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes);
    const comm::LocalAddr here{kRegion, source_ + at};
    const comm::RemoteAddr target = there(target_ + at);
    if (op == Op::read) {
      while (!engine_.try_read_async({target, here, bytes, {}})) move_on();
    } else if (op == Op::write) {
      while (!engine_.try_write_async({target, here, bytes, {}})) move_on();
    } else {
      while (!engine_.try_atomic_async(
          {comm::AtomicOp::fetch_add, comm::Width::eight, there(word_), 1, 0, &result_, {}}))
        move_on();
    }
  }
  static void complete(void* context, comm::Status) noexcept {
    // what the operation brought before it
    static_cast<Slot*>(context)->busy.store(false, std::memory_order_release);
  }
  static comm::Callback occupy(Slot& slot) {
    slot.busy.store(true, std::memory_order_relaxed);  // handed over with the operation itself
    return {&complete, &slot};
  }
  void wait(Slot& slot, Patience patience) {
    while (slot.busy.load(std::memory_order_acquire)) {  // acquire: what the operation brought after it
      if (engine_.mode() == comm::Mode::direct) transport_.progress();
      patience.look();
    }
  }
  /// A queue is full.
  void move_on() {
    if (engine_.mode() == comm::Mode::direct)
      transport_.progress();
    else
      relax();
  }
  template <class Try>
  [[gnu::always_inline]] void retry(const Try& attempt) {
    while (!attempt()) move_on();
  }
  [[nodiscard]] comm::RemoteAddr there(std::uint64_t offset) const { return {peer_, kRegion, offset}; }
  [[nodiscard]] std::span<const std::byte> payload(std::uint64_t bytes) const { return {source(), bytes}; }

  Window window_;
  comm::Engine& engine_;
  comm::Transport& transport_;
  std::byte* mine_;
  Rank peer_;
  bool mapped_, own_progress_;
  unsigned lane_;
  std::uint64_t target_, source_, word_;
  std::uint64_t data_[2], flag_[2];    ///< apart, together
  std::uint64_t head_ = 0, tail_ = 0;  ///< operations issued, and seen to have completed
  std::uint64_t result_ = 0;           ///< of an atomic that completed at once
  static constexpr unsigned kPassed = 4;
  unsigned rounds_ = 0;
  Slot passed_[kPassed];
  Slot slots_[Window::kWindow];
};

class KasaneSystem {
 public:
  KasaneSystem(unsigned, Control&, const Window& window)
      : waiter_(session->transport()),
        collectives_(session->transport(), waiter_),
        rank_(raw(session->transport().rank())) {
    comm::Transport& transport = session->transport();
    transport.set_handler(
        kRequest,
        [](void* t, const comm::Message& m) noexcept { static_cast<comm::Transport*>(t)->reply(m.token, 1); },
        &transport);
    transport.set_handler(kSend, [](void*, const comm::Message&) noexcept {}, nullptr);
    engine_ = take(comm::Engine::create(
                       transport, take(comm::engine_options_from_environment(), "the engine's options")),
                   "the engine");
    attach(window.bytes());
    mapped_ = transport.mapped(Rank{1 - rank()}, kRegion) != nullptr;
    for (unsigned t = 0; t < window.lanes(); ++t) lanes_.emplace_back(window, *engine_, mine_, mapped_, t);
    collectives_.barrier();
  }
  // neither rank leaves while the other one still sends requests
  ~KasaneSystem() { collectives_.barrier(); }
  KasaneSystem(const KasaneSystem&) = delete;
  KasaneSystem& operator=(const KasaneSystem&) = delete;

  [[nodiscard]] unsigned rank() const { return rank_; }
  /// Where the engine offloads, one thread of its own works beside ours, though not where memory is mapped.
  [[nodiscard]] unsigned helpers() const {
    return engine_->mode() == comm::Mode::offload && !mapped_ ? 1 : 0;
  }
  [[nodiscard]] static std::string refuse(const Order&) { return ""; }
  KasaneLane& lane(unsigned t) { return lanes_[t]; }
  static void serve() { session->transport().progress(); }

 private:
  void attach(std::uint64_t bytes) {
    const int fd = ::memfd_create("kasane-bench", MFD_CLOEXEC);
    void* p = MAP_FAILED;
    if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0)
      p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) throw std::runtime_error("memory for the Kasane player");
    mine_ = static_cast<std::byte*>(p);
    if (const auto attached = engine_->attach(kRegion, fd, mine_, bytes); !attached)
      throw std::runtime_error(attached.error().message);
  }

  comm::PollWaiter waiter_;
  comm::Collectives collectives_;
  unsigned rank_;
  std::unique_ptr<comm::Engine> engine_;  ///< goes first
  std::byte* mine_ = nullptr;
  bool mapped_ = false;
  std::deque<KasaneLane> lanes_;
};

}  // namespace
}  // namespace kasane::bench

int main() {
  using namespace kasane::bench;
  try {
    session = take(kasane::comm::launch(), "joining");
    const int status = player_main<KasaneSystem>("kasane", raw(session->transport().rank()));
    session.reset();
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane player: %s\n", e.what());
    return 1;
  }
}
