// SPDX-License-Identifier: Apache-2.0
// Plays LCI 2, with a device for each thread. An active message is data and flag in one, and LCI's fastest
// way for few bytes; read and write are get and put. The two ranks find each other by LCI's own TCP
// bootstrap, so that nothing but the harness starts them. LCI_ATTR_OFI_PROVIDER_NAME says over what.
//   --put   the pingpong by put with signal, instead: the flag is a counter that LCI increments when the data
//           is in the target's memory
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <lci.hpp>

#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

bool by_put = false;

/// What has come for a lane. Its messages come through its own device, so only its own thread touches it.
struct alignas(64) Inbox {
  void* message = nullptr;  ///< the last one, ours until the next one is there
  std::uint64_t count = 0;
};
Inbox inboxes[kMaxThreads];
/// Answers so far, by lane.
std::atomic<std::uint64_t> answers[kMaxThreads];

void on_message(lci::status_t status) {
  Inbox& inbox = inboxes[status.get_tag()];
  std::free(inbox.message);
  inbox.message = status.get_buffer();
  ++inbox.count;
}
void on_send(lci::status_t status) { std::free(status.get_buffer()); }
void on_answer(lci::status_t status) {
  std::free(status.get_buffer());
  answers[status.get_tag()].fetch_add(1, std::memory_order_relaxed);  // nothing else hangs on the count
}

/// Takes the messages of all lanes.
struct Handlers {
  lci::rcomp_t messages = lci::register_rcomp(lci::alloc_handler(&on_message));
  lci::rcomp_t sends = lci::register_rcomp(lci::alloc_handler(&on_send));
  lci::rcomp_t answers = lci::register_rcomp(lci::alloc_handler(&on_answer));
};

/// What the peer has to know of a lane.
struct Names {
  lci::rmr_t memory;
  lci::rcomp_t signals, requests, messages, sends, answers;
};

class LciLane {
 public:
  /// Devices are made in step with the other rank.
  LciLane(const Window& window, std::byte* mine, int peer, unsigned lane, const Handlers& handlers)
      : window_(window),
        mine_(mine),
        peer_(peer),
        lane_(lane),
        device_(lci::alloc_device_x().net_max_sends(kSends).net_max_recvs(kReceives).net_max_cqes(
            kCompletions)()),
        memory_(lci::register_memory_x(mine, window.bytes()).device(device_)()),
        signals_(lci::alloc_counter()),
        passed_(lci::alloc_counter()),
        completed_(lci::alloc_counter()),
        requests_(lci::alloc_cq()) {
    names_ = {lci::get_rmr(memory_),
              lci::register_rcomp(signals_),
              lci::register_rcomp(requests_),
              handlers.messages,
              handlers.sends,
              handlers.answers};
  }
  void connect(Control& control) {
    const std::string theirs =
        control.exchange(std::string(reinterpret_cast<const char*>(&names_), sizeof names_));
    if (theirs.size() != sizeof theirs_) throw std::runtime_error("the ranks' versions of LCI differ");
    std::memcpy(static_cast<void*>(&theirs_), theirs.data(), sizeof theirs_);
  }
  [[nodiscard]] std::byte* source() const { return mine_ + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return by_put ? mine_ + window_.data(lane_, together)
                  : static_cast<const std::byte*>(inboxes[lane_].message);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t) {
    const std::uint64_t there = window_.data(lane_, together);
    const bool under_way = by_put
                               ? post(lci::post_put_x(peer_, source(), bytes, passed_, there, theirs_.memory)
                                          .device(device_)
                                          .mr(memory_)
                                          .remote_comp(theirs_.signals))
                               : post(lci::post_am_x(peer_, source(), bytes, passed_, theirs_.messages)
                                          .device(device_)
                                          .tag(lane_));
    if (!under_way) return;
    // After the last round no thread would make progress for it.
    for (++posted_; count(passed_) != posted_; patience_.look()) progress();
  }
  void await(std::uint64_t, bool, std::uint64_t flag, Patience patience) {
    patience_ = patience;
    // Both count from one, as the flag does. It is our own progress that brings them and the data: no other
    // thread to be ordered with.
    while ((by_put ? count(signals_) : inboxes[lane_].count) != flag) {
      progress();
      patience.look();
    }
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes), there = window_.target(lane_) + at;
    std::byte* here = source() + at;
    switch (op) {
      case Op::read:
        post(lci::post_get_x(peer_, here, bytes, completed_, there, theirs_.memory)
                 .device(device_)
                 .mr(memory_)
                 .allow_done(false));
        break;
      case Op::write: {
        auto put = lci::post_put_x(peer_, here, bytes, completed_, there, theirs_.memory)
                       .device(device_)
                       .mr(memory_)
                       .allow_done(false);
        // Completed is what has reached the target, not what may be overwritten here.
        post(put.comp_semantic(lci::comp_semantic_t::network));
        break;
      }
      case Op::request: ++unanswered_; [[fallthrough]];
      case Op::send: {
        const lci::rcomp_t handler = op == Op::request ? theirs_.requests : theirs_.sends;
        post(lci::post_am_x(peer_, here, bytes, completed_, handler)
                 .device(device_)
                 .tag(lane_)
                 .allow_done(false));
        break;
      }
      case Op::atomic: throw std::logic_error("refused");
    }
    ++issued_;
  }
  [[nodiscard]] unsigned outstanding() const { return static_cast<unsigned>(issued_ - count(completed_)); }
  void drain(unsigned at_most, Patience patience) {
    patience_ = patience;
    // relaxed: see on_answer()
    while (issued_ - count(completed_) > at_most ||
           answers[lane_].load(std::memory_order_relaxed) != unanswered_) {
      progress();
      patience.look();
    }
  }

  void progress() { lci::progress_x().device(device_)(); }
  /// As a target.
  void serve() {
    progress();
    const lci::status_t request = lci::cq_pop(requests_);
    if (!request.is_done()) return;
    std::free(request.get_buffer());
    if (post(lci::post_am_x(peer_, &one_, sizeof one_, passed_, theirs_.answers)
                 .device(device_)
                 .tag(request.get_tag())))
      ++posted_;
  }

  void close() {
    for (lci::comp_t* comp : {&signals_, &passed_, &completed_, &requests_}) lci::free_comp(comp);
    lci::deregister_memory(&memory_);
    lci::free_device(&device_);
  }
  [[nodiscard]] lci::device_t device() const { return device_; }

 private:
  // A window of sends never waits for room; 16 devices share a pool of packets.
  static constexpr std::size_t kSends = 256, kReceives = 256, kCompletions = 4096;

  /// Whether the operation is still under way; else it was complete at once.
  template <class Operation>
  bool post(const Operation& operation) {
    lci::status_t status;
    for (; (status = operation()).is_retry(); patience_.look()) progress();
    return status.is_posted();
  }
  [[nodiscard]] static std::uint64_t count(lci::comp_t counter) {
    return static_cast<std::uint64_t>(lci::counter_get(counter));
  }

  Window window_;
  std::byte* mine_;
  int peer_;
  unsigned lane_;
  lci::device_t device_;
  lci::mr_t memory_;
  lci::comp_t signals_, passed_, completed_, requests_;
  Names names_{}, theirs_{};
  Patience patience_{false};  ///< the last one we were given, for waits inside an operation
  std::uint64_t one_ = 1;
  std::uint64_t posted_ = 0, issued_ = 0, unanswered_ = 0;
};

class LciSystem {
 public:
  LciSystem(unsigned rank, Control& control, const Window& window) : rank_(rank) {
    start(control);
    void* base = ::mmap(nullptr, window.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("memory for the LCI player");
    const Handlers handlers;
    for (unsigned t = 0; t < window.lanes(); ++t)
      lanes_.emplace_back(window, static_cast<std::byte*>(base), 1 - static_cast<int>(rank), t, handlers);
    for (LciLane& lane : lanes_) lane.connect(control);
  }
  ~LciSystem() {
    // Neither rank leaves while the other one still sends requests.
    for (const LciLane& lane : lanes_) lci::barrier_x().device(lane.device())();
    for (LciLane& lane : lanes_) lane.close();
    lci::g_runtime_fina();
  }
  LciSystem(const LciSystem&) = delete;
  LciSystem& operator=(const LciSystem&) = delete;
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    if (order.task != Task::operate) return "";
    return by_put ? "the same as without --put" : order.op == Op::atomic ? "no atomics" : "";
  }
  LciLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {
    for (LciLane& lane : lanes_) lane.serve();
  }

 private:
  void start(Control& control) {
    // Rank 0 will listen there.
    const std::string mine = rank_ == 0 ? free_port() : "", theirs = control.exchange(mine);
    ::setenv("LCT_PMI_BACKEND", "tcp", 1);
    ::setenv("RANK", std::to_string(rank_).c_str(), 1);
    ::setenv("WORLD_SIZE", "2", 1);
    ::setenv("LCT_MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("LCT_MASTER_PORT", (rank_ == 0 ? mine : theirs).c_str(), 1);
    lci::g_runtime_init_x().alloc_default_device(false)();
  }

  /// One that the kernel has just found free.
  static std::string free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || ::bind(fd, generic, length) != 0 || ::getsockname(fd, generic, &length) != 0)
      throw std::runtime_error("no port for LCI's bootstrap");
    ::close(fd);
    return std::to_string(ntohs(address.sin_port));
  }

  unsigned rank_;
  std::deque<LciLane> lanes_;
};

}  // namespace
}  // namespace kasane::bench

int main(int argc, char** argv) {
  kasane::bench::by_put = argc > 1 && std::strcmp(argv[1], "--put") == 0;
  return kasane::bench::player_main<kasane::bench::LciSystem>("lci");
}
