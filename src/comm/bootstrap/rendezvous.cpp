// SPDX-License-Identifier: Apache-2.0
// See rendezvous.h. After each step that may fail on one rank alone the ranks exchange its result (agree()),
// so that none goes on, or waits for a rank that failed.
#include "comm/bootstrap/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/renumbered.h"
#include "comm/agree.h"
#include "comm/bootstrap/descriptor_messages.h"

namespace kasane::comm {
namespace {

using Key = std::array<unsigned char, 16>;

constexpr std::uint32_t kDescriptorsAMessage = 16;  ///< the kernel takes 253, and fewer from some users
/// The other end may make room, or end, without waking poll(): look again this often.
constexpr int kPollMs = 10;

/// What each rank sends to all, followed by its location.
struct Announcement {
  Key name;  ///< of its socket
  Key key;   ///< rank 0's is the job's
};

/// Asks the leader for the host's memory.
struct MemoryRequest {
  Key key;
  std::uint32_t rank;
};

/// The data of a message with descriptors; many descriptors travel in several messages.
struct DescriptorMessage {
  Key key;
  std::uint32_t first, count, total;
};

/// A socket that keeps message boundaries and never blocks.
OwnedFd packet_socket() noexcept {
  return OwnedFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;

  explicit Name(const Key& drawn) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string text = "kasane.";
    for (const unsigned char byte : drawn) text.append({kHex[byte >> 4], kHex[byte & 15]});
    address.sun_family = AF_UNIX;
    // The first byte stays 0: a name in the network namespace, not in a file system.
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    std::memcpy(address.sun_path + 1, text.data(), text.size());
  }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string rank_text(std::uint32_t rank) { return "rank " + std::to_string(rank); }

std::string line_of(const char* file) {
  char line[256] = {};
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, line, sizeof line - 1);
  ::close(fd);
  return std::string(line, n > 0 ? static_cast<std::size_t>(n) : 0);
}

/// The running kernel, and the network namespace in it: a name can be reached only from there.
std::string location() {
  struct stat space{};
  if (::stat("/proc/thread-self/ns/net", &space) != 0) space = {};
  return line_of("/proc/sys/kernel/random/boot_id") + std::to_string(space.st_dev) + ":" +
         std::to_string(space.st_ino);
}

/// In a user namespace all outside users without a mapping have one number, which proves nothing.
bool stands_for_many(uid_t user) {
  const std::string unknown = line_of("/proc/sys/kernel/overflowuid");
  if (std::to_string(user) != unknown.substr(0, unknown.find('\n'))) return false;
  unsigned inside = 0, outside = 0, count = 0;
  return std::sscanf(line_of("/proc/self/uid_map").c_str(), "%u %u %u", &inside, &outside, &count) != 3 ||
         count != ~0u;
}

/// Does the other end belong to this user? The kernel recorded its user when it listened or connected, so it
/// cannot be forged.
bool same_user(int fd) {
  ucred who{};
  socklen_t bytes = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid() &&
         !stands_for_many(who.uid);
}

class Rendezvous {
 public:
  Rendezvous(OutOfBand& others, const RendezvousOptions& options)
      : others_(others), options_(options), me_(raw(others.rank())), ranks_(others.ranks()) {}
  Result<Job> run();

 private:
  Result<void> on_all_ranks(const Result<void>& mine) {
    return agree(others_, mine, "finding the ranks of its host");
  }
  Result<void> bind_name();
  Result<void> exchange_names();
  int connect_to(const OwnedFd& socket, std::uint32_t rank) const;
  Result<void> find_leader();
  Result<void> agree_on_hosts();
  Result<void> make_host_job();
  Result<void> serve_host();
  Result<void> accept_connections();
  bool receive_request(const OwnedFd& connection, std::uint32_t& position, bool& gone);
  Result<void> send_descriptors(const OwnedFd& to, std::uint32_t position);
  Result<void> request_memory();
  Result<void> receive_host_job();
  Result<bool> receive_message(std::vector<OwnedFd>& got);
  Result<void> check_types(const std::vector<OwnedFd>& got) const;
  Job finished();

  [[nodiscard]] bool is_leader() const { return leader_ == me_; }
  [[nodiscard]] std::uint32_t total() const { return static_cast<std::uint32_t>(host_.size()) + 2; }
  [[nodiscard]] bool late() const { return now_ns() > deadline_ns_; }
  [[nodiscard]] std::string limit_text() const {
    return " within " + std::to_string(options_.limit_ns / 1'000'000) + " ms" +
           (rejected_ == 0
                ? ""
                : " (" + std::to_string(rejected_) + " callers of other users or jobs were turned away)");
  }

  OutOfBand& others_;
  const RendezvousOptions& options_;
  std::uint32_t me_, ranks_;
  Announcement announcement_{};
  /// of the job: travels by OutOfBand, then only between processes of this user
  Key key_{};
  std::vector<Key> names_;
  std::vector<std::string> locations_;  ///< by rank
  OwnedFd socket_ = packet_socket();    ///< bound to our name
  OwnedFd to_leader_ = packet_socket();
  std::vector<OwnedFd> connections_;  ///< from this user; no request yet
  std::uint32_t leader_ = 0;          ///< the lowest rank of this host
  std::vector<std::uint32_t> host_;   ///< the ranks of this host, ascending
  std::uint32_t hosts_ = 0;
  /// by position; the leader's has every read end, the others' only their own
  Job host_job_;
  bool host_job_made_ = false;
  std::uint64_t deadline_ns_ = 0;
  unsigned rejected_ = 0;  ///< connections that were turned away
};

/// Binds and listens on a random name, which no other process can know before.
Result<void> Rendezvous::bind_name() {
  if (socket_.get() < 0 || to_leader_.get() < 0)
    return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
  if (::getrandom(&announcement_, sizeof announcement_, 0) != static_cast<ssize_t>(sizeof announcement_))
    return fail(Errc::unsupported, "no random numbers (getrandom)");
  const Name name(announcement_.name);
  if (::bind(socket_.get(), name.get(), name.bytes) != 0)
    return fail_errno(Errc::limit, "binding an abstract socket");
  if (::listen(socket_.get(), static_cast<int>(ranks_) + 16) != 0)
    return fail_errno(Errc::limit, "listening on an abstract socket");
  return {};
}

Result<void> Rendezvous::exchange_names() {
  std::string mine(reinterpret_cast<const char*>(&announcement_), sizeof announcement_);
  mine += location() + "/" + options_.domain;
  auto all = others_.allgather(mine);
  KASANE_TRY(all);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::string& told = (*all)[r];
    if (told.size() < sizeof(Announcement))
      return fail(Errc::internal,
                  rank_text(r) + " told its name in " + std::to_string(told.size()) + " bytes");
    Announcement announcement;
    std::memcpy(&announcement, told.data(), sizeof announcement);
    if (r == 0) key_ = announcement.key;
    names_.push_back(announcement.name);
    locations_.push_back(told.substr(sizeof announcement));
  }
  return {};
}

/// 0, or why that rank is not connected. EAGAIN: it is on this host, but its queue of connections is full.
/// EPERM: its name belongs to another user.
int Rendezvous::connect_to(const OwnedFd& socket, std::uint32_t rank) const {
  const Name name(names_[rank]);
  if (::connect(socket.get(), name.get(), name.bytes) != 0) return errno;
  return same_user(socket.get()) ? 0 : EPERM;
}

/// Finds the lowest rank with the same location whose name can be reached; this rank if there is none below.
Result<void> Rendezvous::find_leader() {
  for (leader_ = 0; leader_ < me_; ++leader_) {
    if (locations_[leader_] != locations_[me_]) continue;
    const OwnedFd probe = packet_socket();
    if (probe.get() < 0)
      return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
    const int number = connect_to(probe, leader_);
    if (number == 0 || number == EAGAIN) return {};
    // a security module may separate ranks: then they use the network
    if (number != ECONNREFUSED && number != EPERM && number != EACCES) {
      return fail_errno(Errc::limit, "looking for " + rank_text(leader_) + " on this host", number);
    }
  }
  return {};
}

/// All ranks get the same result, since they compare the same data. A rank that is named as a leader must
/// have named itself.
Result<void> Rendezvous::agree_on_hosts() {
  auto told = others_.allgather(std::to_string(leader_));
  KASANE_TRY(told);
  std::vector<std::uint32_t> firsts(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::string& text = (*told)[r];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), firsts[r]);
    if (error != std::errc() || end != text.data() + text.size() || firsts[r] > r) {
      return fail(Errc::internal,
                  rank_text(r) + " names '" + text.substr(0, 20) + "' as the first rank of its host");
    }
    const std::uint32_t first = firsts[r];
    if (firsts[first] != first) {
      return fail(Errc::unsupported, rank_text(r) + " reaches " + rank_text(first) +
                                         " on its host, but that one says that its host's first is rank " +
                                         std::to_string(firsts[first]));
    }
    hosts_ += first == r;
    if (first == leader_) host_.push_back(r);
  }
  return {};
}

/// The leader makes what the host's ranks share.
Result<void> Rendezvous::make_host_job() {
  if (!is_leader()) return {};
  const auto count = static_cast<std::uint32_t>(host_.size());
  auto made = create_job(count, options_.shared_bytes(count));
  KASANE_TRY(made);
  host_job_ = std::move(*made);
  host_job_made_ = true;
  return {};
}

/// On the leader: runs until each of the host's ranks has requested and received its descriptors.
Result<void> Rendezvous::serve_host() {
  std::vector<bool> served(host_.size());
  served[0] = true;
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    KASANE_TRY(accept_connections());
    bool moved = false;
    for (std::size_t i = 0; i < connections_.size();) {
      std::uint32_t position = 0;
      bool gone = false;
      if (!receive_request(connections_[i], position, gone)) {
        ++i;
        continue;
      }
      moved = true;
      if (!gone && served[position]) gone = true;
      const OwnedFd connection = std::exchange(connections_[i], std::move(connections_.back()));
      connections_.pop_back();
      if (gone) continue;
      KASANE_TRY(send_descriptors(connection, position));
      served[position] = true;
    }
    if (moved) continue;
    if (late()) {
      const auto missing =
          static_cast<std::size_t>(std::find(served.begin(), served.end(), false) - served.begin());
      return fail(Errc::peer_lost, rank_text(host_[missing]) + " did not ask " + rank_text(me_) +
                                       " for the host's memory" + limit_text());
    }
    std::vector<pollfd> arrivals{{.fd = socket_.get(), .events = POLLIN, .revents = 0}};
    for (const OwnedFd& connection : connections_)
      arrivals.push_back({.fd = connection.get(), .events = POLLIN, .revents = 0});
    ::poll(arrivals.data(), arrivals.size(), kPollMs);
  }
  return {};
}

/// Keeps connections of this user and rejects all others.
Result<void> Rendezvous::accept_connections() {
  for (;;) {
    OwnedFd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return {};
      return fail_errno(Errc::limit,
                        "accepting a rank of this host (the limit of open files is raised with ulimit -n)");
    }
    if (same_user(connection.get())) {
      connections_.push_back(std::move(connection));
    } else {
      ++rejected_;
    }
    if (late()) return {};
  }
}

/// False: nothing has come. gone: the connection is to be dropped, since it was closed or is not a rank of
/// this host.
bool Rendezvous::receive_request(const OwnedFd& connection, std::uint32_t& position, bool& gone) {
  MemoryRequest request{};
  char beyond = 0;
  iovec parts[2] = {{.iov_base = &request, .iov_len = sizeof request}, {.iov_base = &beyond, .iov_len = 1}};
  msghdr message{};  // without room for descriptors: the kernel drops any that come
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t bytes = ::recvmsg(connection.get(), &message, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const auto found = std::lower_bound(host_.begin(), host_.end(), request.rank);
  gone = bytes != static_cast<ssize_t>(sizeof request) || request.key != key_ || found == host_.end() ||
         *found != request.rank;
  if (gone && bytes > 0) ++rejected_;  // a connection without a request was a probe of find_leader()
  position = static_cast<std::uint32_t>(found - host_.begin());
  return true;
}

/// Each rank gets the memory, its own read end, and all write ends.
Result<void> Rendezvous::send_descriptors(const OwnedFd& to, std::uint32_t position) {
  std::vector<int> fds{host_job_.shared_fd, host_job_.sockets[position].in};
  for (const Job::SocketPair& box : host_job_.sockets) fds.push_back(box.out);
  const std::uint32_t rank = host_[position];
  for (std::uint32_t first = 0; first < fds.size();) {
    DescriptorMessage head{.key = key_,
                           .first = first,
                           .count = std::min(kDescriptorsAMessage, total() - first),
                           .total = total()};
    const auto some = std::span<const int>(fds).subspan(first, head.count);
    if (send_with(to.get(), std::as_bytes(std::span(&head, 1)), some) >= 0) {
      first += head.count;
      continue;
    }
    // ETOOMANYREFS: too many descriptors are in flight on this host; once they arrive there is room.
    const bool full = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS;
    if (!full || late())
      return fail_errno(Errc::peer_lost, "passing the host's memory to " + rank_text(rank));
    pollfd room{.fd = to.get(), .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, kPollMs);
  }
  return {};
}

/// On every other rank: connects to the leader and sends its number.
Result<void> Rendezvous::request_memory() {
  for (;;) {
    const int number = connect_to(to_leader_, leader_);
    if (number == 0) break;
    if (number != EAGAIN || late())
      return fail_errno(
          Errc::peer_lost,
          "asking " + rank_text(leader_) + " for the host's memory" + (number == EAGAIN ? limit_text() : ""),
          number);
    ::poll(nullptr, 0, kPollMs);
  }
  const MemoryRequest request{.key = key_, .rank = me_};
  if (::send(to_leader_.get(), &request, sizeof request, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof request)) {
    return fail_errno(Errc::peer_lost, "asking " + rank_text(leader_) + " for the host's memory");
  }
  return {};
}

Result<void> Rendezvous::receive_host_job() {
  KASANE_TRY(request_memory());
  std::vector<OwnedFd> got;
  while (got.size() < total()) {
    auto taken = receive_message(got);
    KASANE_TRY(taken);
    if (*taken) continue;
    if (late())
      return fail(Errc::peer_lost,
                  rank_text(leader_) + " passed nothing to " + rank_text(me_) + limit_text());
    pollfd arrival{.fd = to_leader_.get(), .events = POLLIN, .revents = 0};
    ::poll(&arrival, 1, kPollMs);
  }
  KASANE_TRY(check_types(got));
  host_job_.shared_fd = got[0].release();
  host_job_.sockets.resize(host_.size());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    host_job_.sockets[i].out = got[2 + i].release();
    if (host_[i] == me_) host_job_.sockets[i].in = got[1].release();
  }
  host_job_.shared_bytes = options_.shared_bytes(static_cast<std::uint32_t>(host_.size()));
  host_job_made_ = true;
  return {};
}

/// Receives one message, and keeps its descriptors if they are the next ones; false if there is none.
Result<bool> Rendezvous::receive_message(std::vector<OwnedFd>& got) {
  DescriptorMessage head{};
  std::vector<OwnedFd> arrived;
  int flags = 0;
  const ssize_t bytes =
      receive_with(to_leader_.get(), std::as_writable_bytes(std::span(&head, 1)), flags, arrived);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (bytes < 0) return fail_errno(Errc::io, "receiving the host's memory from " + rank_text(leader_));
  if (bytes == 0)
    return fail(Errc::peer_lost,
                rank_text(leader_) + " left before it had passed the host's memory to " + rank_text(me_));
  if (bytes != sizeof(head) || (flags & MSG_TRUNC) != 0 || head.key != key_) {
    return fail(Errc::internal, "what has the name of " + rank_text(leader_) + " is no rank of this job");
  }
  if ((flags & MSG_CTRUNC) != 0 || arrived.size() != head.count) {
    return fail(Errc::limit, "the host's memory arrived with " + std::to_string(arrived.size()) + " of " +
                                 std::to_string(head.count) +
                                 " descriptors: raise the limit of open files (ulimit -n)");
  }
  if (head.first != got.size() || head.total != total()) {
    return fail(Errc::internal, "descriptors " + std::to_string(head.first) + " of " +
                                    std::to_string(head.total) + " arrived, " + std::to_string(got.size()) +
                                    " of " + std::to_string(total()) + " were awaited");
  }
  for (OwnedFd& fd : arrived) got.emplace_back(renumbered(fd.release()));
  return true;
}

Result<void> Rendezvous::check_types(const std::vector<OwnedFd>& got) const {
  const std::size_t bytes = options_.shared_bytes(static_cast<std::uint32_t>(host_.size()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    struct stat s{};
    const bool good =
        ::fstat(got[i].get(), &s) == 0 &&
        (i == 0 ? S_ISREG(s.st_mode) && static_cast<std::size_t>(s.st_size) == bytes : S_ISSOCK(s.st_mode));
    if (good) continue;
    return fail(
        Errc::internal,
        "descriptor " + std::to_string(i) + " from " + rank_text(leader_) + " is not " +
            (i == 0 ? "a memory file of " + std::to_string(bytes) + " bytes" : std::string("a socket")));
  }
  return {};
}

/// The host's job, indexed by the ranks of the whole job.
Job Rendezvous::finished() {
  Job job;
  job.ranks = ranks_;
  job.rank = Rank{me_};
  job.hosts = hosts_;
  job.shared_fd = host_job_.shared_fd;
  job.shared_bytes = host_job_.shared_bytes;
  job.sockets.resize(ranks_);
  for (std::size_t i = 0; i < host_.size(); ++i) {
    Job::SocketPair box = host_job_.sockets[i];
    if (host_[i] != me_ && box.in >= 0) ::close(std::exchange(box.in, -1));  // that rank has a copy
    job.sockets[host_[i]] = box;
  }
  return job;
}

Result<Job> Rendezvous::run() {
  KASANE_TRY(on_all_ranks(bind_name()));
  KASANE_TRY(exchange_names());
  KASANE_TRY(on_all_ranks(find_leader()));
  KASANE_TRY(agree_on_hosts());
  Result<void> ended = on_all_ranks(make_host_job());
  if (ended) {
    deadline_ns_ = now_ns() + static_cast<std::uint64_t>(options_.limit_ns);
    ended = on_all_ranks(is_leader() ? serve_host() : receive_host_job());
  }
  if (ended) return finished();
  if (host_job_made_) close_job(host_job_);
  return tl::unexpected<Error>(std::move(ended).error());
}

}  // namespace

Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options) {
  return Rendezvous(others, options).run();
}

}  // namespace kasane::comm
