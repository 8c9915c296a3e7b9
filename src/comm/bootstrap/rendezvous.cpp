// SPDX-License-Identifier: Apache-2.0
// See rendezvous.h. Each step that may fail on one rank alone is followed by an exchange of how it went, so that nobody goes on, or waits, without it.
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
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/everybody.h"

namespace kasane::comm {
namespace {

using Key = std::array<unsigned char, 16>;

constexpr std::uint32_t kDescriptorsAMessage = 16;   ///< the kernel takes 253, from some users fewer at a time
/// A neighbour may make room, or end, without waking our poll: look again that often.
constexpr int kPollMs = 10;

/// What everybody is told of a rank, followed by the text that says where it is.
struct Card {
  Key name;   ///< of its socket
  Key key;    ///< rank 0's is the job's
};

/// Who asks the first rank for the host's memory.
struct Request {
  Key key;
  std::uint32_t rank;
};

/// Goes before the descriptors of one message; those of one rank travel in several if there are many.
struct Parcel {
  Key key;
  std::uint32_t first, count, total;
};

struct alignas(cmsghdr) ControlBuffer {
  char bytes[CMSG_SPACE(kDescriptorsAMessage * sizeof(int))];
};

/// A socket that keeps messages apart and never blocks.
class Socket {
 public:
  Socket() noexcept : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  explicit Socket(int fd) noexcept : fd_(fd) {}
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

/// Of the kernel that runs, and the network namespace in it: a name is reached from there alone.
std::string where() {
  struct stat space {};
  if (::stat("/proc/thread-self/ns/net", &space) != 0) space = {};
  return line_of("/proc/sys/kernel/random/boot_id") + std::to_string(space.st_dev) + ":" + std::to_string(space.st_ino);
}

/// In a user namespace all users of outside that it does not know have one number, which proves nothing.
bool stands_for_many(uid_t user) {
  const std::string unknown = line_of("/proc/sys/kernel/overflowuid");
  if (std::to_string(user) != unknown.substr(0, unknown.find('\n'))) return false;
  unsigned inside = 0, outside = 0, count = 0;
  return std::sscanf(line_of("/proc/self/uid_map").c_str(), "%u %u %u", &inside, &outside, &count) != 3 || count != ~0u;
}

/// Is the other end this user's? The kernel noted who it was when it listened, or connected: nobody can say so of himself.
bool same_user(int fd) {
  ucred who{};
  socklen_t bytes = sizeof who;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid() && !stands_for_many(who.uid);
}

class Meeting {
 public:
  Meeting(OutOfBand& others, const RendezvousOptions& options)
      : others_(others), options_(options), me_(raw(others.rank())), ranks_(others.ranks()) {}
  Result<Job> run();

 private:
  Result<void> together(const Result<void>& mine) { return everybody(others_, mine, "finding the ranks of its host"); }
  Result<void> take_name();
  Result<void> tell_names();
  int reach(const Socket& socket, std::uint32_t rank) const;
  Result<void> find_first();
  Result<void> agree_on_hosts();
  Result<void> make_host_job();
  Result<void> serve_all();
  Result<void> take_callers();
  bool take_request(const Socket& caller, std::uint32_t& position, bool& gone);
  Result<void> pass_to(const Socket& to, std::uint32_t position);
  Result<void> ask();
  Result<void> take_all();
  Result<bool> take_parcel(Descriptors& got);
  Result<void> open_parcel(msghdr& message, ssize_t bytes, Descriptors& got) const;
  Result<void> check_kinds(const Descriptors& got) const;
  Job finished();

  [[nodiscard]] bool lead() const { return first_ == me_; }
  [[nodiscard]] std::uint32_t total() const { return static_cast<std::uint32_t>(host_.size()) + 2; }
  [[nodiscard]] bool late() const { return now_ns() > deadline_ns_; }
  [[nodiscard]] std::string limit_text() const {
    return " within " + std::to_string(options_.limit_ns / 1'000'000) + " ms" +
           (strangers_ == 0 ? "" : " (" + std::to_string(strangers_) + " callers of other users or jobs were turned away)");
  }

  OutOfBand& others_;
  const RendezvousOptions& options_;
  std::uint32_t me_, ranks_;
  Card card_{};
  Key key_{};                         ///< of the job: travels by OutOfBand, then only between ranks that the kernel says are this user's
  std::vector<Key> names_;
  std::vector<std::string> places_;   ///< where each is
  Socket socket_;                     ///< has our name
  Socket to_first_;
  std::vector<std::unique_ptr<Socket>> callers_;   ///< this user's, that have not asked yet
  std::uint32_t first_ = 0;           ///< the lowest rank here
  std::vector<std::uint32_t> host_;   ///< who is here, ascending
  std::uint32_t hosts_ = 0;
  Job host_job_;                      ///< numbered by position; the first rank's has every read end, the others' their own
  bool host_job_made_ = false;
  std::uint64_t deadline_ns_ = 0;
  unsigned strangers_ = 0;            ///< who was turned away
};

/// A name that nobody can know before it is ours.
Result<void> Meeting::take_name() {
  if (socket_.get() < 0 || to_first_.get() < 0) return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
  if (::getrandom(&card_, sizeof card_, 0) != static_cast<ssize_t>(sizeof card_)) return fail(Errc::unsupported, "no random numbers (getrandom)");
  const Name name(card_.name);
  if (::bind(socket_.get(), name.get(), name.bytes) != 0) return fail_errno(Errc::limit, "binding an abstract socket");
  if (::listen(socket_.get(), static_cast<int>(ranks_) + 16) != 0) return fail_errno(Errc::limit, "listening on an abstract socket");
  return {};
}

Result<void> Meeting::tell_names() {
  std::string mine(reinterpret_cast<const char*>(&card_), sizeof card_);
  mine += where() + "/" + options_.domain;
  auto all = others_.allgather(mine);
  KASANE_TRY(all);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::string& told = (*all)[r];
    if (told.size() < sizeof(Card)) return fail(Errc::internal, rank_text(r) + " told its name in " + std::to_string(told.size()) + " bytes");
    Card card;
    std::memcpy(&card, told.data(), sizeof card);
    if (r == 0) key_ = card.key;
    names_.push_back(card.name);
    places_.push_back(told.substr(sizeof card));
  }
  return {};
}

/// 0, or why that rank is not connected. EAGAIN: it is here, but has no room for callers yet. EPERM: who has its name is not this user.
int Meeting::reach(const Socket& socket, std::uint32_t rank) const {
  const Name name(names_[rank]);
  if (::connect(socket.get(), name.get(), name.bytes) != 0) return errno;
  return same_user(socket.get()) ? 0 : EPERM;
}

/// The lowest rank of the same place whose name we reach; ourselves if there is none below.
Result<void> Meeting::find_first() {
  for (first_ = 0; first_ < me_; ++first_) {
    if (places_[first_] != places_[me_]) continue;
    const Socket probe;
    if (probe.get() < 0) return fail(Errc::limit, "no socket to find the ranks of this host (raise the limit with ulimit -n)");
    const int number = reach(probe, first_);
    if (number == 0 || number == EAGAIN) return {};
    if (number != ECONNREFUSED && number != EPERM && number != EACCES) {   // a security module may keep ranks apart: by network then
      return fail_errno(Errc::limit, "looking for " + rank_text(first_) + " on this host", number);
    }
  }
  return {};
}

/// All come to the same result, since they see the same. Who names a first rank must be told so by that one, too.
Result<void> Meeting::agree_on_hosts() {
  auto told = others_.allgather(std::to_string(first_));
  KASANE_TRY(told);
  std::vector<std::uint32_t> firsts(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::string& text = (*told)[r];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), firsts[r]);
    if (error != std::errc() || end != text.data() + text.size() || firsts[r] > r) {
      return fail(Errc::internal, rank_text(r) + " names '" + text.substr(0, 20) + "' as the first rank of its host");
    }
    const std::uint32_t first = firsts[r];
    if (firsts[first] != first) {
      return fail(Errc::unsupported, rank_text(r) + " reaches " + rank_text(first) + " on its host, but that one says that its host's first is rank " +
                                         std::to_string(firsts[first]));
    }
    hosts_ += first == r;
    if (first == first_) host_.push_back(r);
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

/// The first rank: until each of the host's ranks has asked, and has what it asked for.
Result<void> Meeting::serve_all() {
  std::vector<bool> served(host_.size());
  served[0] = true;
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    KASANE_TRY(take_callers());
    bool moved = false;
    for (std::size_t i = 0; i < callers_.size();) {
      std::uint32_t position = 0;
      bool gone = false;
      if (!take_request(*callers_[i], position, gone)) {
        ++i;
        continue;
      }
      moved = true;
      if (!gone && served[position]) gone = true;
      const std::unique_ptr<Socket> caller = std::exchange(callers_[i], std::move(callers_.back()));
      callers_.pop_back();
      if (gone) continue;
      KASANE_TRY(pass_to(*caller, position));
      served[position] = true;
    }
    if (moved) continue;
    if (late()) {
      const auto missing = static_cast<std::size_t>(std::find(served.begin(), served.end(), false) - served.begin());
      return fail(Errc::peer_lost, rank_text(host_[missing]) + " did not ask " + rank_text(me_) + " for the host's memory" + limit_text());
    }
    std::vector<pollfd> arrivals{{.fd = socket_.get(), .events = POLLIN, .revents = 0}};
    for (const auto& caller : callers_) arrivals.push_back({.fd = caller->get(), .events = POLLIN, .revents = 0});
    ::poll(arrivals.data(), arrivals.size(), kPollMs);
  }
  return {};
}

/// Keeps who is this user, and turns away all others.
Result<void> Meeting::take_callers() {
  for (;;) {
    auto caller = std::make_unique<Socket>(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (caller->get() < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return {};
      return fail_errno(Errc::limit, "accepting a rank of this host (the limit of open files is raised with ulimit -n)");
    }
    if (same_user(caller->get())) {
      callers_.push_back(std::move(caller));
    } else {
      ++strangers_;
    }
    if (late()) return {};
  }
}

/// False: nothing has come. gone: the caller is to be forgotten, since it has left or is no rank of this host.
bool Meeting::take_request(const Socket& caller, std::uint32_t& position, bool& gone) {
  Request request{};
  char beyond = 0;
  iovec parts[2] = {{.iov_base = &request, .iov_len = sizeof request}, {.iov_base = &beyond, .iov_len = 1}};
  msghdr message{};   // without room for descriptors: the kernel drops what comes
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t bytes = ::recvmsg(caller.get(), &message, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const auto found = std::lower_bound(host_.begin(), host_.end(), request.rank);
  gone = bytes != static_cast<ssize_t>(sizeof request) || request.key != key_ || found == host_.end() || *found != request.rank;
  if (gone && bytes > 0) ++strangers_;   // those that say nothing have only looked who is here
  position = static_cast<std::uint32_t>(found - host_.begin());
  return true;
}

/// What each gets: the memory, its own read end, everybody's write end.
Result<void> Meeting::pass_to(const Socket& to, std::uint32_t position) {
  std::vector<int> fds{host_job_.shared_fd, host_job_.postbox[position].in};
  for (const Job::Postbox& box : host_job_.postbox) fds.push_back(box.out);
  const std::uint32_t rank = host_[position];
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
    if (!full || late()) return fail_errno(Errc::peer_lost, "passing the host's memory to " + rank_text(rank));
    pollfd room{.fd = to.get(), .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, kPollMs);
  }
  return {};
}

/// Every other rank: connects to the first one and says who it is.
Result<void> Meeting::ask() {
  for (;;) {
    const int number = reach(to_first_, first_);
    if (number == 0) break;
    if (number != EAGAIN || late()) return fail_errno(Errc::peer_lost, "asking " + rank_text(first_) + " for the host's memory" + (number == EAGAIN ? limit_text() : ""), number);
    ::poll(nullptr, 0, kPollMs);
  }
  const Request request{.key = key_, .rank = me_};
  if (::send(to_first_.get(), &request, sizeof request, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request)) {
    return fail_errno(Errc::peer_lost, "asking " + rank_text(first_) + " for the host's memory");
  }
  return {};
}

Result<void> Meeting::take_all() {
  KASANE_TRY(ask());
  Descriptors got;
  while (got.fds.size() < total()) {
    auto taken = take_parcel(got);
    KASANE_TRY(taken);
    if (*taken) continue;
    if (late()) return fail(Errc::peer_lost, rank_text(first_) + " passed nothing to " + rank_text(me_) + limit_text());
    pollfd arrival{.fd = to_first_.get(), .events = POLLIN, .revents = 0};
    ::poll(&arrival, 1, kPollMs);
  }
  KASANE_TRY(check_kinds(got));
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
  const ssize_t bytes = ::recvmsg(to_first_.get(), &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (bytes < 0) return fail_errno(Errc::io, "receiving the host's memory from " + rank_text(first_));
  KASANE_TRY(open_parcel(message, bytes, got));
  return true;
}

/// Keeps its descriptors, if they are the next ones.
Result<void> Meeting::open_parcel(msghdr& message, ssize_t bytes, Descriptors& got) const {
  Descriptors arrived;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    arrived.fds.resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(arrived.fds.data(), CMSG_DATA(c), arrived.fds.size() * sizeof(int));
  }
  if (bytes == 0) return fail(Errc::peer_lost, rank_text(first_) + " left before it had passed the host's memory to " + rank_text(me_));
  const auto& parcel = *static_cast<const Parcel*>(message.msg_iov->iov_base);
  if (bytes != sizeof(parcel) || (message.msg_flags & MSG_TRUNC) != 0 || parcel.key != key_) {
    return fail(Errc::internal, "what has the name of " + rank_text(first_) + " is no rank of this job");
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
  return {};
}

Result<void> Meeting::check_kinds(const Descriptors& got) const {
  const std::size_t bytes = options_.shared_bytes(static_cast<std::uint32_t>(host_.size()));
  for (std::size_t i = 0; i < got.fds.size(); ++i) {
    struct stat s {};
    const bool good = ::fstat(got.fds[i], &s) == 0 && (i == 0 ? S_ISREG(s.st_mode) && static_cast<std::size_t>(s.st_size) == bytes : S_ISSOCK(s.st_mode));
    if (good) continue;
    return fail(Errc::internal, "descriptor " + std::to_string(i) + " from " + rank_text(first_) + " is not " +
                                    (i == 0 ? "a memory file of " + std::to_string(bytes) + " bytes" : std::string("a socket")));
  }
  return {};
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
  KASANE_TRY(together(take_name()));
  KASANE_TRY(tell_names());
  KASANE_TRY(together(find_first()));
  KASANE_TRY(agree_on_hosts());
  Result<void> ended = together(make_host_job());
  if (ended) {
    deadline_ns_ = now_ns() + static_cast<std::uint64_t>(options_.limit_ns);
    ended = together(lead() ? serve_all() : take_all());
  }
  if (ended) return finished();
  if (host_job_made_) close_job(host_job_);
  return tl::unexpected<Error>(std::move(ended).error());
}

}  // namespace

Result<Job> rendezvous(OutOfBand& others, const RendezvousOptions& options) { return Meeting(others, options).run(); }

}  // namespace kasane::comm
