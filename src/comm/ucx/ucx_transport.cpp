// SPDX-License-Identifier: Apache-2.0
// The ucx transport: what the lanes share. See ucx_transport.h, and docs/design/comm_ucx.md for the state
// tables.
//
// Thread safety: every call from any thread. Locks (a lane's, the gate) are tried, never waited for. A thread
// that finds all lanes taken returns Post::again. What must not fail (replies, credits, rings) is recorded
// when a lane refuses it, and the next thread that polls tries again.
//
// Invariants:
// - handlers run one at a time, through the gate; completions run outside every lock;
// - a peer has at most kCredits messages of this rank in flight or unhandled, so its inbox never overflows;
// - a thread that leaves the gate or a lane's lock rings if it leaves something that a sleeper could have
//   missed.
#if defined(KASANE_HAVE_UCX)
#include "comm/ucx/ucx_transport.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/mailbox.h"
#include "comm/mailbox_own.h"
#include "comm/mailbox_replies.h"
#include "comm/settings.h"
#include "comm/shm_files.h"
#include "comm/ucx/inbox.h"
#include "comm/ucx/lane.h"
#include "comm/ucx/paths.h"
#include "comm/ucx/watcher.h"
#include "topo/threads.h"

namespace kasane::comm::ucx {
namespace {

constexpr int kBatch = 64;  ///< the most messages that one progress() runs
constexpr std::uint32_t kFences = 64;
/// more polls of other threads during a nap: they poll all the time
constexpr std::int32_t kBusyPolls = 16;
/// a thread polls its lane so seldom while nothing is outstanding there
constexpr std::uint32_t kIdleLaneEvery = 64;
constexpr std::int64_t kNapNs = 100'000;
constexpr std::uint64_t kCloseNs = 1'000'000'000;  ///< how long each step of the end waits for peers
constexpr int kFewestLooks = 256;                  ///< … and how often it polls at least

std::string text(const Library& ucx, ucs_status_t status) { return ucx.ucs_status_string(status); }

/// Numbers the threads in the order of their first call.
[[gnu::noinline]] std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> next{0};
  // relaxed: any unique number will do
  thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

/// This thread's polls, and those of others when it last went to sleep.
struct Polls {
  std::uint32_t own = 0, others_seen = 0;
};
[[gnu::noinline]] Polls& polls_of_thread() noexcept {
  thread_local Polls polls;
  return polls;
}

/// A reply that no lane has accepted yet. There is one for every request that any peer can have outstanding.
struct UnsentReply {
  UnsentReply* next = nullptr;
  std::uint64_t stamp = 0, value = 0;
};

struct FenceSlot {
  Fence fence;
  std::array<Op, kMaxLanes> parts;
};

struct PeerState {
  std::atomic<std::uint32_t> credits{kCredits};  ///< messages that this rank may still send to the peer
  /// the peer's messages that were handled, credits not yet returned
  std::atomic<std::uint32_t> unreturned{0};
  /// doorbells (bits) of the peer that are still to be rung
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> leaving{0};  ///< the peer has sent bye
  std::atomic<std::uint32_t> suspect{0};  ///< lost, but not reported
  std::atomic<int> why{0};
  std::atomic<std::uint32_t> has_sent{0};  ///< at least one message of the peer has arrived
  bool sent_bye = false;                   ///< this rank has sent bye to the peer
};

class UcxTransport final : public MailboxTransport {
 public:
  UcxTransport(OutOfBand& exchange, Bells& bells)
      : MailboxTransport(exchange.rank(), exchange.ranks(), bells),
        exchange_(exchange),
        states_(exchange.ranks()) {}
  ~UcxTransport() override;

  Result<void> start(const Options&);

  Facts facts() const noexcept override {
    return {.name = "ucx",
            .target_cpu_needed = true,
            .puts_need_target = copies_only_,
            .atomics_coherent_with_cpu = true,
            .completes_inline = false,
            .ordered = false,
            .pins_memory = !copies_only_,
            .poll_every_ns = 0,
            .answers_bring = true,
            .detail = detail_};
  }

  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept override;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept override;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion*) noexcept override;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion*, Width) noexcept override;
  Post fence(Rank target, Completion*) noexcept override;

  Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept override;
  Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept override;
  void reply(ReplyToken token, std::uint64_t value) noexcept override { reply_with(token, value, {}); }
  void reply_with(ReplyToken, std::uint64_t value, std::span<const std::byte> bytes) noexcept override;
  bool test(PendingReply&, std::uint64_t* value) noexcept override;

  bool lost(Rank r) const noexcept override {
    KASANE_CHECK_OP(raw(r), <, ranks());
    return is_lost(raw(r));
  }

  bool arm() noexcept override;
  void sleep(Doorbell, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank, Doorbell) noexcept override;

 private:
  struct Announcement;

  bool poll() noexcept override;

  Result<void> settle_paths(const Options&);
  Result<void> open(const Options&);
  Result<void> open_context();
  Result<void> find_room_for_threads();
  Result<void> open_lanes(const Options&);
  Result<void> agree_on_errors();
  Result<void> reserve();
  void describe();
  Result<std::string> announce(RegionId id, std::byte* local, std::size_t bytes);

  /// The lane that this thread shares with few others or none. All threads share lane 0.
  [[nodiscard]] std::uint32_t own_lane(std::uint32_t number) const noexcept {
    const auto others = static_cast<std::uint32_t>(lanes_.size()) - 1;
    // Multiplying by the golden ratio gives neighbouring numbers different lanes mostly, and needs no
    // division.
    return others == 0 ? 0
                       : 1 + static_cast<std::uint32_t>(std::uint64_t{number * 0x9E3779B9u} * others >> 32);
  }
  [[nodiscard]] std::uint32_t lane_to_post_on() noexcept;
  void unlock(Lane& lane) noexcept {
    if (lane.lock.unlock()) ring_messages();
  }
  template <class F>
  Post post(const F& on_lane) noexcept;

  Post deliver(Rank to, Wire, HandlerId, std::span<const std::byte> payload, std::uint32_t slot,
               std::uint64_t stamp) noexcept;
  bool control(std::uint32_t to, const Head&, std::span<const std::byte> payload = {}) noexcept;
  bool answer(Rank requester, std::uint32_t slot, std::uint64_t stamp, std::uint64_t value,
              std::span<const std::byte> bytes = {}) noexcept;
  bool take_credit(std::uint32_t peer) noexcept;
  bool return_credits(std::uint32_t peer) noexcept;
  void note_due() noexcept;
  bool retry_due() noexcept;
  bool retry_replies() noexcept;
  [[nodiscard]] UnsentReply& unsent(std::uint32_t peer, std::uint32_t slot) const noexcept {
    return unsent_[std::size_t{peer} * kReplySlots + slot];
  }

  bool visit(std::uint32_t index) noexcept;
  void take_failures(Lane&) noexcept;
  void report_suspects() noexcept;
  bool run_messages() noexcept;
  bool run_batch() noexcept;
  [[nodiscard]] bool messages_wait() const noexcept { return !inbox_.empty() || !own_messages_.empty(); }
  static ucs_status_t on_message(void* self, const void*, std::size_t, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t*) noexcept;
  void arrived(const Head&, std::span<const std::byte> payload) noexcept;
  static void on_event(void* self, std::uint32_t lane) noexcept;
  bool serve(std::uint32_t lane) noexcept;

  [[nodiscard]] bool has_connection(std::uint32_t r) const noexcept;
  [[nodiscard]] bool is_lost(std::uint32_t r) const noexcept {
    return peers_.lost[r].load(std::memory_order_relaxed) != 0;  // relaxed: a later call sees it
  }
  void send_bye(std::uint32_t r) noexcept;
  bool all_ended() noexcept;
  template <class F>
  void progress_until(const F& ready) noexcept;
  void release() noexcept;

  OutOfBand& exchange_;
  Peers peers_{raw(rank()), ranks(), regions()};
  const Library* ucx_ = nullptr;
  Paths paths_;
  Queues queues_;
  std::optional<ShmFolder> folder_;  ///< where UCX makes its queues; outlives the context
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<PeerState> states_;
  Watcher watcher_;
  std::string detail_;
  /// UCX may use only transports that copy; others register memory and serve puts by themselves
  bool copies_only_ = true;

  Inbox inbox_;
  bool has_arrived_ = false;  ///< a message of a peer; under the lock of lane 0
  OwnMessages own_messages_;
  ReplySlots replies_{kReplySlots};
  std::unique_ptr<FenceSlot[]> fences_;
  UnsentReply* unsent_ = nullptr;
  std::size_t unsent_bytes_ = 0;

  alignas(64) std::atomic<std::uint32_t> gate_{0};  ///< number + 1 of the thread that runs handlers
  alignas(64) std::atomic<std::uint32_t> due_{0};   ///< 1: something that was refused waits to be sent
  TakeAllStack<UnsentReply> unsent_replies_;
  std::atomic<std::uint32_t> any_suspect_{0};   ///< 1: some peer is lost and not reported
  std::atomic<std::uint32_t> event_lanes_{0};   ///< lanes (bits) that had an event
  std::atomic<std::uint32_t> inbound_user_{0};  ///< number + 1 of the thread that posts on lane 0
};

// ---- start ------------------------------------------------------------------------------------------------

/// Blocks all signals: threads that UCX starts inherit that, so they do not take the program's signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

std::uint32_t default_lanes() noexcept {
  cpu_set_t set;
  const int cores = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::min<std::uint32_t>(static_cast<std::uint32_t>(cores) + 1, kMaxLanes);
}

/// UCX aborts if it cannot start a thread. So all ranks of a host first hold as many threads as they will
/// need, at once, before any of them opens UCX.
Result<void> UcxTransport::find_room_for_threads() {
  std::atomic<bool> end{false};
  std::vector<std::thread> held;
  Result<void> mine;
  for (int i = 0; mine && i < 2; ++i) {  // UCX's thread, and the watcher
    auto thread = topo::start_thread("the threads of UCX", [&end] { end.wait(false); });
    if (thread)
      held.push_back(std::move(*thread));
    else
      mine = tl::unexpected(std::move(thread.error()));
  }
  auto all = agree(exchange_, mine, "starting the threads of UCX");
  end.store(true);
  end.notify_all();
  for (std::thread& thread : held) thread.join();
  return all;
}

Result<void> UcxTransport::start(const Options& options) {
  KASANE_TRY(settle_paths(options));
  KASANE_TRY(find_room_for_threads());
  auto library = Library::load();
  Result<void> ready = library ? Result<void>{} : Result<void>(tl::unexpected<Error>(library.error()));
  if (ready) {
    ucx_ = *library;
    ready = open(options);
  }
  if (ready) ready = reserve();
  // If one rank fails, all must: so all exchange, then all look.
  std::string mine(1, ready ? '+' : '-');
  if (ready) {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    const ucs_status_t status = ucx_->ucp_worker_get_address(lanes_[0]->worker(), &address, &bytes);
    if (status != UCS_OK) {
      ready = fail(Errc::internal, "UCX does not tell its address: " + text(*ucx_, status));
      mine = "-";
    } else {
      mine.append(reinterpret_cast<const char*>(address), bytes);
      ucx_->ucp_worker_release_address(lanes_[0]->worker(), address);
    }
  }
  auto all = exchange_.allgather(mine);
  KASANE_TRY(all);
  if (!ready) return ready;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if ((*all)[r].empty() || (*all)[r][0] != '+') {
      return fail(Errc::peer_lost, "rank " + std::to_string(r) + " cannot use UCX, see its message");
    }
    peers_.address.push_back((*all)[r].substr(1));
  }
  KASANE_TRY(agree_on_errors());
  describe();
  return {};
}

/// UCX takes from there which processes can share memory, and finds no way to any rank without it.
Result<void> check_proc() {
  if (::access("/proc/self/ns", F_OK) == 0) return {};
  return fail(Errc::unsupported,
              "UCX needs /proc, which is not mounted here: mount it (mount -t proc proc /proc), or use "
              "--transport shm within a host");
}

/// Collective; it succeeds or fails on all ranks.
Result<void> UcxTransport::settle_paths(const Options& options) {
  KASANE_TRY(agree(exchange_, check_proc(), "UCX"));
  RankLocation here = location_here();
  here.user_names_transports = here.user_names_transports || !options.tls.empty();
  auto all = exchange_.allgather(packed(here));
  KASANE_TRY(all);
  std::vector<RankLocation> locations;
  for (const std::string& one : *all) {
    auto place = unpacked(one);
    KASANE_TRY(place);
    locations.push_back(std::move(*place));
  }
  auto paths = choose_paths(exchange_, locations, options.within_hosts, options.tls);
  KASANE_TRY(paths);
  paths_ = std::move(*paths);
  if (raw(rank()) == 0 && !paths_.peers.empty())
    log(LogLevel::warning,
        "UCX neither authenticates nor encrypts between hosts: who reaches its ports from the job's hosts "
        "can read and write global memory (SECURITY.md; --log error leaves this out)");
  queues_ = {.lanes = options.lanes == 0 ? default_lanes() : std::min(options.lanes, kMaxLanes)};
  if (!paths_.through_memory) return {};
  auto queues = fit_queues(locations, raw(rank()), queues_.lanes);
  KASANE_TRY(
      agree(exchange_, queues ? Result<void>{} : Result<void>(tl::unexpected<Error>(queues.error())), "UCX"));
  queues_ = *queues;
  return {};
}

Result<void> UcxTransport::open(const Options& options) {
  const SignalsBlocked blocked;
  Settings settings;
  if (paths_.through_memory) {
    if (std::getenv("UCX_POSIX_DIR") == nullptr && std::getenv("UCX_POSIX_USE_PROC_LINK") == nullptr) {
      auto folder = ShmFolder::create();
      KASANE_TRY(folder);
      folder_.emplace(std::move(*folder));
      settings.set("UCX_POSIX_DIR", folder_->path());
    }
    settings.set("UCX_POSIX_FIFO_SIZE", std::to_string(queues_.entries));
    settings.set("UCX_POSIX_RX_BUFS_GROW", std::to_string(queues_.buffers));
    settings.set("UCX_ALLOC_PRIO", "thp,mmap,heap");  // all other memory of UCX is for this process alone
  }
  const std::vector<int> listening_before = paths_.peers.empty() ? std::vector<int>{} : listening_sockets();
  KASANE_TRY(open_context());
  KASANE_TRY(open_lanes(options));
  if (folder_) folder_->remove_name();  // UCX has made the queues and removed their names
  if (paths_.peers.empty()) return {};
  std::vector<int> listening = listening_sockets(), ours;
  std::set_difference(listening.begin(), listening.end(), listening_before.begin(), listening_before.end(),
                      std::back_inserter(ours));
  return listen_to_only(ours, paths_.peers);
}

Result<void> UcxTransport::open_context() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK)
    return fail(Errc::invalid_argument,
                "UCX cannot read its configuration (UCX_… in the environment): " + text(*ucx_, status));
  // The owner's CPU changes directory words and the like too, so atomics must be the CPU's at the target
  // (rule 15).
  status = ucx_->ucp_config_modify(config, "ATOMIC_MODE", "cpu");
  // UCX's newer selection of protocols (default since 1.16) finds none for atomics within a host where peers
  // are only mapped. Older versions do not know the option. A user's own setting is kept.
  if (std::getenv("UCX_PROTO_ENABLE") == nullptr) (void)ucx_->ucp_config_modify(config, "PROTO_ENABLE", "n");
  if (status == UCS_OK && !paths_.transports.empty())
    status = ucx_->ucp_config_modify(config, "TLS", paths_.transports.c_str());
  if (status == UCS_OK && !paths_.devices.empty())
    status = ucx_->ucp_config_modify(config, "NET_DEVICES", paths_.devices.c_str());
  if (status != UCS_OK) {
    ucx_->ucp_config_release(config);
    return fail(Errc::invalid_argument,
                "UCX refuses its transports \"" + paths_.transports + "\": " + text(*ucx_, status));
  }
  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features =
      UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.estimated_num_eps = ranks();
  status = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &peers_.context);
  ucx_->ucp_config_release(config);
  if (status != UCS_OK) {
    return fail(Errc::unsupported, "UCX finds no transport (" + paths_.text + "): " + text(*ucx_, status));
  }
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  status = ucx_->ucp_context_query(peers_.context, &attributes);
  if (status != UCS_OK)
    return fail(Errc::internal, "UCX does not say how large its requests are: " + text(*ucx_, status));
  peers_.request_bytes = attributes.request_size;
  return {};
}

Result<void> UcxTransport::open_lanes(const Options& options) {
  peers_.ucx = ucx_;
  const std::uint32_t count = queues_.lanes;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto lane = Lane::create(peers_, std::max<std::uint32_t>(options.outstanding, 4));
    if (!lane) return tl::unexpected<Error>(std::move(lane).error());
    lanes_.push_back(std::move(*lane));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessage;
  handler.cb = [](void* self, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                  const ucp_am_recv_param_t* p) {
    return on_message(self, head, head_bytes, data, bytes, p);
  };
  handler.arg = this;
  const ucs_status_t status = ucx_->ucp_worker_set_am_recv_handler(lanes_[0]->worker(), &handler);
  if (status != UCS_OK)
    return fail(Errc::unsupported, "UCX takes no active message handler: " + text(*ucx_, status));
  KASANE_TRY(watcher_.start(&on_event, this));
  for (std::uint32_t i = 0; i < count; ++i) KASANE_TRY(watcher_.add(lanes_[i]->event_fd(), i));
  return {};
}

/// Allocates everything that operations need, so that no operation allocates.
Result<void> UcxTransport::reserve() {
  if (ranks() > 1 && !inbox_.create(std::size_t{ranks() - 1} * kCredits))
    return fail_errno(Errc::out_of_memory, "no memory for messages of UCX");
  if (!replies_.reserve_bytes()) return fail_errno(Errc::out_of_memory, "no memory for answers of UCX");
  fences_ = std::make_unique<FenceSlot[]>(kFences);
  unsent_bytes_ = std::size_t{ranks()} * kReplySlots * sizeof(UnsentReply);
  void* p = ::mmap(nullptr, unsent_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return fail_errno(Errc::out_of_memory, "no memory for replies of UCX");
  unsent_ = static_cast<UnsentReply*>(p);  // zeroed memory is a valid UnsentReply
  return {};
}

/// UCX notices lost peers only if all transports that it may choose can. Both ends of an endpoint must use
/// the same error mode, so the ranks agree on it. The peer answers what is tried here, long after: arm() has
/// that read. Else, over TCP, the peer's UCX waits for an acknowledgement with an event that is always ready,
/// and each of its sleepers wakes at once.
Result<void> UcxTransport::agree_on_errors() {
  if (ranks() == 1) return {};
  const SignalsBlocked blocked;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(peers_.address[paths_.other].data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h probe = nullptr;
  bool notices = ucx_->ucp_ep_create(lanes_.back()->worker(), &params, &probe) == UCS_OK;
  if (notices) {
    ucp_request_param_t close{};
    close.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    close.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t request = ucx_->ucp_ep_close_nbx(probe, &close);
    while (UCS_PTR_IS_PTR(request) && ucx_->ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucx_->ucp_worker_progress(lanes_.back()->worker());
    }
    if (UCS_PTR_IS_PTR(request)) ucx_->ucp_request_free(request);
  }
  auto all = exchange_.allgather(notices ? "+" : "-");
  KASANE_TRY(all);
  for (const std::string& answer : *all) notices = notices && answer == "+";
  peers_.error_mode = notices ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  return {};
}

/// Facts::detail: which of UCX's transports may be used, from what UCX prints about its context.
void UcxTransport::describe() {
  char* printed = nullptr;
  std::size_t bytes = 0;
  std::FILE* file = ::open_memstream(&printed, &bytes);
  if (file == nullptr) return;
  ucx_->ucp_context_print_info(peers_.context, file);
  std::fclose(file);
  detail_ = std::string("UCX ") + ucx_->ucp_get_version_string() + ":";
  std::istringstream lines(std::string(printed, bytes));
  std::free(printed);
  for (std::string line; std::getline(lines, line);) {
    const auto slash = line.rfind('/');
    if (line.find("resource") == std::string::npos || slash == std::string::npos) continue;
    const auto begin = line.rfind(' ', slash) + 1;
    const std::string transport = line.substr(begin, slash - begin);
    detail_ += " " + line.substr(begin);
    // The transports of this list only copy; every other one registers memory with its device.
    const std::string_view copying[] = {"self", "tcp", "sysv", "posix", "cma"};
    if (std::find(std::begin(copying), std::end(copying), transport) == std::end(copying))
      copies_only_ = false;
  }
  if (!paths_.text.empty()) detail_ += "; " + paths_.text;
  if (peers_.error_mode != UCP_ERR_HANDLING_MODE_PEER && ranks() > 1)
    detail_ += " (does not notice lost peers)";
}

// ---- the end ----------------------------------------------------------------------------------------------

// Ranks leave at different times, and UCX may abort if a worker goes while a peer still connects to it. So
// connected ranks flush everything (then all connections are established), send bye, await the peers' bye,
// and close. A peer that has gone does not answer, so each step has a time limit.
UcxTransport::~UcxTransport() {
  watcher_.stop();
  if (lanes_.empty()) {
    release();
    return;
  }
  for (auto& lane : lanes_) lane->flush_all();
  progress_until([&] { return all_ended(); });
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (has_connection(r)) send_bye(r);
  }
  progress_until([&] {
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      if (!has_connection(r) || is_lost(r)) continue;
      send_bye(r);  // to peers that connected to this rank only to say bye
      // relaxed: this thread polls lane 0
      if (states_[r].leaving.load(std::memory_order_relaxed) == 0) return false;
    }
    return true;
  });
  for (auto& lane : lanes_) lane->flush_all();
  progress_until([&] { return all_ended(); });
  for (auto& lane : lanes_) lane->close_all();
  progress_until([&] { return all_ended(); });
  lanes_.clear();
  release();
}

bool UcxTransport::has_connection(std::uint32_t r) const noexcept {
  if (r == raw(rank())) return false;
  return states_[r].has_sent.load(std::memory_order_relaxed) != 0 ||  // relaxed: a flag, it orders nothing
         std::any_of(lanes_.begin(), lanes_.end(), [r](const auto& lane) { return lane->connected(r); });
}

void UcxTransport::send_bye(std::uint32_t r) noexcept {
  if (states_[r].sent_bye || is_lost(r)) return;
  const Head bye{.from = raw(rank()), .kind = Wire::bye};
  // Over an established connection, if there is one.
  const auto known =
      std::find_if(lanes_.begin(), lanes_.end(), [r](const auto& lane) { return lane->connected(r); });
  Lane& lane = known != lanes_.end() ? **known : *lanes_[0];
  states_[r].sent_bye = lane.send(r, bye, {}) == Post::done;
}

bool UcxTransport::all_ended() noexcept {
  bool all = true;
  for (auto& lane : lanes_) all = lane->ended() && all;
  return all;
}

/// At the end, when there are no other threads: polls all lanes until ready(), or until the time limit.
template <class F>
void UcxTransport::progress_until(const F& ready) noexcept {
  const std::uint64_t deadline = now_ns() + kCloseNs;
  // The number of polls counts too: it may be this rank that did not run for the whole time.
  for (int looks = 0; !ready() && (looks < kFewestLooks || now_ns() < deadline); ++looks) {
    bool moved = false;
    for (auto& lane : lanes_) {
      CompletionBatch batch;
      lane->progress(batch);
      take_failures(*lane);
      moved = moved || batch.moved;
    }
    if (!moved) ::sched_yield();  // the peers must reach this point too
  }
}

void UcxTransport::release() noexcept {
  for (auto& region : peers_.regions) {
    if (region.handle != nullptr) ucx_->ucp_mem_unmap(peers_.context, region.handle);
  }
  if (peers_.context != nullptr) ucx_->ucp_cleanup(peers_.context);
  if (unsent_ != nullptr) ::munmap(unsent_, unsent_bytes_);
}

// ---- regions ----------------------------------------------------------------------------------------------

/// What a rank tells the others about its region, before its packed key.
struct UcxTransport::Announcement {
  std::uint64_t good;
  std::uint64_t base, bytes;
};

Result<std::string> UcxTransport::announce(RegionId id, std::byte* local, std::size_t bytes) {
  auto& region = peers_.regions[raw(id)];
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = local;
  params.length = bytes;
  // pages are populated when they are used, where the device supports that
  params.flags = UCP_MEM_MAP_NONBLOCK;
  ucs_status_t status = ucx_->ucp_mem_map(peers_.context, &params, &region.handle);
  if (status != UCS_OK) {
    region.handle = nullptr;
    return fail(Errc::limit,
                "UCX cannot register " + std::to_string(bytes) + " bytes: " + text(*ucx_, status));
  }
  void* key = nullptr;
  std::size_t key_bytes = 0;
  status = ucx_->ucp_rkey_pack(peers_.context, region.handle, &key, &key_bytes);
  if (status != UCS_OK)
    return fail(Errc::limit,
                "UCX makes no key for " + std::to_string(bytes) + " bytes: " + text(*ucx_, status));
  const Announcement head{.good = 1, .base = reinterpret_cast<std::uintptr_t>(local), .bytes = bytes};
  std::string out(reinterpret_cast<const char*>(&head), sizeof(head));
  out.append(static_cast<const char*>(key), key_bytes);
  ucx_->ucp_rkey_buffer_release(key);
  return out;
}

Result<void> UcxTransport::attach(RegionId id, int, std::byte* local, std::size_t bytes) {
  KASANE_TRY(may_attach(id, local, bytes));
  auto& region = peers_.regions[raw(id)];
  auto mine = announce(id, local, bytes);
  const Announcement bad{.good = 0, .base = 0, .bytes = bytes};
  auto all = exchange_.allgather(mine ? std::string_view(*mine)
                                      : std::string_view(reinterpret_cast<const char*>(&bad), sizeof(bad)));
  KASANE_TRY(all);
  if (!mine) return tl::unexpected<Error>(std::move(mine).error());
  region.base.resize(ranks());
  region.key.resize(ranks());
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    Announcement head{};
    if ((*all)[r].size() >= sizeof(head)) std::memcpy(&head, (*all)[r].data(), sizeof(head));
    if (head.good == 0)
      return fail(Errc::peer_lost, "region " + std::to_string(raw(id)) + ": rank " + std::to_string(r) +
                                       " failed in it, see its message");
    if (head.bytes != bytes) {
      return fail(Errc::invalid_argument, "region " + std::to_string(raw(id)) + " of rank " +
                                              std::to_string(r) + " has " + std::to_string(head.bytes) +
                                              " bytes, rank " + std::to_string(raw(rank())) + "'s has " +
                                              std::to_string(bytes) + ": sizes must be equal");
    }
    region.base[r] = head.base;
    region.key[r] = (*all)[r].substr(sizeof(head));
  }
  (void)new_region(id, local);
  publish(id, bytes);
  // No rank returns before all ranks can reach every region: a handler on any rank may use it at once.
  auto met = exchange_.allgather({});
  KASANE_TRY(met);
  return {};
}

// ---- one-sided operations ---------------------------------------------------------------------------------

/// Lane 0, unless another thread has operations outstanding there; then this thread's own lane. All messages
/// arrive on lane 0, so a thread that posts there polls one worker while it waits. If the peer does the same,
/// it answers on the connection on which it was asked. Over TCP that matters: on a one-way connection each
/// segment costs a separate acknowledgement, which the reader sends before it gets the data.
std::uint32_t UcxTransport::lane_to_post_on() noexcept {
  const std::uint32_t me = thread_number();
  // relaxed, all: hints; every lane is correct.
  if (inbound_user_.load(std::memory_order_relaxed) == me + 1) return 0;
  if (lanes_[0]->busy()) return own_lane(me);
  inbound_user_.store(me + 1, std::memory_order_relaxed);
  return 0;
}

/// Posts on the lane that suits this thread best, or on the next one whose lock is free.
template <class F>
Post UcxTransport::post(const F& on_lane) noexcept {
  const auto count = static_cast<std::uint32_t>(lanes_.size());
  std::uint32_t index = lane_to_post_on();
  for (std::uint32_t i = 0; i < count; ++i) {
    Lane& lane = *lanes_[index];
    if (lane.lock.try_lock()) {
      lane.set_poster(thread_number());
      const Post result = on_lane(lane);
      const bool ring = lane.take_ring_needed();
      unlock(lane);
      // a sleeping thread has not armed this lane, or must fetch what has finished
      if (ring) ring_messages();
      return result;
    }
    if (++index == count) index = 0;
  }
  return Post::again;
}

Post UcxTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion* done) noexcept {
  const std::byte* source = here(from, bytes);
  if (bytes == 0) return Post::done;
  if (own(from.rank)) return read_here(to, source, bytes);
  return post([&](Lane& lane) { return lane.read(from, to, bytes, done); });
}

Post UcxTransport::write(RemoteAddr to, const void* from, std::size_t bytes, Completion* done) noexcept {
  std::byte* target = here(to, bytes);
  if (bytes == 0) return Post::done;
  if (own(to.rank)) return write_here(target, from, bytes);
  return post([&](Lane& lane) { return lane.write(to, from, bytes, done); });
}

Post UcxTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                                std::uint64_t value, Completion* done) noexcept {
  check_aligned(flag_offset, 8);
  std::byte* target = here(to, bytes);
  std::byte* flag = here({to.rank, to.region, flag_offset}, 8);
  if (own(to.rank)) return write_notify_here(target, from, bytes, flag, value);
  return post([&](Lane& lane) { return lane.write_notify(to, from, bytes, flag_offset, value, done); });
}

Post UcxTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                          std::uint64_t* result, Completion* done, Width width) noexcept {
  const auto bytes = static_cast<std::size_t>(width);
  check_aligned(at.offset, bytes);
  std::byte* word = here(at, bytes);
  if (own(at.rank)) return atomic_here(op, word, operand, compare, result, width);
  return post([&](Lane& lane) { return lane.atomic(op, at, operand, compare, result, done, width); });
}

Post UcxTransport::fence(Rank target, Completion* done) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  if (own(target)) return Post::done;
  std::uint32_t open = 0;  // lanes (bits) with operations to target outstanding
  for (std::uint32_t i = 0; i < lanes_.size(); ++i)
    open |= static_cast<std::uint32_t>(lanes_[i]->open_to(raw(target)) != 0) << i;
  if (open == 0) return Post::done;
  FenceSlot* slot = nullptr;
  for (std::uint32_t i = 0; i < kFences && slot == nullptr; ++i) {
    // acquire: pairs with the release when the fence's last part was done.
    if (fences_[i].fence.claimed.exchange(1, std::memory_order_acquire) == 0) slot = &fences_[i];
  }
  if (slot == nullptr) return Post::again;
  slot->fence.done = done;
  slot->fence.lost.store(0, std::memory_order_relaxed);  // relaxed, both: published with the parts
  slot->fence.left.store(static_cast<std::uint32_t>(std::popcount(open)) + 1, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if ((open >> i & 1) == 0) continue;
    Op& part = slot->parts[i];
    part.kind = Op::Kind::fence;
    part.peer = raw(target);
    part.poster = thread_number();
    part.fence = &slot->fence;
    part.status = Status::ok;
    lanes_[i]->push_fence(part);
  }
  ring_messages();  // some thread must take the parts out
  if (!slot->fence.part_ended()) return Post::pending;
  // All parts were done meanwhile by other threads, which have left the completion to this one.
  // relaxed: ordered by part_ended()
  const bool lost = slot->fence.lost.load(std::memory_order_relaxed) != 0;
  slot->fence.claimed.store(0, std::memory_order_release);  // release: our reads are over
  if (!lost) return Post::done;
  return post([&](Lane& lane) { return lane.lost(done); });
}

// ---- messages ---------------------------------------------------------------------------------------------

bool UcxTransport::take_credit(std::uint32_t peer) noexcept {
  auto& credits = states_[peer].credits;
  std::uint32_t have = credits.load(std::memory_order_relaxed);  // relaxed: a count; it orders no messages
  while (have != 0) {
    if (credits.compare_exchange_weak(have, have - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

Post UcxTransport::deliver(Rank to, Wire kind, HandlerId id, std::span<const std::byte> payload,
                           std::uint32_t slot, std::uint64_t stamp) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  check_message(id, payload);
  if (own(to)) {
    if (!own_messages_.put(id, payload, slot, stamp)) return Post::again;
    ring_messages();
    return Post::done;
  }
  // Before the credits, which a lost peer does not return: the message is dropped, and test() ends a request
  // with peer_lost.
  if (is_lost(raw(to))) return Post::done;
  if (!take_credit(raw(to))) return Post::again;
  const Head head{.from = raw(rank()),
                  .kind = kind,
                  .name = static_cast<std::uint16_t>(raw(id)),
                  .slot = slot,
                  .stamp = stamp};
  const Post result = post([&](Lane& lane) { return lane.send(raw(to), head, payload); });
  // relaxed: as take_credit()
  if (result == Post::again) states_[raw(to)].credits.fetch_add(1, std::memory_order_relaxed);
  return result;
}

Post UcxTransport::send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept {
  return deliver(to, Wire::message, id, payload, 0, 0);
}

Post UcxTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload,
                           PendingReply& pending) noexcept {
  return replies_.request(to, pending, [&](std::uint32_t slot, std::uint64_t stamp) {
    return deliver(to, Wire::request, id, payload, slot, stamp);
  });
}

bool UcxTransport::control(std::uint32_t to, const Head& head, std::span<const std::byte> payload) noexcept {
  return post([&](Lane& lane) { return lane.send(to, head, payload); }) == Post::done;
}

bool UcxTransport::answer(Rank requester, std::uint32_t slot, std::uint64_t stamp, std::uint64_t value,
                          std::span<const std::byte> bytes) noexcept {
  return control(raw(requester),
                 {.from = raw(rank()), .kind = Wire::reply, .slot = slot, .stamp = stamp, .value = value},
                 bytes);
}

void UcxTransport::reply_with(ReplyToken token, std::uint64_t value,
                              std::span<const std::byte> bytes) noexcept {
  KASANE_CHECK_OP(bytes.size(), <=, kMaxAnswer);
  KASANE_CHECK_OP(token.slot, <, kReplySlots);
  KASANE_CHECK_OP(raw(token.requester), <, ranks());
  if (own(token.requester)) {
    KASANE_CHECK(replies_.answer(token.slot, token.stamp, value, bytes), "a request was answered twice");
    return ring_messages();
  }
  if (answer(token.requester, token.slot, token.stamp, value, bytes)) return;
  // This entry belongs to the request, so no other reply uses it before this one has arrived. It is sent
  // without its bytes.
  UnsentReply& entry = unsent(raw(token.requester), token.slot);
  entry.stamp = token.stamp;
  entry.value = value;
  unsent_replies_.push(&entry);
  note_due();
}

bool UcxTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  // acquire: if an answer arrived before the peer was marked lost, the next test() sees it; this one returns
  // false.
  return replies_.test(pending, value, [&](Rank r) {
    return !own(r) && peers_.lost[raw(r)].load(std::memory_order_acquire) != 0;
  });
}

/// Under lane 0's lock. Queues the message, or acts at once; see wire.h.
ucs_status_t UcxTransport::on_message(void* self, const void*, std::size_t, void* data, std::size_t bytes,
                                      const ucp_am_recv_param_t*) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  KASANE_CHECK_OP(bytes, >=, sizeof(Head));
  Head head;
  std::memcpy(&head, data, sizeof(head));
  KASANE_CHECK(well_formed(head, bytes - sizeof(head), transport.ranks()), "a message of no rank");
  transport.arrived(head, {static_cast<const std::byte*>(data) + sizeof(head), bytes - sizeof(head)});
  return UCS_OK;
}

void UcxTransport::arrived(const Head& head, std::span<const std::byte> payload) noexcept {
  has_arrived_ = true;
  // relaxed: read at the end only, when this thread is the only one.
  if (states_[head.from].has_sent.load(std::memory_order_relaxed) == 0)
    states_[head.from].has_sent.store(1, std::memory_order_relaxed);
  switch (head.kind) {
    case Wire::message:
    case Wire::request: return inbox_.put(head, payload);
    case Wire::reply:
      // false: the peer was marked lost too early, and the request was given up.
      (void)replies_.answer(head.slot, head.stamp, head.value, payload);
      return ring_messages();  // the requester may sleep while another thread runs this
    case Wire::credit:
      // relaxed: as take_credit()
      states_[head.from].credits.fetch_add(static_cast<std::uint32_t>(head.value), std::memory_order_relaxed);
      return;
    case Wire::ring: return bells()[head.name].ring();
    case Wire::bye:
      // relaxed: readers hold this lane's lock after us
      states_[head.from].leaving.store(1, std::memory_order_relaxed);
      return;
  }
}

// ---- sends that were refused and are tried again ----------------------------------------------------------

void UcxTransport::note_due() noexcept {
  due_.store(1, std::memory_order_release);  // release: what is due comes before the flag
  ring_messages();
}

bool UcxTransport::return_credits(std::uint32_t peer) noexcept {
  auto& unreturned = states_[peer].unreturned;
  // relaxed, here and below: a count; it orders nothing.
  const std::uint32_t count = unreturned.exchange(0, std::memory_order_relaxed);
  if (count == 0) return true;
  if (control(peer, {.from = raw(rank()), .kind = Wire::credit, .value = count})) return true;
  unreturned.fetch_add(count, std::memory_order_relaxed);
  return false;
}

bool UcxTransport::retry_replies() noexcept {
  bool all = true;
  for (UnsentReply* entry = unsent_replies_.take_all(); entry != nullptr;) {
    UnsentReply* next = entry->next;
    const auto index = static_cast<std::size_t>(entry - unsent_);
    const ReplyToken token{Rank{static_cast<std::uint32_t>(index / kReplySlots)},
                           static_cast<std::uint32_t>(index % kReplySlots), entry->stamp};
    if (!answer(token.requester, token.slot, token.stamp, entry->value)) {
      all = false;
      unsent_replies_.push(entry);
    }
    entry = next;
  }
  return all;
}

/// True if something was sent.
bool UcxTransport::retry_due() noexcept {
  if (due_.exchange(0, std::memory_order_acquire) == 0) return false;  // acquire: pairs with note_due()
  bool all = retry_replies();
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r == raw(rank())) continue;
    // relaxed: as return_credits()
    if (states_[r].unreturned.load(std::memory_order_relaxed) >= kCreditBatch) all = return_credits(r) && all;
    // acquire: pairs with wake()
    const std::uint32_t rings = states_[r].rings.exchange(0, std::memory_order_acquire);
    for (std::uint32_t d = 0; d < 2; ++d) {
      if ((rings >> d & 1) != 0) wake(Rank{r}, Doorbell{d});  // records the ring again if it is refused
    }
  }
  if (!all) due_.store(1, std::memory_order_release);  // release: as note_due(); the polling thread is awake
  return all;
}

// ---- progress ---------------------------------------------------------------------------------------------

bool UcxTransport::poll() noexcept {
  const std::uint32_t me = thread_number(), mine = own_lane(me);
  auto& polls = lanes_[mine]->polls;
  const std::uint32_t number = polls.load(std::memory_order_relaxed) + 1;
  // relaxed: a hint, may miss some
  polls.store(number, std::memory_order_relaxed);
  ++polls_of_thread().own;
  // relaxed: a hint; retry_due() checks
  bool any = due_.load(std::memory_order_relaxed) != 0 && retry_due();
  // All messages arrive on lane 0. Another lane has events only while operations are outstanding there, or
  // when a peer goes. Over TCP a poll is a system call.
  if (mine != 0 && (lanes_[mine]->busy() || (number % kIdleLaneEvery == 0 && lanes_[mine]->used())))
    any = visit(mine) || any;
  any = visit(0) || any;
  // relaxed: a hint; arm() finds the rest
  const std::uint32_t event_lanes = event_lanes_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 1; i < lanes_.size(); ++i) {
    if (i != mine && (lanes_[i]->busy() || (event_lanes >> i & 1) != 0)) any = visit(i) || any;
  }
  // relaxed: a later poll sees it
  if (any_suspect_.load(std::memory_order_relaxed) != 0) report_suspects();
  const bool ran = run_messages();
  // Inside a handler progress() returns false, as over shared memory. Its lanes were polled all the same.
  // relaxed: only this thread's number matters
  if (gate_.load(std::memory_order_relaxed) == me + 1) return false;
  return ran || any;
}

bool UcxTransport::visit(std::uint32_t index) noexcept {
  Lane& lane = *lanes_[index];
  if (!lane.lock.try_lock()) return false;
  const std::uint32_t bit = std::uint32_t{1} << index;
  // relaxed, both: a hint
  if ((event_lanes_.load(std::memory_order_relaxed) & bit) != 0)
    event_lanes_.fetch_and(~bit, std::memory_order_relaxed);
  CompletionBatch batch;
  batch.runner = thread_number();
  lane.progress(batch);
  if (lane.any_failed()) [[unlikely]]
    take_failures(lane);
  unlock(lane);
  batch.run();
  if (batch.for_others) ring_messages();  // the thread that posted it may sleep
  return batch.moved;
}

/// Under the lane's lock.
void UcxTransport::take_failures(Lane& lane) noexcept {
  ucs_status_t why = UCS_OK;
  for (Rank peer = lane.take_failed(why); peer != kNoRank; peer = lane.take_failed(why)) {
    lane.abandon(raw(peer));
    // acq_rel: what arrived from the peer comes before; and only the first thread reports it.
    if (peers_.lost[raw(peer)].exchange(1, std::memory_order_acq_rel) != 0) continue;
    // relaxed, both: published by any_suspect_
    states_[raw(peer)].why.store(why, std::memory_order_relaxed);
    states_[raw(peer)].suspect.store(1, std::memory_order_relaxed);
    peers_.lost_count.fetch_add(1, std::memory_order_release);  // release: the flag before its count
    any_suspect_.store(1, std::memory_order_release);           // release: why and suspect
    // relaxed: a hint; every lane closes its endpoint
    event_lanes_.store(~std::uint32_t{0}, std::memory_order_relaxed);
    // threads that wait for an answer of it must wake
    ring_messages();
  }
}

/// Reports peers that are lost, unless they have sent bye. A bye may still be unread in lane 0.
void UcxTransport::report_suspects() noexcept {
  Lane& inbound = *lanes_[0];
  if (!inbound.lock.try_lock()) return;
  for (int i = 0; i < kBatch && ucx_->ucp_worker_progress(inbound.worker()) != 0; ++i) {
  }
  // acquire: pairs with take_failures()
  const bool some = any_suspect_.exchange(0, std::memory_order_acquire) != 0;
  unlock(inbound);
  if (!some) return;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    // relaxed: ordered by any_suspect_
    if (states_[r].suspect.exchange(0, std::memory_order_relaxed) == 0) continue;
    // relaxed: written under the lock held above
    if (states_[r].leaving.load(std::memory_order_relaxed) != 0) continue;
    report_lost(Rank{r}, ucx_->ucs_status_string(
                             static_cast<ucs_status_t>(states_[r].why.load(std::memory_order_relaxed))));
  }
}

// No message is left unprocessed, as in the shared-memory transport. A thread that finds the gate taken, and
// sleeps, has read the activity before. A thread that leaves the gate then looks at both queues, and rings if
// one is not empty. Gate and queues are sequentially consistent.
bool UcxTransport::run_messages() noexcept {
  if (!messages_wait()) return false;
  std::uint32_t nobody = 0;
  // seq_cst: as this function's comment says; on failure nothing follows.
  if (!gate_.compare_exchange_strong(nobody, thread_number() + 1, std::memory_order_seq_cst,
                                     std::memory_order_relaxed))
    return false;
  const bool any = run_batch();
  gate_.store(0, std::memory_order_seq_cst);
  if (messages_wait()) ring_messages();
  return any;
}

bool UcxTransport::run_batch() noexcept {
  bool any = false;
  for (int n = 0; n < kBatch; ++n) {
    const Arrived* message = inbox_.front();
    const OwnMessage* own_message = own_messages_.front();
    if (message == nullptr && own_message == nullptr) return any;
    any = true;
    if (message != nullptr) {
      const std::uint32_t from = message->head.from;
      run_handler(message->head.name, from, {message->payload, message->bytes}, message->head.slot,
                  message->head.stamp);
      inbox_.pop();
      // relaxed: as return_credits()
      if (states_[from].unreturned.fetch_add(1, std::memory_order_relaxed) + 1 >= kCreditBatch &&
          !return_credits(from))
        note_due();
    }
    if (own_message != nullptr) {
      run_handler(own_message->handler, raw(rank()), {own_message->payload, own_message->bytes},
                  own_message->slot, own_message->stamp);
      own_messages_.pop();
    }
  }
  return any;
}

// ---- doorbells --------------------------------------------------------------------------------------------

/// In the watcher's thread.
void UcxTransport::on_event(void* self, std::uint32_t index) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  transport.lanes_[index]->lock.event_taken();
  if (transport.serve(index)) return;
  // relaxed: the ring publishes it
  transport.event_lanes_.fetch_or(std::uint32_t{1} << index, std::memory_order_relaxed);
  transport.ring_messages();
}

/// What peers do to this rank's memory concerns none of its threads, so none need wake for it. False: there
/// is something else.
bool UcxTransport::serve(std::uint32_t index) noexcept {
  Lane& lane = *lanes_[index];
  if (!lane.lock.try_lock()) return false;
  if (index == 0) has_arrived_ = false;
  bool served = lane.serve();
  if (index == 0) served = served && !has_arrived_;
  if (served && lane.lock.listen()) watcher_.enable(lane.event_fd(), index);
  unlock(lane);
  return served;
}

bool UcxTransport::arm() noexcept {
  if (due_.load(std::memory_order_acquire) != 0) return false;  // acquire: pairs with note_due()
  // relaxed: the thread that holds the gate looks again when it leaves it.
  if (messages_wait() && gate_.load(std::memory_order_relaxed) == 0) return false;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[i];
    // Its first endpoint rings. But on the last one a peer answers the probe of agree_on_errors().
    if (i != 0 && !lane.used() && (i + 1 != lanes_.size() || lane.lock.listens())) continue;
    if (!lane.lock.lock_or_request_ring()) continue;  // the lock's holder rings when it unlocks
    const bool armed = lane.arm();
    if (armed && lane.lock.listen()) watcher_.enable(lane.event_fd(), i);
    unlock(lane);
    if (armed) continue;
    // Arming takes events off the descriptor, maybe before the watcher has seen them. So this thread rings in
    // the watcher's place, for threads that sleep or are about to.
    ring_messages();
    // relaxed: for this thread's next poll
    event_lanes_.fetch_or(std::uint32_t{1} << i, std::memory_order_relaxed);
    return false;
  }
  return !messages_wait();  // arming makes progress; messages that it received cause no further event
}

void UcxTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  Bell& bell = bells()[raw(d)];
  if (d != Doorbell::messages) return bell.sleep(seen, timeout_ns);
  // While other threads poll all the time, they take the arrivals anyway. An armed lane would only make the
  // watcher and this thread run for each of them.
  Polls& polls = polls_of_thread();
  std::uint32_t others = 0u - polls.own;
  for (const auto& lane : lanes_) others += lane->polls.load(std::memory_order_relaxed);  // relaxed: a hint
  const bool others_poll = static_cast<std::int32_t>(others - polls.others_seen) > kBusyPolls;
  polls.others_seen = others;
  if (others_poll) return bell.sleep(seen, timeout_ns < 0 ? kNapNs : std::min(timeout_ns, kNapNs));
  if (arm()) bell.sleep(seen, timeout_ns);
}

void UcxTransport::wake(Rank to, Doorbell d) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  if (own(to)) return bells()[raw(d)].ring();
  if (control(raw(to), {.from = raw(rank()), .kind = Wire::ring, .name = static_cast<std::uint16_t>(raw(d))}))
    return;
  // release: what the woken thread must see comes before the ring.
  states_[raw(to)].rings.fetch_or(std::uint32_t{1} << raw(d), std::memory_order_release);
  note_due();
}

}  // namespace

Result<void> available() {
  auto library = Library::load();
  if (!library) return tl::unexpected<Error>(library.error());
  return {};
}

Result<std::unique_ptr<Transport>> create(OutOfBand& exchange, Bells& bells, const Options& options) {
  auto transport = std::make_unique<UcxTransport>(exchange, bells);
  KASANE_TRY(transport->start(options));
  return transport;
}

}  // namespace kasane::comm::ucx
#endif
