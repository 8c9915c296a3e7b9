// SPDX-License-Identifier: Apache-2.0
// The ucx transport: what the lanes share. See ucx_transport.h, and docs/design/comm_ucx.md for the state tables.
//
// Thread safety: every call from any thread. Locks (a lane's, the gate) are tried, never waited for; who finds all lanes taken is told again.
// What must not fail (replies, credits, rings) is noted where it was refused and tried again by whoever polls next.
//
// Invariants:
// - handlers run one at a time, through the gate; completions run outside every lock;
// - a peer has at most kCredits messages of ours on the way or unhandled, so its inbox never overflows;
// - who leaves the gate or a lane's lock never leaves behind what a sleeper could have missed without ringing.
#if defined(KASANE_HAVE_UCX)
#include "comm/ucx/ucx_transport.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
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
#include "comm/cpu_atomic.h"
#include "comm/agree.h"
#include "comm/settings.h"
#include "comm/shm_files.h"
#include "comm/ucx/inbox.h"
#include "comm/ucx/lane.h"
#include "comm/ucx/paths.h"
#include "comm/ucx/watcher.h"
#include "topo/threads.h"

namespace kasane::comm::ucx {
namespace {

constexpr int kBatch = 64;                              ///< messages that a progress() runs at most
constexpr std::uint32_t kFences = 64;
constexpr std::uint32_t kBusyPolls = 16;                ///< as many polls of others during one nap: they look after arrivals
constexpr std::uint32_t kIdleLaneEvery = 64;            ///< a thread looks at its lane that often while nothing is under way there
constexpr std::int64_t kNapNs = 100'000;
constexpr std::uint64_t kCloseNs = 1'000'000'000;       ///< how long the end waits for peers that may have gone
constexpr int kFewestLooks = 256;                       ///< … and how often it looks after them at least

std::string text(const Library& ucx, ucs_status_t status) { return ucx.ucs_status_string(status); }

/// Numbers threads in the order of their first call.
[[gnu::noinline]] std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);  // relaxed: any number will do
  return mine;
}

/// How much others had polled when this thread last went to sleep.
[[gnu::noinline]] std::uint32_t& polls_seen() noexcept {
  thread_local std::uint32_t seen = 0;
  return seen;
}

/// A reply that could not be sent yet; there is a place for every request that any peer can have open.
struct LateReply {
  std::atomic<LateReply*> next{nullptr};
  std::uint64_t stamp = 0, value = 0;
};

struct FenceSlot {
  Fence fence;
  std::array<Op, kMaxLanes> parts;
};

struct PeerState {
  std::atomic<std::uint32_t> credits{kCredits};       ///< messages that we may still send
  std::atomic<std::uint32_t> owed{0};                 ///< messages handled, not yet given back
  std::atomic<std::uint32_t> rings{0};                ///< doorbells (bits) that it must still be told of
  std::atomic<std::uint32_t> leaving{0};              ///< it said bye
  std::atomic<std::uint32_t> suspect{0};              ///< lost, but not reported
  std::atomic<int> why{0};
  std::atomic<std::uint32_t> heard{0};                ///< it has sent us something
  bool told_bye = false;                              ///< at the end
};

class UcxTransport final : public Transport {
 public:
  UcxTransport(OutOfBand& exchange, Bells& bells)
      : Transport(exchange.rank(), exchange.ranks()), exchange_(exchange), bells_(bells), states_(exchange.ranks()) {}
  ~UcxTransport() override;

  Result<void> start(const Options&);

  Facts facts() const noexcept override {
    return {.name = "ucx", .target_cpu_needed = true, .puts_need_target = copies_only_, .atomics_coherent_with_cpu = true, .completes_inline = false,
            .ordered = false, .pins_memory = !copies_only_, .poll_every_ns = 0, .answers_bring = true, .detail = detail_};
  }

  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;
  std::byte* mapped(Rank rank, RegionId id) const noexcept override;

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept override;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept override;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value,
                    Completion*) noexcept override;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, Completion*,
              Width) noexcept override;
  Post fence(Rank target, Completion*) noexcept override;

  void set_handler(HandlerId, Handler, void* context) noexcept override;
  Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept override;
  Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept override;
  void reply(ReplyToken token, std::uint64_t value) noexcept override { reply_with(token, value, {}); }
  void reply_with(ReplyToken, std::uint64_t value, std::span<const std::byte> bytes) noexcept override;
  bool test(PendingReply&, std::uint64_t* value) noexcept override;

  bool lost(Rank r) const noexcept override {
    KASANE_CHECK_OP(raw(r), <, ranks());
    return gone(raw(r));
  }

  bool arm() noexcept override;
  std::uint32_t activity(Doorbell d) const noexcept override { return bells_[raw(d)].activity(); }
  void sleep(Doorbell, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank, Doorbell) noexcept override;

 private:
  struct HandlerEntry {
    Handler fn = nullptr;
    void* context = nullptr;
  };
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

  [[nodiscard]] bool own(Rank r) const noexcept { return r == rank(); }
  /// The lane of this thread alone, or nearly so: lane 0 is everybody's.
  [[nodiscard]] std::uint32_t own_lane(std::uint32_t number) const noexcept {
    const auto others = static_cast<std::uint32_t>(lanes_.size()) - 1;
    // A multiple of the golden ratio, scaled: neighbours mostly get different lanes, and each look is spared a division.
    return others == 0 ? 0 : 1 + static_cast<std::uint32_t>(std::uint64_t{number * 0x9E3779B9u} * others >> 32);
  }
  [[nodiscard]] std::uint32_t lane_to_post_on() noexcept;
  void check(RemoteAddr at, std::size_t bytes) const noexcept;
  [[nodiscard]] std::byte* here(RemoteAddr at) const noexcept { return peers_.regions[raw(at.region)].local + at.offset; }
  void ring_messages() noexcept { bells_[raw(Doorbell::messages)].ring(); }
  void unlock(Lane& lane) noexcept {
    if (lane.lock.unlock()) ring_messages();
  }
  template <class F>
  Post post(const F& on_lane) noexcept;

  Post deliver(Rank to, Head head, std::span<const std::byte> payload) noexcept;
  bool control(std::uint32_t to, const Head&, std::span<const std::byte> payload = {}) noexcept;
  bool answer(Rank requester, std::uint32_t slot, std::uint64_t stamp, std::uint64_t value, std::span<const std::byte> bytes = {}) noexcept;
  bool take_credit(std::uint32_t peer) noexcept;
  bool give_credits(std::uint32_t peer) noexcept;
  void note_due() noexcept;
  bool retry_due() noexcept;
  bool retry_replies() noexcept;
  [[nodiscard]] LateReply& late(std::uint32_t peer, std::uint32_t slot) const noexcept {
    return late_[std::size_t{peer} * kReplySlots + slot];
  }

  bool visit(std::uint32_t index) noexcept;
  void take_failures(Lane&) noexcept;
  void settle_suspects() noexcept;
  bool run_messages() noexcept;
  bool run_batch() noexcept;
  void run(const Head&, std::span<const std::byte> payload) noexcept;
  [[nodiscard]] bool messages_wait() const noexcept {
    return !inbox_.empty() || !own_messages_->empty();
  }
  static ucs_status_t on_message(void* self, const void*, std::size_t, void* data, std::size_t bytes, const ucp_am_recv_param_t*) noexcept;
  void arrived(const Head&, std::span<const std::byte> payload) noexcept;
  static void on_event(void* self, std::uint32_t lane) noexcept;

  [[nodiscard]] bool is_neighbour(std::uint32_t r) const noexcept;
  [[nodiscard]] bool gone(std::uint32_t r) const noexcept { return peers_.lost[r].load(std::memory_order_relaxed) != 0; }  // relaxed: seen later
  void say_bye(std::uint32_t r) noexcept;
  bool all_ended() noexcept;
  template <class F>
  void progress_until(const F& ready) noexcept;
  void release() noexcept;

  OutOfBand& exchange_;
  Bells& bells_;
  Peers peers_;
  const Library* ucx_ = nullptr;
  Paths paths_;
  Queues queues_;
  std::optional<ShmFolder> folder_;   ///< where UCX makes its queues; outlives the context
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<PeerState> states_;
  Watcher watcher_;
  std::string detail_;
  bool copies_only_ = true;   ///< UCX may use nothing that has memory registered with a device, which then serves puts by itself

  std::array<HandlerEntry, kMaxHandlers> handlers_{};
  Inbox inbox_;
  std::unique_ptr<OwnMessages> own_messages_;
  ReplySlots replies_;
  std::unique_ptr<FenceSlot[]> fences_;
  LateReply* late_ = nullptr;
  std::size_t late_bytes_ = 0;

  alignas(64) std::atomic<std::uint32_t> gate_{0};        ///< number + 1 of the thread that runs handlers
  alignas(64) std::atomic<std::uint32_t> due_{0};          ///< something that was refused waits to be sent
  std::atomic<LateReply*> late_replies_{nullptr};
  std::atomic<std::uint32_t> suspects_{0};                 ///< 1: some peer is lost and not reported
  std::atomic<std::uint32_t> attention_{0};                ///< lanes (bits) that had an event
  std::atomic<std::uint32_t> inbound_user_{0};             ///< number + 1 of the thread that posts on lane 0
};

// ---- start ---------------------------------------------------------------------------------------------------------

/// Threads that UCX starts inherit this: the program's signals are not theirs.
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

/// UCX aborts where it gets no thread. So all ranks of a host hold as many as they will need, at once, before
/// any of them opens it.
Result<void> UcxTransport::find_room_for_threads() {
  std::atomic<bool> end{false};
  std::vector<std::thread> held;
  Result<void> mine;
  for (int i = 0; mine && i < 2; ++i) {   // UCX's own, and the watcher
    auto thread = topo::start_thread("the threads of UCX", [&end] { end.wait(false); });
    if (thread) held.push_back(std::move(*thread));
    else mine = tl::unexpected(std::move(thread.error()));
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
  // One rank's failure is everybody's: all exchange, then all look.
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

/// Collective, and so is its failure.
Result<void> UcxTransport::settle_paths(const Options& options) {
  Place here = place_here();
  here.user_names_transports = here.user_names_transports || !options.tls.empty();
  auto all = exchange_.allgather(packed(here));
  KASANE_TRY(all);
  std::vector<Place> places;
  for (const std::string& one : *all) {
    auto place = unpacked(one);
    KASANE_TRY(place);
    places.push_back(std::move(*place));
  }
  auto paths = choose_paths(exchange_, places, options.within_hosts, options.tls);
  KASANE_TRY(paths);
  paths_ = std::move(*paths);
  queues_ = {.lanes = options.lanes == 0 ? default_lanes() : std::min(options.lanes, kMaxLanes)};
  if (!paths_.through_memory) return {};
  auto queues = fit_queues(places, raw(rank()), queues_.lanes);
  KASANE_TRY(agree(exchange_, queues ? Result<void>{} : Result<void>(tl::unexpected<Error>(queues.error())), "UCX"));
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
    settings.set("UCX_ALLOC_PRIO", "thp,mmap,heap");   // everything else that UCX allocates is for its process alone
  }
  const std::vector<int> listening_before = paths_.peers.empty() ? std::vector<int>{} : listening_sockets();
  KASANE_TRY(open_context());
  KASANE_TRY(open_lanes(options));
  if (folder_) folder_->remove_name();   // the queues are made, and have no names any more
  if (paths_.peers.empty()) return {};
  std::vector<int> listening = listening_sockets(), ours;
  std::set_difference(listening.begin(), listening.end(), listening_before.begin(), listening_before.end(), std::back_inserter(ours));
  return listen_to_only(ours, paths_.peers);
}

Result<void> UcxTransport::open_context() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail(Errc::invalid_argument, "UCX cannot read its configuration (UCX_… in the environment): " + text(*ucx_, status));
  // Directory words and the like are changed by their owner's CPU too: atomics must be the CPU's at the target (rule 15).
  status = ucx_->ucp_config_modify(config, "ATOMIC_MODE", "cpu");
  // The newer selection of protocols (default since UCX 1.16) finds none for atomics within a host where peers are only
  // mapped. Unknown to older ones, and the user's word stands.
  if (std::getenv("UCX_PROTO_ENABLE") == nullptr) (void)ucx_->ucp_config_modify(config, "PROTO_ENABLE", "n");
  if (status == UCS_OK && !paths_.transports.empty()) status = ucx_->ucp_config_modify(config, "TLS", paths_.transports.c_str());
  if (status == UCS_OK && !paths_.devices.empty()) status = ucx_->ucp_config_modify(config, "NET_DEVICES", paths_.devices.c_str());
  if (status != UCS_OK) {
    ucx_->ucp_config_release(config);
    return fail(Errc::invalid_argument, "UCX refuses its transports \"" + paths_.transports + "\": " + text(*ucx_, status));
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
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
  if (status != UCS_OK) return fail(Errc::internal, "UCX does not say how large its requests are: " + text(*ucx_, status));
  peers_.request_bytes = attributes.request_size;
  return {};
}

Result<void> UcxTransport::open_lanes(const Options& options) {
  peers_.ucx = ucx_;
  peers_.self = raw(rank());
  peers_.ranks = ranks();
  peers_.lost = std::make_unique<std::atomic<std::uint32_t>[]>(ranks());
  const std::uint32_t count = queues_.lanes;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto lane = Lane::create(peers_, std::max<std::uint32_t>(options.outstanding, 4));
    if (!lane) return tl::unexpected<Error>(std::move(lane).error());
    lanes_.push_back(std::move(*lane));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessage;
  handler.cb = [](void* self, const void* head, std::size_t head_bytes, void* data, std::size_t bytes, const ucp_am_recv_param_t* p) {
    return on_message(self, head, head_bytes, data, bytes, p);
  };
  handler.arg = this;
  const ucs_status_t status = ucx_->ucp_worker_set_am_recv_handler(lanes_[0]->worker(), &handler);
  if (status != UCS_OK) return fail(Errc::unsupported, "UCX takes no active message handler: " + text(*ucx_, status));
  KASANE_TRY(watcher_.start(&on_event, this));
  for (std::uint32_t i = 0; i < count; ++i) KASANE_TRY(watcher_.add(lanes_[i]->event_fd(), i));
  return {};
}

/// Everything that operations will need, so that none of them allocates.
Result<void> UcxTransport::reserve() {
  if (ranks() > 1 && !inbox_.create(std::size_t{ranks() - 1} * kCredits)) return fail_errno(Errc::out_of_memory, "no memory for messages of UCX");
  if (!replies_.create()) return fail_errno(Errc::out_of_memory, "no memory for answers of UCX");
  own_messages_ = std::make_unique<OwnMessages>();
  fences_ = std::make_unique<FenceSlot[]>(kFences);
  late_bytes_ = std::size_t{ranks()} * kReplySlots * sizeof(LateReply);
  void* p = ::mmap(nullptr, late_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return fail_errno(Errc::out_of_memory, "no memory for replies of UCX");
  late_ = static_cast<LateReply*>(p);   // zeroed memory is a LateReply that waits for nothing
  return {};
}

/// UCX notices lost peers only where all transports that it may choose can; ranks must agree on that, since both ends of an endpoint do.
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
    // Those that only copy; every other kind registers memory with its device.
    const std::string_view copying[] = {"self", "tcp", "sysv", "posix", "cma"};
    if (std::find(std::begin(copying), std::end(copying), transport) == std::end(copying)) copies_only_ = false;
  }
  if (!paths_.text.empty()) detail_ += "; " + paths_.text;
  if (peers_.error_mode != UCP_ERR_HANDLING_MODE_PEER && ranks() > 1) detail_ += " (does not notice lost peers)";
}

// ---- the end -------------------------------------------------------------------------------------------------------

// Ranks leave at different times. UCX takes it badly if a worker goes while a peer still connects to it, so neighbours say goodbye:
// flush everything (then all our connections stand), say bye, await theirs, close. Those that have gone answer nothing: each step is bounded.
UcxTransport::~UcxTransport() {
  watcher_.stop();
  if (lanes_.empty()) {
    release();
    return;
  }
  for (auto& lane : lanes_) lane->flush_all();
  progress_until([&] { return all_ended(); });
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (is_neighbour(r)) say_bye(r);
  }
  progress_until([&] {
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      if (!is_neighbour(r) || gone(r)) continue;
      say_bye(r);   // to those that we have only heard of by their bye
      if (states_[r].leaving.load(std::memory_order_relaxed) == 0) return false;   // relaxed: this thread progresses lane 0
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

bool UcxTransport::is_neighbour(std::uint32_t r) const noexcept {
  if (r == raw(rank())) return false;
  return states_[r].heard.load(std::memory_order_relaxed) != 0 ||   // relaxed: as above
         std::any_of(lanes_.begin(), lanes_.end(), [r](const auto& lane) { return lane->connected(r); });
}

void UcxTransport::say_bye(std::uint32_t r) noexcept {
  if (states_[r].told_bye || gone(r)) return;
  const Head bye{.from = raw(rank()), .kind = Wire::bye, .name = 0, .slot = 0, .unused = 0, .stamp = 0, .value = 0};
  // Over a connection that stands, if there is one.
  const auto known = std::find_if(lanes_.begin(), lanes_.end(), [r](const auto& lane) { return lane->connected(r); });
  Lane& lane = known != lanes_.end() ? **known : *lanes_[0];
  states_[r].told_bye = lane.send(r, bye, {}) == Post::done;
}

bool UcxTransport::all_ended() noexcept {
  bool all = true;
  for (auto& lane : lanes_) all = lane->ended() && all;
  return all;
}

/// At the end, when there are no other threads: looks after all lanes until ready(), or until it has taken too long.
template <class F>
void UcxTransport::progress_until(const F& ready) noexcept {
  const std::uint64_t deadline = now_ns() + kCloseNs;
  for (int looks = 0; !ready() && (looks < kFewestLooks || now_ns() < deadline); ++looks) {   // it may be we who were not running all that time
    bool moved = false;
    for (auto& lane : lanes_) {
      Turn turn;
      lane->turn(turn);
      take_failures(*lane);
      moved = moved || turn.moved;
    }
    if (!moved) ::sched_yield();   // the others must get there too
  }
}

void UcxTransport::release() noexcept {
  for (auto& region : peers_.regions) {
    if (region.handle != nullptr) ucx_->ucp_mem_unmap(peers_.context, region.handle);
  }
  if (peers_.context != nullptr) ucx_->ucp_cleanup(peers_.context);
  if (late_ != nullptr) ::munmap(late_, late_bytes_);
}

// ---- regions -------------------------------------------------------------------------------------------------------

/// What a rank tells the others about its region, before its packed key.
struct UcxTransport::Announcement {
  std::uint64_t good;
  std::uint64_t base, bytes;
};

Result<std::string> UcxTransport::announce(RegionId id, std::byte* local, std::size_t bytes) {
  auto& region = peers_.regions[raw(id)];
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = local;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_NONBLOCK;   // pages come when they are used, where the device can do that
  ucs_status_t status = ucx_->ucp_mem_map(peers_.context, &params, &region.handle);
  if (status != UCS_OK) {
    region.handle = nullptr;
    return fail(Errc::limit, "UCX cannot register " + std::to_string(bytes) + " bytes: " + text(*ucx_, status));
  }
  void* key = nullptr;
  std::size_t key_bytes = 0;
  status = ucx_->ucp_rkey_pack(peers_.context, region.handle, &key, &key_bytes);
  if (status != UCS_OK) return fail(Errc::limit, "UCX makes no key for " + std::to_string(bytes) + " bytes: " + text(*ucx_, status));
  const Announcement head{.good = 1, .base = reinterpret_cast<std::uintptr_t>(local), .bytes = bytes};
  std::string out(reinterpret_cast<const char*>(&head), sizeof(head));
  out.append(static_cast<const char*>(key), key_bytes);
  ucx_->ucp_rkey_buffer_release(key);
  return out;
}

Result<void> UcxTransport::attach(RegionId id, int, std::byte* local, std::size_t bytes) {
  if (raw(id) >= kMaxRegions || bytes == 0 || local == nullptr) {
    return fail(Errc::invalid_argument, "attach of region " + std::to_string(raw(id)) + " with " + std::to_string(bytes) +
                                            " bytes: ids go up to " + std::to_string(kMaxRegions - 1) + ", bytes from 1");
  }
  auto& region = peers_.regions[raw(id)];
  if (region.bytes.load(std::memory_order_relaxed) != 0) {  // relaxed: attaching one id twice at once is refused by contract
    return fail(Errc::invalid_argument, "region " + std::to_string(raw(id)) + " is attached already");
  }
  auto mine = announce(id, local, bytes);
  const Announcement bad{.good = 0, .base = 0, .bytes = bytes};
  auto all = exchange_.allgather(mine ? std::string_view(*mine) : std::string_view(reinterpret_cast<const char*>(&bad), sizeof(bad)));
  KASANE_TRY(all);
  if (!mine) return tl::unexpected<Error>(std::move(mine).error());
  region.base.resize(ranks());
  region.key.resize(ranks());
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    Announcement head{};
    if ((*all)[r].size() >= sizeof(head)) std::memcpy(&head, (*all)[r].data(), sizeof(head));
    if (head.good == 0) return fail(Errc::peer_lost, "region " + std::to_string(raw(id)) + ": rank " + std::to_string(r) + " failed in it, see its message");
    if (head.bytes != bytes) {
      return fail(Errc::invalid_argument, "region " + std::to_string(raw(id)) + " of rank " + std::to_string(r) + " has " +
                                              std::to_string(head.bytes) + " bytes, rank " + std::to_string(raw(rank())) + "'s has " +
                                              std::to_string(bytes) + ": sizes must be equal");
    }
    region.base[r] = head.base;
    region.key[r] = (*all)[r].substr(sizeof(head));
  }
  region.local = local;
  region.bytes.store(bytes, std::memory_order_release);  // release: who sees the size sees the rest
  // Nobody returns before everybody can reach every region: a handler on any rank may use it at once.
  auto met = exchange_.allgather({});
  KASANE_TRY(met);
  return {};
}

std::byte* UcxTransport::mapped(Rank r, RegionId id) const noexcept {
  KASANE_CHECK_OP(raw(r), <, ranks());
  KASANE_CHECK_OP(raw(id), <, kMaxRegions);
  const auto& region = peers_.regions[raw(id)];
  // acquire: pairs with attach()'s release.
  return region.bytes.load(std::memory_order_acquire) != 0 && own(r) ? region.local : nullptr;
}

void UcxTransport::check(RemoteAddr at, std::size_t bytes) const noexcept {
  KASANE_CHECK_OP(raw(at.rank), <, ranks());
  KASANE_CHECK_OP(raw(at.region), <, kMaxRegions);
  const std::size_t size = peers_.regions[raw(at.region)].bytes.load(std::memory_order_acquire);  // acquire: pairs with attach()'s release
  KASANE_CHECK(size != 0, "the region is not attached");
  KASANE_CHECK_OP(at.offset, <=, size);
  KASANE_CHECK_OP(bytes, <=, size - at.offset);
}

// ---- one-sided operations --------------------------------------------------------------------------------------------

/// Lane 0, unless another thread has something under way there; then this thread's own. Everything that comes in comes to lane 0, so who posts there has
/// one worker to look at while it waits; and a peer that does likewise answers on the connection on which it was asked: over TCP each segment of a
/// one-way connection costs an acknowledgement by itself, on the path of who reads it.
std::uint32_t UcxTransport::lane_to_post_on() noexcept {
  const std::uint32_t me = thread_number();
  // relaxed, all: hints; every lane will do.
  if (inbound_user_.load(std::memory_order_relaxed) == me + 1) return 0;
  if (lanes_[0]->busy()) return own_lane(me);
  inbound_user_.store(me + 1, std::memory_order_relaxed);
  return 0;
}

/// Posts on the lane that suits this thread best, or on another whose lock is free.
template <class F>
Post UcxTransport::post(const F& on_lane) noexcept {
  const auto count = static_cast<std::uint32_t>(lanes_.size());
  std::uint32_t index = lane_to_post_on();
  for (std::uint32_t i = 0; i < count; ++i) {
    Lane& lane = *lanes_[index];
    if (lane.lock.try_lock()) {
      lane.set_poster(thread_number());
      const Post result = on_lane(lane);
      const bool news = lane.take_news();
      unlock(lane);
      if (news) ring_messages();   // who sleeps has not armed this lane, or must fetch what is finished
      return result;
    }
    if (++index == count) index = 0;
  }
  return Post::again;
}

Post UcxTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion* done) noexcept {
  check(from, bytes);
  if (bytes == 0) return Post::done;
  if (!own(from.rank)) return post([&](Lane& lane) { return lane.read(from, to, bytes, done); });
  std::atomic_signal_fence(std::memory_order_acquire);
  std::memcpy(to, here(from), bytes);
  return Post::done;
}

Post UcxTransport::write(RemoteAddr to, const void* from, std::size_t bytes, Completion* done) noexcept {
  check(to, bytes);
  if (bytes == 0) return Post::done;
  if (!own(to.rank)) return post([&](Lane& lane) { return lane.write(to, from, bytes, done); });
  std::memcpy(here(to), from, bytes);
  return Post::done;
}

Post UcxTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value,
                                Completion* done) noexcept {
  KASANE_CHECK_OP(flag_offset % 8, ==, 0u);
  const RemoteAddr flag{to.rank, to.region, flag_offset};
  check(to, bytes);
  check(flag, 8);
  if (!own(to.rank)) return post([&](Lane& lane) { return lane.write_notify(to, from, bytes, flag_offset, value, done); });
  if (bytes != 0) std::memcpy(here(to), from, bytes);
  // release: who acquires the flag sees the bytes.
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(here(flag))).store(value, std::memory_order_release);
  return Post::done;
}

Post UcxTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
                          Completion* done, Width width) noexcept {
  const auto bytes = static_cast<std::size_t>(width);
  KASANE_CHECK_OP(at.offset % bytes, ==, 0u);
  check(at, bytes);
  if (!own(at.rank)) return post([&](Lane& lane) { return lane.atomic(op, at, operand, compare, result, done, width); });
  const std::uint64_t old = cpu_atomic(op, width, here(at), operand, compare);
  if (result != nullptr) *result = old;
  return Post::done;
}

Post UcxTransport::fence(Rank target, Completion* done) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  if (own(target)) return Post::done;
  std::uint32_t open = 0;   // lanes (bits) with something under way to target
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) open |= static_cast<std::uint32_t>(lanes_[i]->open_to(raw(target)) != 0) << i;
  if (open == 0) return Post::done;
  FenceSlot* slot = nullptr;
  for (std::uint32_t i = 0; i < kFences && slot == nullptr; ++i) {
    // acquire: pairs with the release when its last part was done.
    if (fences_[i].fence.claimed.exchange(1, std::memory_order_acquire) == 0) slot = &fences_[i];
  }
  if (slot == nullptr) return Post::again;
  slot->fence.done = done;
  slot->fence.lost.store(0, std::memory_order_relaxed);   // relaxed, both: published with the parts
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
  ring_messages();   // somebody must take the parts out
  if (!slot->fence.one_less()) return Post::pending;
  // Others have done all of it meanwhile, and have left the completion to us.
  const bool lost = slot->fence.lost.load(std::memory_order_relaxed) != 0;   // relaxed: ordered by one_less()
  slot->fence.claimed.store(0, std::memory_order_release);                   // release: our reads are over
  if (!lost) return Post::done;
  return post([&](Lane& lane) { return lane.lost(done); });
}

// ---- messages ------------------------------------------------------------------------------------------------------

void UcxTransport::set_handler(HandlerId id, Handler fn, void* context) noexcept {
  KASANE_CHECK_OP(raw(id), <, kMaxHandlers);
  handlers_[raw(id)] = {fn, context};
}

bool UcxTransport::take_credit(std::uint32_t peer) noexcept {
  auto& credits = states_[peer].credits;
  std::uint32_t have = credits.load(std::memory_order_relaxed);   // relaxed: a number; the messages carry no order of their own
  while (have != 0) {
    if (credits.compare_exchange_weak(have, have - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

Post UcxTransport::deliver(Rank to, Head head, std::span<const std::byte> payload) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  KASANE_CHECK_OP(head.name, <, kMaxHandlers);
  KASANE_CHECK_OP(payload.size(), <=, kMaxPayload);
  head.from = raw(rank());
  if (own(to)) {
    if (!own_messages_->put(head, payload)) return Post::again;
    ring_messages();
    return Post::done;
  }
  // Before its credits, which it gives back no more: a message ends here, and test() says of a request that its peer is lost.
  if (gone(raw(to))) return Post::done;
  if (!take_credit(raw(to))) return Post::again;
  const Post result = post([&](Lane& lane) { return lane.send(raw(to), head, payload); });
  if (result == Post::again) states_[raw(to)].credits.fetch_add(1, std::memory_order_relaxed);  // relaxed: as take_credit()
  return result;
}

Post UcxTransport::send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept {
  return deliver(to, {.from = 0, .kind = Wire::message, .name = static_cast<std::uint16_t>(raw(id)), .slot = 0, .unused = 0, .stamp = 0, .value = 0},
                 payload);
}

Post UcxTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload, PendingReply& pending) noexcept {
  std::uint64_t stamp = 0;
  const std::uint32_t slot = replies_.claim(raw(to), stamp);
  if (slot == ReplySlots::kNone) return Post::again;
  // Filled before the message can be answered: another thread may be handed `pending` by then.
  pending = {.slot = slot, .status = Status::ok, .stamp = stamp, .into = pending.into};
  const Post sent = deliver(to, {.from = 0, .kind = Wire::request, .name = static_cast<std::uint16_t>(raw(id)), .slot = slot, .unused = 0,
                                 .stamp = stamp, .value = 0}, payload);
  if (sent != Post::again) return Post::pending;
  pending = {.into = pending.into};
  replies_.release(slot);
  return Post::again;
}

bool UcxTransport::control(std::uint32_t to, const Head& head, std::span<const std::byte> payload) noexcept {
  return post([&](Lane& lane) { return lane.send(to, head, payload); }) == Post::done;
}

bool UcxTransport::answer(Rank requester, std::uint32_t slot, std::uint64_t stamp, std::uint64_t value, std::span<const std::byte> bytes) noexcept {
  return control(raw(requester), {.from = raw(rank()), .kind = Wire::reply, .name = 0, .slot = slot, .unused = 0, .stamp = stamp, .value = value}, bytes);
}

void UcxTransport::reply_with(ReplyToken token, std::uint64_t value, std::span<const std::byte> bytes) noexcept {
  KASANE_CHECK_OP(bytes.size(), <=, kMaxAnswer);
  KASANE_CHECK_OP(token.slot, <, kReplySlots);
  KASANE_CHECK_OP(raw(token.requester), <, ranks());
  if (own(token.requester)) {
    replies_.answer(token.slot, token.stamp, value, bytes);
    return ring_messages();
  }
  if (answer(token.requester, token.slot, token.stamp, value, bytes)) return;
  // The request's place: nobody else uses it before this reply has arrived. It goes without its bytes.
  LateReply& entry = late(raw(token.requester), token.slot);
  entry.stamp = token.stamp;
  entry.value = value;
  LateReply* head = late_replies_.load(std::memory_order_relaxed);   // relaxed: a guess
  do {
    entry.next.store(head, std::memory_order_relaxed);               // relaxed: published by the next line
  } while (!late_replies_.compare_exchange_weak(head, &entry, std::memory_order_release, std::memory_order_relaxed));
  note_due();
}

bool UcxTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  KASANE_CHECK(pending.stamp != 0, "test() of a request that was not sent, or whose answer was taken already");
  const std::uint32_t slot = pending.slot;
  if (replies_.answered(slot, pending.stamp)) {
    if (value != nullptr) *value = replies_.value(slot);
    const auto bytes = replies_.brought(slot).first(std::min(replies_.brought(slot).size(), pending.into.size()));
    if (!bytes.empty()) std::memcpy(pending.into.data(), bytes.data(), bytes.size());
    pending = {.brought = bytes.size()};
  } else {
    // acquire: an answer that came before its peer was called lost is seen by the look above the next time; this one says there is none.
    const std::uint32_t peer = replies_.peer(slot);
    if (peer == raw(rank()) || peers_.lost[peer].load(std::memory_order_acquire) == 0) return false;
    pending = {.slot = 0, .status = Status::peer_lost, .stamp = 0};
  }
  replies_.release(slot);
  return true;
}

/// Under lane 0's lock. Queues, or acts in place; see wire.h.
ucs_status_t UcxTransport::on_message(void* self, const void*, std::size_t, void* data, std::size_t bytes, const ucp_am_recv_param_t*) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  // A peer is another process: what it wrote is checked before it is used as an index or a length.
  KASANE_CHECK_OP(bytes, >=, sizeof(Head));
  KASANE_CHECK_OP(bytes, <=, kMaxWire);
  Head head;
  std::memcpy(&head, data, sizeof(head));
  KASANE_CHECK_OP(head.from, <, transport.ranks());
  transport.arrived(head, {static_cast<const std::byte*>(data) + sizeof(head), bytes - sizeof(head)});
  return UCS_OK;
}

void UcxTransport::arrived(const Head& head, std::span<const std::byte> payload) noexcept {
  // relaxed: for the end, when this thread is the only one.
  if (states_[head.from].heard.load(std::memory_order_relaxed) == 0) states_[head.from].heard.store(1, std::memory_order_relaxed);
  switch (head.kind) {
    case Wire::message:
    case Wire::request:
      KASANE_CHECK_OP(head.name, <, kMaxHandlers);
      return inbox_.put(head, payload);
    case Wire::reply:
      KASANE_CHECK_OP(payload.size(), <=, kMaxAnswer);
      replies_.answer(head.slot, head.stamp, head.value, payload);
      return ring_messages();   // its requester may sleep while another thread came here
    case Wire::credit:
      states_[head.from].credits.fetch_add(static_cast<std::uint32_t>(head.value), std::memory_order_relaxed);  // relaxed: as take_credit()
      return;
    case Wire::ring:
      KASANE_CHECK_OP(head.name, <, 2);
      return bells_[head.name].ring();
    case Wire::bye:
      states_[head.from].leaving.store(1, std::memory_order_relaxed);   // relaxed: looked at by who holds this lane's lock after us
      return;
  }
  KASANE_CHECK(false, "a message of a kind that does not exist");
}

// ---- what was refused and must not be lost ---------------------------------------------------------------------------

void UcxTransport::note_due() noexcept {
  due_.store(1, std::memory_order_release);   // release: what is due, before the flag
  ring_messages();
}

bool UcxTransport::give_credits(std::uint32_t peer) noexcept {
  auto& owed = states_[peer].owed;
  // relaxed, here and below: a number that is passed on; the handlers' effects are ordered by nothing.
  const std::uint32_t count = owed.exchange(0, std::memory_order_relaxed);
  if (count == 0) return true;
  if (control(peer, {.from = raw(rank()), .kind = Wire::credit, .name = 0, .slot = 0, .unused = 0, .stamp = 0, .value = count})) return true;
  owed.fetch_add(count, std::memory_order_relaxed);
  return false;
}

bool UcxTransport::retry_replies() noexcept {
  LateReply* entry = late_replies_.exchange(nullptr, std::memory_order_acquire);   // acquire: pairs with reply()
  bool all = true;
  while (entry != nullptr) {
    LateReply* next = entry->next.load(std::memory_order_relaxed);   // relaxed: the list is ours
    const auto index = static_cast<std::size_t>(entry - late_);
    const ReplyToken token{Rank{static_cast<std::uint32_t>(index / kReplySlots)}, static_cast<std::uint32_t>(index % kReplySlots), entry->stamp};
    if (!answer(token.requester, token.slot, token.stamp, entry->value)) {
      all = false;
      LateReply* head = late_replies_.load(std::memory_order_relaxed);   // relaxed: a guess
      do {
        entry->next.store(head, std::memory_order_relaxed);              // relaxed: published by the next line
      } while (!late_replies_.compare_exchange_weak(head, entry, std::memory_order_release, std::memory_order_relaxed));
    }
    entry = next;
  }
  return all;
}

/// True if something went out.
bool UcxTransport::retry_due() noexcept {
  if (due_.exchange(0, std::memory_order_acquire) == 0) return false;   // acquire: pairs with note_due()
  bool all = retry_replies();
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (r == raw(rank())) continue;
    if (states_[r].owed.load(std::memory_order_relaxed) >= kCreditBatch) all = give_credits(r) && all;   // relaxed: as give_credits()
    const std::uint32_t rings = states_[r].rings.exchange(0, std::memory_order_acquire);                 // acquire: pairs with wake()
    for (std::uint32_t d = 0; d < 2; ++d) {
      if ((rings >> d & 1) != 0) wake(Rank{r}, Doorbell{d});   // notes itself again if it is refused
    }
  }
  if (!all) due_.store(1, std::memory_order_release);   // release: as note_due(), but whoever polls is awake
  return all;
}

// ---- progress ------------------------------------------------------------------------------------------------------

bool UcxTransport::poll() noexcept {
  const std::uint32_t me = thread_number(), mine = own_lane(me);
  auto& polls = lanes_[mine]->polls;
  const std::uint32_t number = polls.load(std::memory_order_relaxed) + 1;
  polls.store(number, std::memory_order_relaxed);                                      // relaxed: a hint, may miss some
  bool any = due_.load(std::memory_order_relaxed) != 0 && retry_due();                 // relaxed: a hint; retry_due() looks properly
  // Everything comes to lane 0; another one has news only while something of its own is under way, or when a peer goes. Over TCP a look is a system call.
  if (mine != 0 && (lanes_[mine]->busy() || (number % kIdleLaneEvery == 0 && lanes_[mine]->used()))) any = visit(mine) || any;
  any = visit(0) || any;
  const std::uint32_t attention = attention_.load(std::memory_order_relaxed);          // relaxed: a hint; arm() finds what is missed
  for (std::uint32_t i = 1; i < lanes_.size(); ++i) {
    if (i != mine && (lanes_[i]->busy() || (attention >> i & 1) != 0)) any = visit(i) || any;
  }
  if (suspects_.load(std::memory_order_relaxed) != 0) settle_suspects();               // relaxed: seen in a later poll
  const bool ran = run_messages();
  // A handler that asks for progress is told that there was none, as over shared memory; its lanes were looked after all the same.
  if (gate_.load(std::memory_order_relaxed) == me + 1) return false;                    // relaxed: only our own number matters
  return ran || any;
}

bool UcxTransport::visit(std::uint32_t index) noexcept {
  Lane& lane = *lanes_[index];
  if (!lane.lock.try_lock()) return false;
  const std::uint32_t bit = std::uint32_t{1} << index;
  if ((attention_.load(std::memory_order_relaxed) & bit) != 0) attention_.fetch_and(~bit, std::memory_order_relaxed);  // relaxed: a hint
  Turn turn;
  turn.runner = thread_number();
  lane.turn(turn);
  if (lane.any_failed()) [[unlikely]] take_failures(lane);
  unlock(lane);
  turn.run();
  if (turn.for_others) ring_messages();   // who posted it may sleep
  return turn.moved;
}

/// Under the lane's lock.
void UcxTransport::take_failures(Lane& lane) noexcept {
  ucs_status_t why = UCS_OK;
  for (Rank peer = lane.take_failed(why); peer != kNoRank; peer = lane.take_failed(why)) {
    lane.abandon(raw(peer));
    // acq_rel: what arrived from it before, before; and the first to say so.
    if (peers_.lost[raw(peer)].exchange(1, std::memory_order_acq_rel) != 0) continue;
    states_[raw(peer)].why.store(why, std::memory_order_relaxed);      // relaxed, both: published by suspects_
    states_[raw(peer)].suspect.store(1, std::memory_order_relaxed);
    peers_.lost_count.fetch_add(1, std::memory_order_release);         // release: the flag before its count
    suspects_.store(1, std::memory_order_release);                     // release: as above
    attention_.store(~std::uint32_t{0}, std::memory_order_relaxed);    // relaxed: a hint; every lane gives it up
    ring_messages();                                                   // who waits for an answer of it sleeps in vain
  }
}

/// Reports peers that are lost, unless they have said bye: that may still lie unread in lane 0.
void UcxTransport::settle_suspects() noexcept {
  Lane& inbound = *lanes_[0];
  if (!inbound.lock.try_lock()) return;
  for (int i = 0; i < kBatch && ucx_->ucp_worker_progress(inbound.worker()) != 0; ++i) {}
  const bool some = suspects_.exchange(0, std::memory_order_acquire) != 0;   // acquire: pairs with take_failures()
  unlock(inbound);
  if (!some) return;
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    if (states_[r].suspect.exchange(0, std::memory_order_relaxed) == 0) continue;   // relaxed: ordered by suspects_
    if (states_[r].leaving.load(std::memory_order_relaxed) != 0) continue;          // relaxed: written under the lock that we held
    report_lost(Rank{r}, ucx_->ucs_status_string(static_cast<ucs_status_t>(states_[r].why.load(std::memory_order_relaxed))));
  }
}

// No message is left lying: as in the shared-memory transport. Who finds the gate taken, and sleeps, does so with an activity that it read before;
// who leaves the gate looks at both queues after it, and rings if one is not empty. Gate and queues are sequentially consistent.
bool UcxTransport::run_messages() noexcept {
  if (!messages_wait()) return false;
  std::uint32_t nobody = 0;
  // seq_cst: see above; on failure nothing follows.
  if (!gate_.compare_exchange_strong(nobody, thread_number() + 1, std::memory_order_seq_cst, std::memory_order_relaxed)) return false;
  const bool any = run_batch();
  gate_.store(0, std::memory_order_seq_cst);
  if (messages_wait()) ring_messages();
  return any;
}

bool UcxTransport::run_batch() noexcept {
  bool any = false;
  for (int n = 0; n < kBatch; ++n) {
    const Arrived* message = inbox_.front();
    const Arrived* own_message = own_messages_->front();
    if (message == nullptr && own_message == nullptr) return any;
    any = true;
    if (message != nullptr) {
      run(message->head, {message->payload, message->bytes});
      const std::uint32_t from = message->head.from;
      inbox_.pop();
      // relaxed: as give_credits()
      if (states_[from].owed.fetch_add(1, std::memory_order_relaxed) + 1 >= kCreditBatch && !give_credits(from)) note_due();
    }
    if (own_message != nullptr) {
      run(own_message->head, {own_message->payload, own_message->bytes});
      own_messages_->pop();
    }
  }
  return any;
}

void UcxTransport::run(const Head& head, std::span<const std::byte> payload) noexcept {
  const HandlerEntry& handler = handlers_[head.name];
  KASANE_CHECK(handler.fn != nullptr, "a message for a handler that was never set");
  const Rank from{head.from};
  handler.fn(handler.context, Message{.from = from, .payload = payload, .token = {.requester = from, .slot = head.slot, .stamp = head.stamp}});
}

// ---- doorbells -----------------------------------------------------------------------------------------------------

/// In the watcher's thread.
void UcxTransport::on_event(void* self, std::uint32_t index) noexcept {
  auto& transport = *static_cast<UcxTransport*>(self);
  transport.attention_.fetch_or(std::uint32_t{1} << index, std::memory_order_relaxed);   // relaxed: the ring publishes it
  transport.lanes_[index]->lock.heard();
  transport.ring_messages();
}

bool UcxTransport::arm() noexcept {
  if (due_.load(std::memory_order_acquire) != 0) return false;   // acquire: pairs with note_due()
  // relaxed: whoever holds the gate looks again when it leaves it.
  if (messages_wait() && gate_.load(std::memory_order_relaxed) == 0) return false;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[i];
    if (i != 0 && !lane.used()) continue;       // its first endpoint rings
    if (!lane.lock.lock_or_want()) continue;    // who holds it rings when it lets go
    const bool armed = lane.arm();
    if (armed && lane.lock.listen()) watcher_.enable(lane.event_fd(), i);
    unlock(lane);
    if (armed) continue;
    // Arming takes events off the descriptor, maybe before the watcher has heard of them: who sleeps already, or is about to, is told in its place.
    ring_messages();
    attention_.fetch_or(std::uint32_t{1} << i, std::memory_order_relaxed);   // relaxed: for this thread's own next poll
    return false;
  }
  return !messages_wait();   // arming makes progress: what came with it has no event any more
}

void UcxTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  Bell& bell = bells_[raw(d)];
  if (d != Doorbell::messages) return bell.sleep(seen, timeout_ns);
  // While others poll all the time, an armed lane would make the watcher and us run for each arrival that they take anyway.
  std::uint32_t polls = 0;
  const std::uint32_t mine = own_lane(thread_number());
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (i != mine) polls += lanes_[i]->polls.load(std::memory_order_relaxed);   // relaxed: a hint
  }
  const bool others_poll = polls - polls_seen() > kBusyPolls;
  polls_seen() = polls;
  if (others_poll) return bell.sleep(seen, timeout_ns < 0 ? kNapNs : std::min(timeout_ns, kNapNs));
  if (arm()) bell.sleep(seen, timeout_ns);
}

void UcxTransport::wake(Rank to, Doorbell d) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  if (own(to)) return bells_[raw(d)].ring();
  if (control(raw(to), {.from = raw(rank()), .kind = Wire::ring, .name = static_cast<std::uint16_t>(raw(d)), .slot = 0, .unused = 0, .stamp = 0, .value = 0})) return;
  states_[raw(to)].rings.fetch_or(std::uint32_t{1} << raw(d), std::memory_order_release);   // release: what is to be seen, before the ring
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
