// SPDX-License-Identifier: Apache-2.0
// Plays GASNet-EX (its smp conduit, "par" threading): a blocking put, which completes remotely, for the data,
// and another one for the flag. The conduit forks its second process itself (GASNET_PSHM_NODES=2).
#include <gasnetex.h>

#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

void check(int status, const char* what) {
  if (status != GASNET_OK) throw std::runtime_error(std::string(what) + ": " + gasnet_ErrorDesc(status));
}

gex_TM_t team;
gex_AD_t domain;
/// Answers so far, by lane; handlers run on whichever thread polls.
std::atomic<std::uint64_t> answers[kMaxThreads];

constexpr gex_AM_Index_t kRequest = GEX_AM_INDEX_BASE, kSend = GEX_AM_INDEX_BASE + 1,
                         kAnswer = GEX_AM_INDEX_BASE + 2;

void on_request(gex_Token_t token, void*, std::size_t, gex_AM_Arg_t lane) {
  gex_AM_ReplyShort1(token, kAnswer, 0, lane);
}
void on_send(gex_Token_t, void*, std::size_t, gex_AM_Arg_t) {}
// relaxed: nothing else hangs on the count
void on_answer(gex_Token_t, gex_AM_Arg_t lane) { answers[lane].fetch_add(1, std::memory_order_relaxed); }

class GasnetLane {
 public:
  GasnetLane(const Window& window, std::byte* mine, std::byte* theirs, gex_Rank_t peer, unsigned lane)
      : window_(window), mine_(mine), theirs_(theirs), peer_(peer), lane_(lane) {}
  [[nodiscard]] std::byte* source() const { return mine_ + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return mine_ + window_.data(lane_, together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    gex_RMA_PutBlocking(team, peer_, theirs_ + window_.data(lane_, together), source(), bytes, 0);
    gex_RMA_PutBlocking(team, peer_, theirs_ + window_.flag(lane_, together), &flag, sizeof flag, 0);
  }
  void await(std::uint64_t, bool together, std::uint64_t flag, Patience patience) {
    std::atomic_ref<std::uint64_t> here(
        *reinterpret_cast<std::uint64_t*>(mine_ + window_.flag(lane_, together)));
    // acquire: the data after it
    for (unsigned looks = 1; here.load(std::memory_order_acquire) != flag; ++looks) {
      if (looks % kLooksBetweenProgress == 0) gasnet_AMPoll();
      patience.look();
    }
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes);
    std::byte *here = source() + at, *there = theirs_ + window_.target(lane_) + at;
    const auto lane = static_cast<gex_AM_Arg_t>(lane_);
    switch (op) {
      case Op::read: gex_RMA_GetNBI(team, here, peer_, there, bytes, 0); break;
      case Op::write: gex_RMA_PutNBI(team, peer_, there, here, bytes, GEX_EVENT_DEFER, 0); break;
      case Op::atomic:
        gex_AD_OpNBI_U64(domain, &old_[i % Window::kWindow], peer_,
                         reinterpret_cast<std::uint64_t*>(theirs_ + window_.word(lane_)), GEX_OP_FADD, 1, 0,
                         0);
        break;
      case Op::request:
        ++unanswered_;
        gex_AM_RequestMedium1(team, peer_, kRequest, here, bytes, GEX_EVENT_NOW, 0, lane);
        break;
      case Op::send: gex_AM_RequestMedium1(team, peer_, kSend, here, bytes, GEX_EVENT_NOW, 0, lane); break;
    }
    ++issued_;
  }
  [[nodiscard]] unsigned outstanding() const { return issued_; }
  void drain(unsigned, Patience patience) {
    gex_NBI_Wait(GEX_EC_ALL, 0);
    while (answers[lane_].load(std::memory_order_relaxed) != unanswered_) {  // relaxed: see on_answer()
      gasnet_AMPoll();
      patience.look();
    }
    issued_ = 0;
  }

 private:
  static constexpr unsigned kLooksBetweenProgress = 1024;
  Window window_;
  std::byte *mine_, *theirs_;
  gex_Rank_t peer_;
  unsigned lane_;
  std::uint64_t old_[Window::kWindow] = {};
  std::uint64_t unanswered_ = 0;
  unsigned issued_ = 0;
};

class GasnetSystem {
 public:
  GasnetSystem(unsigned rank, Control& control, const Window& window) : rank_(rank) {
    gex_Segment_t segment = GEX_SEGMENT_INVALID;
    const std::uint64_t bytes = (window.bytes() + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    check(gex_Segment_Attach(&segment, team, bytes), "gex_Segment_Attach");
    auto* mine = static_cast<std::byte*>(gex_Segment_QueryAddr(segment));
    std::memset(mine, 0, window.bytes());
    // Also says that ours is zeroed.
    const auto theirs = static_cast<std::uintptr_t>(
        std::stoull(control.exchange(std::to_string(reinterpret_cast<std::uintptr_t>(mine)))));
    gex_AD_Create(&domain, team, GEX_DT_U64, GEX_OP_FADD, 0);
    for (unsigned t = 0; t < window.lanes(); ++t) {
      lanes_.emplace_back(window, mine, reinterpret_cast<std::byte*>(theirs),
                          static_cast<gex_Rank_t>(1 - rank), t);
    }
  }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order&) { return ""; }
  GasnetLane& lane(unsigned t) { return lanes_[t]; }
  void serve() { gasnet_AMPoll(); }

 private:
  unsigned rank_;
  std::deque<GasnetLane> lanes_;
};

unsigned start(int* argc, char*** argv) {
  gex_Client_t client = GEX_CLIENT_INVALID;
  gex_EP_t endpoint = GEX_EP_INVALID;
  check(gex_Client_Init(&client, &endpoint, &team, "kasane-bench", argc, argv, 0), "gex_Client_Init");
  gex_AM_Entry_t handlers[]{
      {kRequest, reinterpret_cast<gex_AM_Fn_t>(&on_request), GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1,
       nullptr, "request"},
      {kSend, reinterpret_cast<gex_AM_Fn_t>(&on_send), GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, nullptr,
       "send"},
      {kAnswer, reinterpret_cast<gex_AM_Fn_t>(&on_answer), GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, nullptr,
       "answer"},
  };
  check(gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof handlers[0]),
        "gex_EP_RegisterHandlers");
  return gex_TM_QueryRank(team);
}

}  // namespace
}  // namespace kasane::bench

int main(int argc, char** argv) {
  try {
    const unsigned rank = kasane::bench::start(&argc, &argv);
    const int status = kasane::bench::player_main<kasane::bench::GasnetSystem>("gasnet", rank);
    gasnet_exit(status);
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gasnet player: %s\n", e.what());
    return 1;
  }
}
