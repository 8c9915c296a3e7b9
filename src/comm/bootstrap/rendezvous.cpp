// SPDX-License-Identifier: Apache-2.0
// See rendezvous.h. Each step that may fail on one rank alone is followed by an exchange of how it went, so that nobody goes on, or waits, without it.
#include "comm/bootstrap/rendezvous.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/everybody.h"

namespace kasane::comm {
namespace {

using Key = std::array<unsigned char, 16>;

constexpr std::size_t kLongestDomain = 40;
constexpr std::uint32_t kDescriptorsAMessage = 16;   ///< the kernel takes 253, from some users fewer at a time
/// A neighbour may make room, or end, without waking our poll: look again that often.
constexpr int kPollMs = 10;

/// Goes before the descriptors of one message; those of one rank travel in several if there are many.
struct Parcel {
  Key key;
  std::uint32_t first, count, total;
};

struct alignas(cmsghdr) ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kDescriptorsAMessage * sizeof(int))];
};

/// A datagram socket that never blocks.
class Socket {
 public:
  Socket() noexcept : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// Descriptors that are closed unless somebody takes them.
struct Descriptors {
  std::vector<int> fds;
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (const int fd : fds) ::close(fd);
  }
  /// Takes the i-th out.
  int take(std::size_t i) noexcept { return std::exchange(fds[i], -1); }
};

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;

  Name(const Key& key, std::uint32_t rank, const std::string& domain) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string text = "kasane.";
    for (const unsigned char byte : key) text.append({kHex[byte >> 4], kHex[byte & 15]});
    text += '.' + std::to_string(rank) + '.' + domain;
    address.sun_family = AF_UNIX;
    // The first byte stays 0: a name in the network namespace, not in a file system.
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    std::memcpy(address.sun_path + 1, text.data(), text.size());
  }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string rank_text(std::uint32_t rank) { return "rank " + std::to_string(rank); }

class Meeting {
 public:
  Meeting(OutOfBand& others, const RendezvousOptions& options)
      : others_(others), options_(options), me_(raw(others.rank())), ranks_(others.ranks()) {}
  Result<Job> run();

 private:
  Result<void> together(const Result<void>& mine) { return everybody(others_, mine, "finding the ranks of its host"); }
  Result<void> agree_on_key();
  Result<void> take_name();
  Result<void> find_neighbours();
  Result<void> agree_on_hosts();
  Result<void> check_hosts(const std::vector<std::string>& firsts) const;
  Result<void> make_host_job();
  Result<void> pass_or_take();
  Result<void> pass_to(std::uint32_t position);
  Result<void> take_all();
  Result<bool> take_parcel(Descriptors& got);
  Result<bool> open_parcel(msghdr& message, ssize_t bytes, Descriptors& got);
  Job finished();

  [[nodiscard]] bool lead() const { return host_.front() == me_; }
  [[nodiscard]] std::uint32_t total() const { return static_cast<std::uint32_t>(host_.size()) + 2; }
  [[nodiscard]] Name name_of(std::uint32_t rank) const { return Name(key_, rank, options_.domain); }

  OutOfBand& others_;
  const RendezvousOptions& options_;
  std::uint32_t me_, ranks_;
  Key key_{};
  Socket socket_;
  std::vector<std::uint32_t> host_;   ///< who is here, ascending
  std::uint32_t hosts_ = 0;
  Job host_job_;                      ///< numbered by position; the first rank's has every read end, the others' their own
  bool host_job_made_ = false;
  std::uint64_t deadline_ns_ = 0;
  unsigned strangers_ = 0;            ///< messages that were ignored
};

Result<void> Meeting::agree_on_key() {
  Key drawn{};
  if (me_ == 0 && ::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(drawn.size())) drawn = {};
  auto all = others_.allgather(me_ == 0 ? std::string_view(reinterpret_cast<const char*>(drawn.data()), drawn.size()) : std::string_view());
  KASANE_TRY(all);
  if ((*all)[0].size() != key_.size()) return fail(Errc::internal, "rank 0 sent a key of " + std::to_string((*all)[0].size()) + " bytes");
  std::memcpy(key_.data(), (*all)[0].data(), key_.size());
  if (key_ == Key{}) return fail(Errc::unsupported, "rank 0 has no random numbers (getrandom)");
  return {};
}

Result<void> Meeting::take_name() {
  if (options_.domain.size() > kLongestDomain) {
    return fail(Errc::invalid_argument, "the host's name '" + options_.domain + "' is longer than " + std::to_string(kLongestDomain) + " characters");
  }
  if (socket_.get() < 0) return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
  const int on = 1;
  // Before the name exists: every message then says which user sent it.
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return fail_errno(Errc::unsupported, "SO_PASSCRED");
  const Name name = name_of(me_);
  if (::bind(socket_.get(), name.get(), name.bytes) != 0) return fail_errno(Errc::limit, "binding an abstract socket");
  return {};
}

/// Everybody who has the same domain and network namespace has a name that we can connect to.
Result<void> Meeting::find_neighbours() {
  Socket probe;
  if (probe.get() < 0) return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const Name name = name_of(r);
    if (r == me_ || ::connect(probe.get(), name.get(), name.bytes) == 0) {
      host_.push_back(r);
    } else if (errno != ECONNREFUSED && errno != EPERM && errno != EACCES) {   // a security module may keep ranks apart: by network then
      return fail_errno(Errc::limit, "looking for " + rank_text(r) + " on this host");
    }
  }
  return {};
}

Result<void> Meeting::agree_on_hosts() {
  auto firsts = others_.allgather(std::to_string(host_.front()));
  KASANE_TRY(firsts);
  hosts_ = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) hosts_ += (*firsts)[r] == std::to_string(r);
  return together(check_hosts(*firsts));
}

/// Sharing a host must be mutual: each of mine names the same first rank, and nobody else does.
Result<void> Meeting::check_hosts(const std::vector<std::string>& firsts) const {
  const std::string& first = firsts[me_];
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const bool here = std::binary_search(host_.begin(), host_.end(), r);
    if (here == (firsts[r] == first)) continue;
    return fail(Errc::unsupported, rank_text(me_) + (here ? " reaches " : " does not reach ") + rank_text(r) + " on its host, whose first rank is " + first +
                                       ", but " + rank_text(r) + " says that its host's is rank " + firsts[r]);
  }
  return {};
}

/// The host's first rank makes what all share.
Result<void> Meeting::make_host_job() {
  if (!lead()) return {};
  const auto count = static_cast<std::uint32_t>(host_.size());
  auto made = create_job(count, options_.shared_bytes(count));
  KASANE_TRY(made);
  host_job_ = std::move(*made);
  host_job_made_ = true;
  return {};
}

Result<void> Meeting::pass_or_take() {
  deadline_ns_ = now_ns() + static_cast<std::uint64_t>(options_.limit_ns);
  if (!lead()) return take_all();
  for (std::uint32_t position = 1; position < host_.size(); ++position) KASANE_TRY(pass_to(position));
  return {};
}

/// What each gets: the memory, its own read end, everybody's write end.
Result<void> Meeting::pass_to(std::uint32_t position) {
  std::vector<int> fds{host_job_.shared_fd, host_job_.postbox[position].in};
  for (const Job::Postbox& box : host_job_.postbox) fds.push_back(box.out);
  Socket to;
  const std::uint32_t rank = host_[position];
  const Name name = name_of(rank);
  if (to.get() < 0 || ::connect(to.get(), name.get(), name.bytes) != 0) return fail_errno(Errc::peer_lost, "reaching " + rank_text(rank));
  for (std::uint32_t first = 0; first < fds.size();) {
    Parcel parcel{.key = key_, .first = first, .count = std::min(kDescriptorsAMessage, total() - first), .total = total()};
    const std::size_t bytes = parcel.count * sizeof(int);
    iovec part{.iov_base = &parcel, .iov_len = sizeof(parcel)};
    ControlBuffer control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), fds.data() + first, bytes);
    if (::sendmsg(to.get(), &message, MSG_NOSIGNAL) >= 0) {
      first += parcel.count;
      continue;
    }
    // ETOOMANYREFS: too many descriptors are under way on this host; they arrive, then there is room.
    const bool full = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS;
    if (!full || now_ns() > deadline_ns_) return fail_errno(Errc::peer_lost, "passing the host's memory to " + rank_text(rank));
    pollfd room{.fd = to.get(), .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, kPollMs);
  }
  return {};
}

Result<void> Meeting::take_all() {
  Descriptors got;
  while (got.fds.size() < total()) {
    auto taken = take_parcel(got);
    KASANE_TRY(taken);
    if (*taken) continue;
    if (now_ns() > deadline_ns_) {
      return fail(Errc::peer_lost, rank_text(host_.front()) + " passed nothing to " + rank_text(me_) + " within " +
                                       std::to_string(options_.limit_ns / 1'000'000) + " ms" +
                                       (strangers_ == 0 ? "" : " (" + std::to_string(strangers_) + " messages of other users or jobs were ignored)"));
    }
    pollfd arrival{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    ::poll(&arrival, 1, kPollMs);
  }
  host_job_.shared_fd = got.take(0);
  host_job_.postbox.resize(host_.size());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    host_job_.postbox[i].out = got.take(2 + i);
    if (host_[i] == me_) host_job_.postbox[i].in = got.take(1);
  }
  host_job_.shared_bytes = options_.shared_bytes(static_cast<std::uint32_t>(host_.size()));
  host_job_made_ = true;
  return {};
}

/// Takes one message; false if there is none.
Result<bool> Meeting::take_parcel(Descriptors& got) {
  Parcel parcel{};
  iovec part{.iov_base = &parcel, .iov_len = sizeof(parcel)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (bytes < 0) return fail_errno(Errc::io, "receiving the host's memory");
  return open_parcel(message, bytes, got);
}

/// Keeps its descriptors if it comes from this user and job.
Result<bool> Meeting::open_parcel(msghdr& message, ssize_t bytes, Descriptors& got) {
  Descriptors arrived;
  bool ours = false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred who;
      std::memcpy(&who, CMSG_DATA(c), sizeof(who));
      ours = who.uid == ::getuid();
    } else if (c->cmsg_type == SCM_RIGHTS) {
      arrived.fds.resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(arrived.fds.data(), CMSG_DATA(c), arrived.fds.size() * sizeof(int));
    }
  }
  const auto& parcel = *static_cast<const Parcel*>(message.msg_iov->iov_base);
  if (!ours || bytes != sizeof(parcel) || parcel.key != key_) {
    ++strangers_;
    return true;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || arrived.fds.size() != parcel.count) {
    return fail(Errc::limit, "the host's memory arrived with " + std::to_string(arrived.fds.size()) + " of " + std::to_string(parcel.count) +
                                 " descriptors: raise the limit of open files (ulimit -n)");
  }
  if (parcel.first != got.fds.size() || parcel.total != total()) {
    return fail(Errc::internal, "descriptors " + std::to_string(parcel.first) + " of " + std::to_string(parcel.total) + " arrived, " +
                                    std::to_string(got.fds.size()) + " of " + std::to_string(total()) + " were awaited");
  }
  got.fds.insert(got.fds.end(), arrived.fds.begin(), arrived.fds.end());
  arrived.fds.clear();
  return true;
}

/// The host's job under the numbers of the whole one.
Job Meeting::finished() {
  Job job;
  job.ranks = ranks_;
  job.rank = Rank{me_};
  job.hosts = hosts_;
  job.shared_fd = host_job_.shared_fd;
  job.shared_bytes = host_job_.shared_bytes;
  job.postbox.resize(ranks_);
  for (std::size_t i = 0; i < host_.size(); ++i) {
    Job::Postbox box = host_job_.postbox[i];
    if (host_[i] != me_ && box.in >= 0) ::close(std::exchange(box.in, -1));   // that rank has its own
    job.postbox[host_[i]] = box;
  }
  return job;
}

Result<Job> Meeting::run() {
  KASANE_TRY(agree_on_key());
  KASANE_TRY(together(take_name()));
  KASANE_TRY(together(find_neighbours()));
  KASANE_TRY(agree_on_hosts());
  Result<void> ended = together(make_host_job());
  if (ended) ended = together(pass_or_take());
  if (ended) return finished();
  if (host_job_made_) close_job(host_job_);
  return tl::unexpected<Error>(std::move(ended).error());
}

}  // namespace

Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options) { return Meeting(others, options).run(); }

}  // namespace kasane::comm
