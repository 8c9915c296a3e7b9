// SPDX-License-Identifier: Apache-2.0
// See network.h.
#include "comm/ucx/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/owned_fd.h"
#include "comm/agree.h"

namespace kasane::comm::ucx {
namespace {

constexpr std::int64_t kTryNs = 5'000'000'000;  ///< time limit of a connection between two hosts

OwnedFd socket_of(int type) noexcept {
  return OwnedFd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(address);
  a.sin_port = htons(port);
  return a;
}

bool set(const char* variable) { return std::getenv(variable) != nullptr; }

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::string identity_of_namespace(const char* name) {
  struct stat info{};
  if (::stat((std::string("/proc/self/ns/") + name).c_str(), &info) != 0) return "?";
  return std::to_string(info.st_ino);
}

std::vector<Interface> interfaces_here() {
  ifaddrs* first = nullptr;
  std::vector<Interface> found;
  if (::getifaddrs(&first) != 0) return found;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || i->ifa_netmask == nullptr) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0 ||
        (i->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    // UCX takes an interface's first address.
    if (std::any_of(found.begin(), found.end(), [&](const Interface& f) { return f.name == i->ifa_name; }))
      continue;
    const auto word = [](const sockaddr* a) {
      return ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr);
    };
    // -1, or an error: unknown
    const int speed = std::atoi(first_line("/sys/class/net/" + std::string(i->ifa_name) + "/speed").c_str());
    found.push_back({.name = i->ifa_name,
                     .address = word(i->ifa_addr),
                     .prefix = static_cast<std::uint32_t>(std::popcount(word(i->ifa_netmask))),
                     .megabits = static_cast<std::uint32_t>(std::max(speed, 0))});
  }
  ::freeifaddrs(first);
  return found;
}

std::uint32_t network_of(const Interface& i) {
  return i.prefix == 0 ? 0 : i.address & ~std::uint32_t{0} << (32 - i.prefix);
}

/// The interface through which the kernel sends to an address; empty: there is no route.
std::string way_to(std::uint32_t address, const RankLocation& here) {
  const OwnedFd socket = socket_of(SOCK_DGRAM);
  const sockaddr_in to = socket_address(address, 9);
  sockaddr_in from{};
  socklen_t bytes = sizeof from;
  // of a datagram socket: sends nothing
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from), &bytes) != 0) return {};
  for (const Interface& i : here.interfaces) {
    if (i.address == ntohl(from.sin_addr.s_addr)) return i.name;
  }
  return {};
}

/// The interfaces that the kernel's routes name: of a rank, the one through which it sends to rank 0's
/// machine; of rank 0, the one through which it sends to the next machine.
Result<std::vector<Network>> network_by_routes(OutOfBand& all, const std::vector<RankLocation>& locations) {
  const RankLocation& here = locations[raw(all.rank())];
  const std::vector<std::uint32_t> first = leaders(locations);
  const RankLocation& there = locations[here.machine == locations[0].machine ? first[1] : 0];
  const auto is_here = [&](std::uint32_t a) {
    return std::any_of(here.interfaces.begin(), here.interfaces.end(),
                       [a](const Interface& i) { return i.address == a; });
  };
  std::string mine;
  for (const Interface& i : there.interfaces) {
    if (mine.empty() && !is_here(i.address)) mine = way_to(i.address, here);
  }
  auto names = all.allgather(mine);
  KASANE_TRY(names);
  Network found{.text = "by routes", .why = "routes lead from it to the other hosts", .of_rank = {}};
  for (std::uint32_t r = 0; r < locations.size(); ++r) {
    const auto& list = locations[r].interfaces;
    const auto i =
        std::find_if(list.begin(), list.end(), [&](const Interface& one) { return one.name == (*names)[r]; });
    if (i == list.end()) return std::vector<Network>{};
    found.of_rank.push_back(*i);
  }
  return std::vector<Network>{std::move(found)};
}

/// Listens there. Returns the port; empty: it cannot.
std::string listen_at(const OwnedFd& listener, std::uint32_t address) {
  sockaddr_in at = socket_address(address, 0);
  socklen_t bytes = sizeof at;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes) != 0 ||
      ::listen(listener.get(), 1024) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes) != 0)
    return {};
  return std::to_string(ntohs(at.sin_port));
}

/// Bound to the address that UCX will use, whatever other interfaces there are. Returns 0 or errno.
int begin_connecting(const OwnedFd& socket, std::uint32_t from, std::uint32_t to, const std::string& port) {
  const sockaddr_in here = socket_address(from, 0);
  const sockaddr_in there = socket_address(to, static_cast<std::uint16_t>(std::atoi(port.c_str())));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) return errno;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0 &&
      errno != EINPROGRESS)
    return errno;
  return 0;
}

/// Waits until it is connected, or the time `end`. Returns what is in the way; empty: nothing.
std::string end_connecting(const OwnedFd& socket, std::int64_t end) {
  const std::int64_t left_ns = std::max<std::int64_t>(end - static_cast<std::int64_t>(now_ns()), 0);
  pollfd ready{socket.get(), POLLOUT, 0};
  if (::poll(&ready, 1, static_cast<int>(left_ns / 1'000'000)) == 0) return "no answer within 5 s";
  int number = 0;
  socklen_t bytes = sizeof number;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &number, &bytes);
  return number != 0 ? std::strerror(number) : "";
}

/// Collective. Every machine's first rank connects to every other's over the network. All ranks return the
/// same error, which names the ranks that fail.
Result<void> try_network(OutOfBand& all, const std::vector<RankLocation>& locations, const Network& network) {
  const std::uint32_t me = raw(all.rank());
  const std::uint32_t here = network.of_rank[me].address;
  const std::vector<std::uint32_t> first = leaders(locations);
  const bool lead = std::find(first.begin(), first.end(), me) != first.end();
  const OwnedFd listener = socket_of(SOCK_STREAM);
  auto ports = all.allgather(lead ? listen_at(listener, here) : std::string());
  KASANE_TRY(ports);

  std::string failures;
  const auto note = [&](std::uint32_t to, const std::string& why) {
    if (failures.empty() && !why.empty())
      failures = text(network.of_rank[me]) + " does not reach rank " + std::to_string(to) + "'s " +
                 text(network.of_rank[to]) + ": " + why;
  };
  std::vector<std::pair<std::uint32_t, OwnedFd>> begun;
  for (const std::uint32_t to : first) {
    if (!lead || to == me) continue;
    OwnedFd socket = socket_of(SOCK_STREAM);
    if (const int number = begin_connecting(socket, here, network.of_rank[to].address, (*ports)[to]);
        number != 0)
      note(to, std::strerror(number));
    else
      begun.emplace_back(to, std::move(socket));
  }
  const std::int64_t end = static_cast<std::int64_t>(now_ns()) + kTryNs;
  for (const auto& [to, socket] : begun) note(to, end_connecting(socket, end));
  Result<void> mine;
  if (!failures.empty()) mine = fail(Errc::unsupported, failures);
  // also a barrier: listeners stay until all have tried
  return agree(all, mine, "connecting over " + network.text);
}

}  // namespace

// ---- locations --------------------------------------------------------------------------------------------

RankLocation location_here() {
  RankLocation here;
  here.machine = first_line("/proc/sys/kernel/random/boot_id");
  for (const char* name : {"net", "pid", "ipc"}) here.machine += '.' + identity_of_namespace(name);
  struct statvfs shm{};
  if (::statvfs("/dev/shm", &shm) == 0) here.free_shm = std::uint64_t{shm.f_bsize} * shm.f_bavail;
  here.user_names_transports = set("UCX_TLS");
  here.user_names_devices = set("UCX_NET_DEVICES");
  here.rdma = !rdma_ports().empty();
  here.interfaces = interfaces_here();
  return here;
}

std::string packed(const RankLocation& p) {
  std::ostringstream out;
  out << p.machine << ' ' << p.free_shm << ' ' << p.user_names_transports << ' ' << p.user_names_devices
      << ' ' << p.rdma;
  for (const Interface& i : p.interfaces)
    out << ' ' << i.name << ' ' << i.address << ' ' << i.prefix << ' ' << i.megabits;
  return out.str();
}

Result<RankLocation> unpacked(const std::string& text) {
  std::istringstream in(text);
  RankLocation p;
  if (!(in >> p.machine >> p.free_shm >> p.user_names_transports >> p.user_names_devices >> p.rdma)) {
    return fail(Errc::internal, "a rank does not say where it is: '" + text + "'");
  }
  for (Interface i; in >> i.name >> i.address >> i.prefix >> i.megabits; p.interfaces.push_back(i))
    if (i.prefix > 32) return fail(Errc::internal, "a rank has a network of another kind: '" + text + "'");
  return p;
}

std::vector<std::string> rdma_ports() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      if (first_line(port.path() / "state").find("ACTIVE") == std::string::npos) continue;
      found.push_back(device.path().filename().string() + ":" + port.path().filename().string());
    }
  }
  return found;
}

std::vector<std::uint32_t> leaders(const std::vector<RankLocation>& locations) {
  std::vector<std::uint32_t> first;
  std::set<std::string> seen;
  for (std::uint32_t r = 0; r < locations.size(); ++r) {
    if (seen.insert(locations[r].machine).second) first.push_back(r);
  }
  return first;
}

// ---- which network ----------------------------------------------------------------------------------------

std::vector<Network> common_networks(const std::vector<RankLocation>& locations) {
  std::vector<std::pair<std::uint32_t, Network>> found;  // the slowest rank's speed
  const std::vector<std::uint32_t> first = leaders(locations);
  for (const Interface& i : locations[0].interfaces) {
    Network network{
        .text = address_text(network_of(i)) + "/" + std::to_string(i.prefix), .why = {}, .of_rank = {}};
    std::uint32_t slowest = ~std::uint32_t{0};
    for (const RankLocation& location : locations) {
      const auto same =
          std::find_if(location.interfaces.begin(), location.interfaces.end(), [&](const Interface& other) {
            return other.prefix == i.prefix && network_of(other) == network_of(i);
          });
      if (same == location.interfaces.end()) break;
      network.of_rank.push_back(*same);
      slowest = std::min(slowest, same->megabits);
    }
    if (network.of_rank.size() != locations.size()) continue;
    // Bridges of containers and virtual machines have one address on every host, and join no hosts.
    std::set<std::uint32_t> addresses;
    for (const std::uint32_t r : first) addresses.insert(network.of_rank[r].address);
    if (addresses.size() == first.size()) found.emplace_back(slowest, std::move(network));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Network> networks;
  for (auto& [speed, network] : found) {
    network.why = network.text + (found.size() == 1 ? " is the one network of all hosts"
                                                    : " is the fastest of " + std::to_string(found.size()) +
                                                          " networks of all hosts");
    networks.push_back(std::move(network));
  }
  return networks;
}

Result<Network> choose_network(OutOfBand& all, const std::vector<RankLocation>& locations) {
  auto candidates = common_networks(locations);
  std::string why = "no network has an interface of each";
  if (locations.size() == 1) {  // kasane info: there is no peer
    if (candidates.empty())
      return fail(Errc::unsupported, "no interface but the loopback is up and has an IPv4 address");
    candidates[0].why = "it is the fastest here; a job takes the fastest network that all its hosts have";
    return std::move(candidates[0]);
  }
  for (const bool by_routes : {false, true}) {
    if (by_routes) {
      auto routed = network_by_routes(all, locations);
      KASANE_TRY(routed);
      candidates = std::move(*routed);
    }
    for (Network& network : candidates) {
      const Result<void> works = try_network(all, locations, network);
      if (works) return std::move(network);
      why = works.error().message;
    }
  }
  std::string here;
  for (const Interface& i : locations[raw(all.rank())].interfaces)
    here += (here.empty() ? "" : ", ") + text(i);
  return fail(Errc::unsupported,
              "the hosts of the job do not reach each other by IPv4 (" + why +
                  "); interfaces here: " + (here.empty() ? "none but the loopback" : here) +
                  ". Open the firewall between them, or name what joins them: UCX_NET_DEVICES");
}

// ---- words ------------------------------------------------------------------------------------------------

std::string address_text(std::uint32_t address) {
  char text[INET_ADDRSTRLEN] = {};
  const in_addr raw_address{htonl(address)};
  ::inet_ntop(AF_INET, &raw_address, text, sizeof text);
  return text;
}

std::string text(const Interface& i) {
  return i.name + " (" + address_text(i.address) + "/" + std::to_string(i.prefix) +
         (i.megabits == 0 ? "" : ", " + std::to_string(i.megabits) + " Mb/s") + ")";
}

// ---- which peers may connect ------------------------------------------------------------------------------

namespace {

/// Lets packets pass whose source is one of peers. For sockets: the offset SKF_NET_OFF is that of the IP
/// header.
std::vector<sock_filter> filter_of(const std::vector<std::uint32_t>& peers) {
  constexpr std::uint32_t kSource = static_cast<std::uint32_t>(SKF_NET_OFF) + 12;
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSource)};
  for (const std::uint32_t peer : peers) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, peer, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffffffff));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  return code;
}

bool listens(int fd) {
  int listening = 0;
  socklen_t bytes = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || listening == 0) return false;
  sockaddr_storage at{};
  bytes = sizeof at;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes) == 0 && at.ss_family == AF_INET;
}

}  // namespace

std::vector<int> listening_sockets() {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (listens(fd)) found.push_back(fd);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<void> listen_to_only(const std::vector<int>& sockets, const std::vector<std::uint32_t>& peers) {
  std::vector<sock_filter> code = filter_of(peers);
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  for (const int fd : sockets) {
    if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) {
      return fail_errno(Errc::unsupported,
                        "a listening socket of UCX takes no filter of addresses (SO_ATTACH_FILTER)");
    }
  }
  return {};
}

}  // namespace kasane::comm::ucx
