// SPDX-License-Identifier: Apache-2.0
// Plays GPI-2 (GASPI) on its TCP device, with a queue for each thread: write_notify for data and flag, the
// flag being the notification; passive communication for messages. The environment that gaspi_run would set
// comes from here, so that nothing but the harness starts the ranks.
#include <GASPI.h>
#include <sys/mman.h>

#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

void check(gaspi_return_t status, const char* what) {
  if (status == GASPI_SUCCESS) return;
  gaspi_string_t text = nullptr;
  gaspi_print_error(status, &text);
  throw std::runtime_error(std::string(what) + ": " +
                           (text != nullptr ? text : "error " + std::to_string(status)));
}

constexpr gaspi_segment_id_t kSegment = 0;
/// Notifications: the flag of each lane, then the number of its answers.
constexpr gaspi_notification_id_t kFlags = 0, kAnswers = kMaxThreads;

/// The first word of a message.
struct Header {
  std::uint32_t lane;
  enum Kind : std::uint32_t { request, send, leave } kind;
};

/// Posts; room in a full queue comes from waiting for what is in it.
template <class Post>
void post(gaspi_queue_id_t queue, const Post& attempt, const char* what) {
  gaspi_return_t status = attempt();
  while (status == GASPI_QUEUE_FULL) {
    check(gaspi_wait(queue, GASPI_BLOCK), "gaspi_wait");
    status = attempt();
  }
  check(status, what);
}

/// The notification's value, or 0.
gaspi_notification_t take(gaspi_notification_id_t id) {
  gaspi_notification_id_t first = 0;
  gaspi_notification_t value = 0;
  if (gaspi_notify_waitsome(kSegment, id, 1, &first, GASPI_TEST) != GASPI_SUCCESS) return 0;
  gaspi_notify_reset(kSegment, first, &value);
  return value;
}

class GaspiLane {
 public:
  GaspiLane(const Window& window, std::byte* mine, gaspi_rank_t peer, unsigned lane)
      : window_(window), mine_(mine), peer_(peer), lane_(lane), queue_(static_cast<gaspi_queue_id_t>(lane)) {}
  [[nodiscard]] std::byte* source() const { return mine_ + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return mine_ + window_.data(lane_, together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    const auto attempt = [&] {
      return gaspi_write_notify(kSegment, window_.source(lane_), peer_, kSegment,
                                window_.data(lane_, together), bytes, kFlags + lane_,
                                static_cast<gaspi_notification_t>(flag), queue_, GASPI_BLOCK);
    };
    post(queue_, attempt, "gaspi_write_notify");
  }
  void await(std::uint64_t, bool, std::uint64_t flag, Patience patience) {
    while (take(kFlags + lane_) != static_cast<gaspi_notification_t>(flag)) patience.look();
    std::atomic_thread_fence(std::memory_order_acquire);  // the data after its notification
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes), here = window_.source(lane_) + at,
                        there = window_.target(lane_) + at;
    switch (op) {
      case Op::read:
        post(
            queue_,
            [&] { return gaspi_read(kSegment, here, peer_, kSegment, there, bytes, queue_, GASPI_BLOCK); },
            "gaspi_read");
        break;
      case Op::write:
        post(
            queue_,
            [&] { return gaspi_write(kSegment, here, peer_, kSegment, there, bytes, queue_, GASPI_BLOCK); },
            "gaspi_write");
        unflushed_ = true;
        break;
      case Op::atomic:
        check(gaspi_atomic_fetch_add(kSegment, window_.word(lane_), peer_, 1, &old_, GASPI_BLOCK),
              "gaspi_atomic_fetch_add");
        break;
      case Op::request:
        ++unanswered_;
        message(Header::request, bytes);
        break;
      case Op::send: message(Header::send, bytes); break;
    }
    ++issued_;
  }
  [[nodiscard]] unsigned outstanding() const { return issued_; }
  void drain(unsigned, Patience patience) {
    wait(patience);
    if (unflushed_) {
      // gaspi_wait() says only that the source may change. The device works off what one rank sends another
      // in order: what is read now was written before.
      const std::uint64_t unused = window_.flag(lane_, false);
      post(
          queue_,
          [&] { return gaspi_read(kSegment, unused, peer_, kSegment, unused, 8, queue_, GASPI_BLOCK); },
          "gaspi_read");
      wait(patience);
      unflushed_ = false;
    }
    while (answered_ != unanswered_) {
      // A notification overwrites the one before it, so each carries how many answers there are.
      if (const gaspi_notification_t answers = take(kAnswers + lane_); answers != 0)
        answered_ = answers;
      else
        patience.look();
    }
    issued_ = 0;
  }

  /// Returns when the peer has received it: that is what passive communication is.
  void message(Header::Kind kind, std::uint64_t bytes) {
    const Header header{lane_, kind};
    std::memcpy(source(), &header, sizeof header);
    check(gaspi_passive_send(kSegment, window_.source(lane_), peer_,
                             std::max<std::uint64_t>(bytes, sizeof header), GASPI_BLOCK),
          "gaspi_passive_send");
  }
  /// As a target: on the thread that receives.
  void answer() {
    const gaspi_notification_t count = ++answers_;
    post(
        queue_, [&] { return gaspi_notify(kSegment, peer_, kAnswers + lane_, count, queue_, GASPI_BLOCK); },
        "gaspi_notify");
  }

 private:
  void wait(Patience patience) {
    gaspi_return_t status = GASPI_TIMEOUT;
    while ((status = gaspi_wait(queue_, GASPI_TEST)) == GASPI_TIMEOUT) patience.look();
    check(status, "gaspi_wait");
  }

  Window window_;
  std::byte* mine_;
  gaspi_rank_t peer_;
  unsigned lane_;
  gaspi_queue_id_t queue_;
  gaspi_atomic_value_t old_ = 0;
  gaspi_notification_t unanswered_ = 0, answered_ = 0, answers_ = 0;
  bool unflushed_ = false;
  unsigned issued_ = 0;
};

class GaspiSystem {
 public:
  GaspiSystem(unsigned rank, Control&, const Window& window) : rank_(rank) {
    start(window.lanes());
    check(gaspi_passive_transfer_size_max(&largest_message_), "gaspi_passive_transfer_size_max");
    inbox_ = window.bytes();
    check(gaspi_segment_create(kSegment, window.bytes() + largest_message_, GASPI_GROUP_ALL, GASPI_BLOCK,
                               GASPI_MEM_INITIALIZED),
          "gaspi_segment_create");
    gaspi_pointer_t base = nullptr;
    check(gaspi_segment_ptr(kSegment, &base), "gaspi_segment_ptr");
    mine_ = static_cast<std::byte*>(base);
    for (unsigned t = 0; t < window.lanes(); ++t)
      lanes_.emplace_back(window, mine_, static_cast<gaspi_rank_t>(1 - rank), t);
    receiver_ = std::thread([this] { receive(); });
    check(gaspi_barrier(GASPI_GROUP_ALL, GASPI_BLOCK), "gaspi_barrier");
  }
  ~GaspiSystem() {
    lanes_[0].message(Header::leave, 0);
    receiver_.join();  // the peer's leave
    gaspi_barrier(GASPI_GROUP_ALL, GASPI_BLOCK);
    gaspi_proc_term(GASPI_BLOCK);
  }
  GaspiSystem(const GaspiSystem&) = delete;
  GaspiSystem& operator=(const GaspiSystem&) = delete;
  [[nodiscard]] unsigned rank() const { return rank_; }
  /// The device's thread sleeps while there is nothing to do, but nothing moves unless it has a core.
  [[nodiscard]] static unsigned helpers() { return 1; }
  [[nodiscard]] std::string refuse(const Order& order) const {
    const bool message = order.task == Task::operate && (order.op == Op::request || order.op == Op::send);
    return message && order.bytes > largest_message_ ? "no passive message of that size" : "";
  }
  GaspiLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {}  // the device's thread and the receiver do

 private:
  void start(unsigned lanes) {
    // Two ranks on one host; rank 0 reads their names, one a line.
    const int hosts = ::memfd_create("kasane-bench-hosts", MFD_CLOEXEC);
    constexpr std::string_view kHosts = "localhost\nlocalhost\n";
    if (hosts < 0 || ::write(hosts, kHosts.data(), kHosts.size()) != static_cast<ssize_t>(kHosts.size()))
      throw std::runtime_error("a file of host names");
    const std::string rank = std::to_string(rank_), file = "/proc/self/fd/" + std::to_string(hosts);
    ::setenv("GASPI_NRANKS", "2", 1);
    ::setenv("GASPI_RANK", rank.c_str(), 1);
    ::setenv("GASPI_SOCKET", rank.c_str(), 1);  // the rank on its host
    ::setenv("GASPI_MFILE", file.c_str(), 1);
    gaspi_config_t config;
    check(gaspi_config_get(&config), "gaspi_config_get");
    if (config.network != GASPI_ETHERNET)
      throw std::runtime_error("wants a GPI-2 that was configured --with-ethernet");
    config.queue_num = lanes;
    check(gaspi_config_set(config), "gaspi_config_set");
    check(gaspi_proc_init(GASPI_BLOCK), "gaspi_proc_init");
    ::close(hosts);
  }

  /// Sleeps until a message comes: the use that passive communication is made for.
  void receive() {
    for (;;) {
      gaspi_rank_t from = 0;
      check(gaspi_passive_receive(kSegment, inbox_, &from, largest_message_, GASPI_BLOCK),
            "gaspi_passive_receive");
      Header header{};
      std::memcpy(&header, mine_ + inbox_, sizeof header);
      if (header.kind == Header::leave) return;
      if (header.kind == Header::request) lanes_[header.lane].answer();
    }
  }

  unsigned rank_;
  gaspi_size_t largest_message_ = 0;
  gaspi_offset_t inbox_ = 0;
  std::byte* mine_ = nullptr;
  std::deque<GaspiLane> lanes_;
  std::thread receiver_;
};

}  // namespace
}  // namespace kasane::bench

int main() { return kasane::bench::player_main<kasane::bench::GaspiSystem>("gpi2"); }
