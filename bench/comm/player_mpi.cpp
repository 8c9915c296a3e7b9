// SPDX-License-Identifier: Apache-2.0
// Plays an MPI, with MPI_THREAD_MULTIPLE; built once for each MPI that is here, started by its mpirun.
//   --p2p   send and receive: the message is its own flag
//   --put   MPI-3 passive target: put data, flush, put flag, flush; the poller looks at memory
//           (MPI_Win_sync), and now and then lets the MPI make progress
//   --own   the same on memory that the program brought (MPI_Win_create), as a runtime with memory of its own
//           does; else the MPI allocates it
// Each thread has a window and a communicator of its own: one for all makes the threads wait for each other's
// flushes.
#include <mpi.h>
#include <sys/mman.h>

#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

bool p2p = false, own = false;

class MpiLane {
 public:
  MpiLane(const Window& all, unsigned rank) : window_(1, all.area()), peer_(1 - static_cast<int>(rank)) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    void* base = nullptr;
    if (p2p) {
      MPI_Alloc_mem(static_cast<MPI_Aint>(window_.bytes()), MPI_INFO_NULL, &base);
    } else if (own) {
      base = ::mmap(nullptr, window_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (base == MAP_FAILED) throw std::runtime_error("memory for the MPI player");
      MPI_Win_create(base, static_cast<MPI_Aint>(window_.bytes()), 1, MPI_INFO_NULL, comm_, &win_);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, win_);
    } else {
      MPI_Win_allocate(static_cast<MPI_Aint>(window_.bytes()), 1, MPI_INFO_NULL, comm_, &base, &win_);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, win_);
    }
    base_ = static_cast<std::byte*>(base);
    std::memset(base_, 0, window_.bytes());
    MPI_Barrier(comm_);
  }

  [[nodiscard]] std::byte* source() const { return base_ + window_.source(0); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return base_ + window_.data(0, !p2p && together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    const int count = static_cast<int>(bytes);
    if (p2p) {
      MPI_Send(source(), count, MPI_BYTE, peer_, kPing, comm_);
      return;
    }
    MPI_Put(source(), count, MPI_BYTE, peer_, at(window_.data(0, together)), count, MPI_BYTE, win_);
    MPI_Win_flush(peer_, win_);  // the data before the flag
    MPI_Put(&flag, 1, MPI_UINT64_T, peer_, at(window_.flag(0, together)), 1, MPI_UINT64_T, win_);
    MPI_Win_flush(peer_, win_);
  }

  void await(std::uint64_t bytes, bool together, std::uint64_t flag, Patience patience) {
    if (p2p) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(base_ + window_.data(0, false), static_cast<int>(bytes), MPI_BYTE, peer_, kPing, comm_,
                &request);
      for (int done = 0; done == 0; patience.look()) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      return;
    }
    std::atomic_ref<std::uint64_t> here(*reinterpret_cast<std::uint64_t*>(base_ + window_.flag(0, together)));
    // acquire: the data after it
    for (unsigned looks = 1; here.load(std::memory_order_acquire) != flag; ++looks) {
      if (looks % kLooksBetweenProgress == 0) progress();
      patience.look();
    }
    MPI_Win_sync(win_);
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t offset = window_.spread(i, bytes);
    const int count = static_cast<int>(bytes);
    std::byte* here = source() + offset;
    const MPI_Aint there = at(window_.target(0) + offset);
    switch (op) {
      case Op::read: MPI_Get(here, count, MPI_BYTE, peer_, there, count, MPI_BYTE, win_); break;
      case Op::write: MPI_Put(here, count, MPI_BYTE, peer_, there, count, MPI_BYTE, win_); break;
      case Op::atomic:
        MPI_Fetch_and_op(&one_, &old_[i % Window::kWindow], MPI_UINT64_T, peer_, at(window_.word(0)), MPI_SUM,
                         win_);
        break;
      case Op::request:
        MPI_Irecv(&old_[i % Window::kWindow], 1, MPI_UINT64_T, peer_, kAnswer, comm_, next_request());
        [[fallthrough]];
      case Op::send:
        MPI_Isend(here, count, MPI_BYTE, peer_, op == Op::send ? kSend : kRequest, comm_, next_request());
        break;
    }
    ++issued_;
  }
  [[nodiscard]] unsigned outstanding() const { return issued_; }
  void drain(unsigned, Patience patience) {
    if (p2p) {
      for (int done = 0; done == 0; patience.look())
        MPI_Testall(static_cast<int>(used_), requests_, &done, MPI_STATUSES_IGNORE);
      used_ = 0;
    } else {
      MPI_Win_flush(peer_, win_);
    }
    issued_ = 0;
  }

  /// As a target: lets the MPI work, answers requests.
  void progress() {
    MPI_Status status;
    int there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &status);
    if (there == 0) return;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    MPI_Recv(base_ + window_.target(0), count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_,
             MPI_STATUS_IGNORE);
    if (status.MPI_TAG == kRequest) MPI_Send(&one_, 1, MPI_UINT64_T, status.MPI_SOURCE, kAnswer, comm_);
  }

  void close() {
    if (!p2p) {
      MPI_Win_unlock_all(win_);
      MPI_Win_free(&win_);
    } else {
      MPI_Free_mem(base_);
    }
    MPI_Comm_free(&comm_);
  }

 private:
  static constexpr int kPing = 1, kRequest = 2, kSend = 3, kAnswer = 4;
  static constexpr unsigned kLooksBetweenProgress = 1024;
  static MPI_Aint at(std::uint64_t offset) { return static_cast<MPI_Aint>(offset); }
  MPI_Request* next_request() { return &requests_[used_++]; }

  Window window_;  // of this lane alone
  int peer_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Win win_ = MPI_WIN_NULL;
  std::byte* base_ = nullptr;
  std::uint64_t one_ = 1, old_[Window::kWindow] = {};
  MPI_Request requests_[2 * Window::kWindow] = {};
  unsigned used_ = 0, issued_ = 0;
};

class MpiSystem {
 public:
  MpiSystem(unsigned rank, Control&, const Window& window) : rank_(rank) {
    for (unsigned t = 0; t < window.lanes(); ++t) lanes_.emplace_back(window, rank);
  }
  ~MpiSystem() {
    for (auto& lane : lanes_) lane.close();
  }
  MpiSystem(const MpiSystem&) = delete;
  MpiSystem& operator=(const MpiSystem&) = delete;
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    if (order.task != Task::operate) return "";
    const bool message = order.op == Op::request || order.op == Op::send;
    return message == p2p ? ""
           : message      ? "no messages in a window"
                          : "no one-sided operations by send and receive";
  }
  MpiLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {
    for (auto& lane : lanes_) lane.progress();
  }

 private:
  unsigned rank_;
  std::deque<MpiLane> lanes_;
};

}  // namespace
}  // namespace kasane::bench

int main(int argc, char** argv) {
  kasane::bench::p2p = argc > 1 && std::strcmp(argv[1], "--p2p") == 0;
  kasane::bench::own = argc > 1 && std::strcmp(argv[1], "--own") == 0;
  int given = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (given != MPI_THREAD_MULTIPLE || ranks != 2) {
    std::fprintf(stderr, "mpi player: wants MPI_THREAD_MULTIPLE and two ranks (has level %d and %d)\n", given,
                 ranks);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const int status = kasane::bench::player_main<kasane::bench::MpiSystem>("mpi", static_cast<unsigned>(rank));
  MPI_Finalize();
  return status;
}
