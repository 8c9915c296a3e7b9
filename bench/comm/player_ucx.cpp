// SPDX-License-Identifier: Apache-2.0
// Plays raw UCX as well as we know how: a ucp_worker and an endpoint for each thread, memory that UCX
// allocated (so that its shared memory maps it), memory handles with every operation, put + fence + put for
// data and flag. UCX_TLS says over what.
//   --multi     one worker in UCX's MULTI mode for all threads, instead
//   --pointer   loads and stores by ucp_rkey_ptr, instead of put and get
//   --own       memory that the program brought and UCX only registered, as a runtime with memory of its own
//               does: UCX's shared memory then sends messages
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

bool multi = false, pointer = false, own = false;

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

constexpr unsigned kRequest = 1, kSend = 2, kAnswer = 3;  // active messages; the header is the lane's number

ucp_context_h make_context() {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM;
  params.mt_workers_shared = 1;
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  check(status, "ucp_init");
  return context;
}

ucp_worker_h make_worker(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // SERIALIZED: one thread at a time, not always the same; costs no lock.
  params.thread_mode = multi ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
  return worker;
}

/// Memory that UCX registered (and allocated, unless it is our own), and the peer's key for it.
struct Memory {
  ucp_mem_h handle = nullptr;
  std::byte* base = nullptr;
  std::string key;

  Memory(ucp_context_h context, std::uint64_t bytes) {
    ucp_mem_map_params_t params{};
    params.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = bytes;
    params.flags = UCP_MEM_MAP_NONBLOCK;
    if (own) {
      params.address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (params.address == MAP_FAILED) throw std::runtime_error("memory for the UCX player");
    } else {
      params.flags |= UCP_MEM_MAP_ALLOCATE;
    }
    check(ucp_mem_map(context, &params, &handle), "ucp_mem_map");
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    check(ucp_mem_query(handle, &attributes), "ucp_mem_query");
    base = static_cast<std::byte*>(attributes.address);
    std::memset(base, 0, bytes);
    void* packed = nullptr;
    std::size_t size = 0;
    check(ucp_rkey_pack(context, handle, &packed, &size), "ucp_rkey_pack");
    key.assign(static_cast<char*>(packed), size);
    ucp_rkey_buffer_release(packed);
  }
};

class UcxLane {
 public:
  UcxLane(const Window& window, ucp_worker_h worker, const Memory& memory, unsigned lane)
      : window_(window), worker_(worker), memory_(memory), lane_(lane) {
    const auto handler = [this](unsigned id, ucp_am_recv_callback_t fn) {
      ucp_am_handler_param_t params{};
      params.field_mask =
          UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
      params.id = id + 4 * (multi ? lane_ : 0);  // one worker for all: ids tell the lanes apart
      params.cb = fn;
      params.arg = this;
      check(ucp_worker_set_am_recv_handler(worker_, &params), "ucp_worker_set_am_recv_handler");
    };
    handler(kRequest, &on_request);
    handler(kSend, &on_send);
    handler(kAnswer, &on_answer);
  }

  void connect(const std::string& address, const std::string& key, std::uint64_t peer_base) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    check(ucp_ep_create(worker_, &params, &endpoint_), "ucp_ep_create");
    check(ucp_ep_rkey_unpack(endpoint_, key.data(), &key_), "ucp_ep_rkey_unpack");
    peer_ = peer_base;
    if (!pointer) return;
    void* mapped = nullptr;
    check(ucp_rkey_ptr(key_, peer_base, &mapped), "ucp_rkey_ptr");
    mapped_ = static_cast<std::byte*>(mapped);
  }

  [[nodiscard]] std::byte* source() const { return memory_.base + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return memory_.base + window_.data(lane_, together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    const std::uint64_t data_at = window_.data(lane_, together), flag_at = window_.flag(lane_, together);
    if (pointer) {
      std::memcpy(mapped_ + data_at, source(), bytes);
      word(mapped_ + flag_at).store(flag, std::memory_order_release);  // the data before it
      return;
    }
    flag_ = flag;
    const ucs_status_ptr_t data = put(source(), bytes, data_at);
    check(ucp_worker_fence(worker_), "ucp_worker_fence");
    const ucs_status_ptr_t last = put(&flag_, sizeof flag_, flag_at, false);
    finish(data);
    finish(last);
  }

  void await(std::uint64_t, bool together, std::uint64_t flag, Patience patience) {
    const auto here = word(memory_.base + window_.flag(lane_, together));
    // Shared memory needs no progress once a put has returned; a network does, all the time.
    const unsigned looks_between = over_network() || own ? 1 : 4096;
    // acquire: the data after it
    for (unsigned looks = 1; here.load(std::memory_order_acquire) != flag; ++looks) {
      if (looks % looks_between == 0) ucp_worker_progress(worker_);
      patience.look();
    }
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes);
    std::byte* here = source() + at;
    const std::uint64_t there = window_.target(lane_) + at;
    if (pointer) return issue_by_pointer(op, bytes, here, mapped_ + there);
    ucs_status_ptr_t started = nullptr;
    switch (op) {
      case Op::read: {
        const ucp_request_param_t params = parameters(true);
        started = ucp_get_nbx(endpoint_, here, bytes, peer_ + there, key_, &params);
        break;
      }
      case Op::write:
        started = put(here, bytes, there);
        unflushed_ = true;
        break;
      case Op::atomic: {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        params.datatype = ucp_dt_make_contig(8);
        params.reply_buffer = &old_[i % Window::kWindow];
        started = ucp_atomic_op_nbx(endpoint_, UCP_ATOMIC_OP_ADD, &one_, 1, peer_ + window_.word(lane_), key_,
                                    &params);
        break;
      }
      case Op::request:
        ++unanswered_;
        started = message(kRequest, here, bytes);
        break;
      case Op::send: started = message(kSend, here, bytes); break;
    }
    if (started != nullptr) requests_.push_back(started);
    ++issued_;
  }

  [[nodiscard]] unsigned outstanding() const { return issued_; }

  /// Completed means remotely: a flush for writes, answers for requests. Of reads and atomics `most` stay
  /// under way.
  void drain(unsigned most, Patience patience) {
    for (; requests_.size() > most; requests_.pop_front()) finish(requests_.front(), patience);
    if (unflushed_) {
      const ucp_request_param_t params{};
      finish(ucp_ep_flush_nbx(endpoint_, &params), patience);
      unflushed_ = false;
    }
    // relaxed: in MULTI mode another thread may have counted; nothing else hangs on it
    while (answers_.load(std::memory_order_relaxed) != unanswered_) {
      ucp_worker_progress(worker_);
      patience.look();
    }
    issued_ = static_cast<unsigned>(requests_.size());
  }

  void progress() { ucp_worker_progress(worker_); }

  static bool over_network() {
    static const bool network = [] {
      const char* transports = std::getenv("UCX_TLS");
      return transports != nullptr && std::strstr(transports, "tcp") != nullptr;
    }();
    return network;
  }

 private:
  static std::atomic_ref<std::uint64_t> word(std::byte* at) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
  }

  [[nodiscard]] ucp_request_param_t parameters(bool registered) const {
    ucp_request_param_t params{};
    if (registered) {
      params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
      params.memh = memory_.handle;
    }
    return params;
  }

  ucs_status_ptr_t put(const void* from, std::uint64_t bytes, std::uint64_t at, bool registered = true) {
    const ucp_request_param_t params = parameters(registered);
    return ucp_put_nbx(endpoint_, from, bytes, peer_ + at, key_, &params);
  }

  ucs_status_ptr_t message(unsigned id, const void* from, std::uint64_t bytes) {
    const ucp_request_param_t params{};
    return ucp_am_send_nbx(endpoint_, id + 4 * (multi ? lane_ : 0), nullptr, 0, from, bytes, &params);
  }

  void finish(ucs_status_ptr_t request, Patience patience = Patience(false)) {
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "an operation");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucp_worker_progress(worker_);
      patience.look();
    }
    ucp_request_free(request);
  }

  void issue_by_pointer(Op op, std::uint64_t bytes, std::byte* here, std::byte* there) {
    if (op == Op::atomic)
      word(mapped_ + window_.word(lane_)).fetch_add(1, std::memory_order_seq_cst);
    else
      std::memcpy(op == Op::read ? here : there, op == Op::read ? there : here, bytes);
    asm volatile("" ::: "memory");  // each one happens
  }

  static ucs_status_t on_request(void* arg, const void*, std::size_t, void*, std::size_t,
                                 const ucp_am_recv_param_t*) {
    auto& lane = *static_cast<UcxLane*>(arg);
    const ucs_status_ptr_t sent = lane.message(kAnswer, &lane.one_, sizeof lane.one_);
    if (UCS_PTR_IS_PTR(sent)) ucp_request_free(sent);  // completes later without us
    return UCS_OK;
  }
  static ucs_status_t on_send(void*, const void*, std::size_t, void*, std::size_t,
                              const ucp_am_recv_param_t*) {
    return UCS_OK;
  }
  static ucs_status_t on_answer(void* arg, const void*, std::size_t, void*, std::size_t,
                                const ucp_am_recv_param_t*) {
    static_cast<UcxLane*>(arg)->answers_.fetch_add(1, std::memory_order_relaxed);  // see drain()
    return UCS_OK;
  }

  Window window_;
  ucp_worker_h worker_;
  const Memory& memory_;
  unsigned lane_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::uint64_t peer_ = 0;
  std::byte* mapped_ = nullptr;
  std::uint64_t flag_ = 0;
  std::uint64_t one_ = 1;
  std::uint64_t old_[Window::kWindow] = {};
  std::deque<ucs_status_ptr_t> requests_;
  unsigned issued_ = 0;
  bool unflushed_ = false;
  std::uint64_t unanswered_ = 0;           ///< requests so far
  std::atomic<std::uint64_t> answers_{0};  ///< and their answers
};

class UcxSystem {
 public:
  UcxSystem(unsigned rank, Control& control, const Window& window)
      : rank_(rank), context_(make_context()), memory_(context_, window.bytes()) {
    std::vector<std::string> theirs;
    for (unsigned t = 0; t < window.lanes(); ++t) {
      if (!multi || workers_.empty()) workers_.push_back(make_worker(context_));
      lanes_.emplace_back(window, workers_.back(), memory_, t);
      ucp_address_t* address = nullptr;
      std::size_t length = 0;
      check(ucp_worker_get_address(workers_.back(), &address, &length), "ucp_worker_get_address");
      theirs.push_back(control.exchange(std::string(reinterpret_cast<const char*>(address), length)));
      ucp_worker_release_address(workers_.back(), address);
    }
    const std::string key = control.exchange(memory_.key);
    const std::uint64_t peer_base =
        std::stoull(control.exchange(std::to_string(reinterpret_cast<std::uintptr_t>(memory_.base))));
    for (unsigned t = 0; t < window.lanes(); ++t) lanes_[t].connect(theirs[t], key, peer_base);
  }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    const bool messages = order.task == Task::operate && (order.op == Op::request || order.op == Op::send);
    return pointer && messages ? "no messages by pointer" : "";
  }
  UcxLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {
    for (const ucp_worker_h worker : workers_) ucp_worker_progress(worker);
  }

 private:
  unsigned rank_;
  ucp_context_h context_;
  Memory memory_;
  std::vector<ucp_worker_h> workers_;
  std::deque<UcxLane> lanes_;  // handlers hold their addresses
};

}  // namespace
}  // namespace kasane::bench

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--multi") == 0) kasane::bench::multi = true;
    if (std::strcmp(argv[i], "--pointer") == 0) kasane::bench::pointer = true;
    if (std::strcmp(argv[i], "--own") == 0) kasane::bench::own = true;
  }
  return kasane::bench::player_main<kasane::bench::UcxSystem>("ucx");
}
