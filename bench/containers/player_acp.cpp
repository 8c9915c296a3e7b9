// SPDX-License-Identifier: Apache-2.0
// The data library of ACP (version 3): rank 0 plays, on structures that lie at rank 1 of the same host. The
// process becomes both ranks itself, as ACP's acprun starts them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <acp.h>  // needs the types above

#include "containers/peer.h"

namespace {

using namespace kasane::bench::containers;
using U64 = std::uint64_t;
constexpr int kOwner = 1;

/// Two that nobody uses now.
std::vector<std::string> free_ports() {
  std::vector<std::string> ports;
  int sockets[2];
  for (int& s : sockets) {
    s = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    ::bind(s, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::getsockname(s, reinterpret_cast<sockaddr*>(&at), &bytes);
    ports.push_back(std::to_string(ntohs(at.sin_port)));
  }
  for (const int s : sockets) ::close(s);
  return ports;
}

/// False: it has failed. Of rank 1 it does not return: its threads serve rank 0.
bool start(char* program, std::size_t entries) {
  const std::vector<std::string> ports = free_ports();
  const pid_t parent = ::getpid();
  const std::string task = std::to_string(parent);
  const std::size_t rank = ::fork() == 0 ? 1 : 0;
  if (rank == 1) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
  }
  std::string words[] = {"--acp-taskid", task, "--acp-myrank", std::to_string(rank), "--acp-nprocs", "2",
                         "--acp-host-remote", "127.0.0.1", "--acp-port-local", ports[rank],
                         "--acp-port-remote", ports[1 - rank],
                         // of the data library's memory; untouched pages cost nothing
                         "--acp-size-smem-dl", std::to_string((entries * 512 + (64 << 20)) & ~4095ull)};
  std::vector<char*> argv{program};
  for (std::string& w : words) argv.push_back(w.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  char** all = argv.data();
  if (acp_init(&argc, &all) != 0) return false;
  while (rank == 1) ::pause();
  return true;
}

/// Where rank 0 has what it gives to a call, and gets from one.
struct Buffer {
  acp_ga_t ga = acp_malloc(kSpan * sizeof(U64), 0);
  U64* words = static_cast<U64*>(acp_query_address(ga));
  [[nodiscard]] acp_element_t word(std::size_t i) const { return {ga + i * sizeof(U64), sizeof(U64)}; }
  acp_ga_t with(U64 x) const { return words[0] = x, ga; }
  [[nodiscard]] U64 get(acp_ga_t from) const {
    acp_copy(ga, from, sizeof(U64), ACP_HANDLE_NULL);
    acp_complete(ACP_HANDLE_ALL);
    return words[0];
  }
  void put(acp_ga_t to, U64 x) const {
    acp_copy(to, with(x), sizeof(U64), ACP_HANDLE_NULL);
    acp_complete(ACP_HANDLE_ALL);
  }
};

struct Map {
  Buffer b;
  acp_map_t map;
  explicit Map(std::size_t entries) : map(acp_create_map(1, &kOwner, static_cast<int>(entries), kOwner)) {}
  [[nodiscard]] acp_pair_t pair(U64 k, U64 v) const {
    b.words[0] = k, b.words[1] = v;
    return {b.word(0), b.word(1)};
  }
  bool insert(U64 k, U64 v) const { return acp_insert_map(map, pair(k, v)) != 0; }
  U64 find(U64 k) const { return acp_retrieve_map(map, pair(k, 0)) != 0 ? b.words[1] : 0; }
  bool contains(U64 k) const { return acp_find_map(map, pair(k, 0).first).elem != ACP_GA_NULL; }
  bool erase(U64 k) const { return acp_remove_map(map, pair(k, 0).first), true; }
};

struct Vector {
  Buffer b;
  acp_vector_t v = acp_create_vector(0, kOwner);
  void push_back(U64 x) const { acp_push_back_vector(v, b.with(x), sizeof x); }
  [[nodiscard]] acp_ga_t at(std::size_t i) const {
    return acp_at_vector(v, static_cast<int>(i * sizeof(U64)));
  }
  U64 get(std::size_t i) const { return b.get(at(i)); }
  void put(std::size_t i, U64 x) const { b.put(at(i), x); }
  U64 sum() const {
    U64 s = 0;
    for (std::size_t i = 0; i < acp_size_vector(v) / sizeof(U64); ++i) s += get(i);
    return s;
  }
  void append(const U64* xs, std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) b.words[i] = xs[i];
    acp_push_back_vector(v, b.ga, n * sizeof(U64));
  }
  void clear() const { acp_clear_vector(v); }
};

struct Deque {
  Buffer b;
  acp_deque_t d = acp_create_deque(0, kOwner);
  void push_back(U64 x) const { acp_push_back_deque(d, b.with(x), sizeof x); }
  void push_front(U64 x) const { acp_push_front_deque(d, b.with(x), sizeof x); }
  U64 pop_front() const {
    const U64 x = b.get(acp_at_deque(d, 0));
    return acp_pop_front_deque(d, sizeof x), x;
  }
  U64 pop_back() const {
    const U64 x = b.get(acp_at_deque(d, static_cast<int>(acp_size_deque(d) - sizeof(U64))));
    return acp_pop_back_deque(d, sizeof x), x;
  }
};

struct List {
  Buffer b;
  acp_list_t l = acp_create_list(kOwner);
  using It = acp_list_it_t;
  It push_back(U64 x) const { return insert(acp_end_list(l), x); }
  It push_front(U64 x) const { return insert(acp_begin_list(l), x); }
  It insert(It it, U64 x) const { return b.with(x), acp_insert_list(it, b.word(0), kOwner); }
  void erase(It it) const { acp_erase_list(it); }
  U64 pop_front() const {
    const U64 x = b.get(acp_dereference_list_it(acp_begin_list(l)).ga);
    return acp_pop_front_list(l), x;
  }
  U64 sum() const {
    U64 s = 0;
    It it = acp_begin_list(l);
    for (std::size_t n = acp_size_list(l); n != 0; --n, it = acp_increment_list_it(it))
      s += b.get(acp_dereference_list_it(it).ga);
    return s;
  }
};

}  // namespace

int main(int argc, char** argv) {
  Order order;
  if (!parse(argc, argv, order) || !start(argv[0], order.entries)) return 2;
  Meter<StandardThreads> m(order, true);
  if (order.group == "map") {
    Map map(order.entries);
    play_map(map, m);
  } else if (order.group == "vector") {
    Vector v;
    play_vector(v, m);
  } else if (order.group == "deque") {
    Deque d;
    play_deque(d, m);
  } else if (order.group == "list") {
    List l;
    play_list(l, m);
  }
  const int status = m.print();
  ::unlink(("/dev/shm/acpbludp_task" + std::to_string(::getpid()) + "_gateway0").c_str());  // ACP leaves it
  std::fflush(nullptr);
  ::_exit(status);  // acp_finalize may wait for ever
}
