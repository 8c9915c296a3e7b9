// SPDX-License-Identifier: Apache-2.0
// System calls of many kinds whose memory is global and not here: it lies at other ranks, and under a small
// --dram on SSD, too. Each part says what went wrong; status 1.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace {

int g_wrong = 0;         ///< on the rank where the parts run
bool g_in_main = false;  ///< else on a thread, which forks nothing and so stays where it is

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %u, %s: wrong: %s (%s)\n", kasane::rank(), g_in_main ? "main" : "thread", what,
               std::strerror(errno));
  ++g_wrong;
}
#define CHECK(holds) check(holds, #holds)

/// n objects in pages whose owners are the ranks in turn.
template <class T>
class Away {
 public:
  explicit Away(std::size_t n = 1) : n_(n), at_(kasane::make_array<T>(n, kasane::placement::cyclic)) {}
  /// Threads on all ranks use it, so this one's copies become old.
  void send_away() {
    if (!g_in_main) return;
    auto* const bytes = reinterpret_cast<volatile char*>(at_.get());
    const std::size_t size = n_ * sizeof(T);
    kasane::run([=] {
      kasane::parallel_for(std::size_t{0}, size / 4096 + 1, [=](std::size_t block) {
        const std::size_t at = std::min(block * 4096 + 4095, size - 1);
        bytes[at] = bytes[at];
      });
    });
  }
  T* get() { return at_.get(); }
  T& operator*() { return *at_.get(); }
  T* operator->() { return at_.get(); }
  T& operator[](std::size_t i) { return at_[i]; }

 private:
  std::size_t n_;
  kasane::unique_array<T> at_;
};

/// On SSD, where there is one.
void evict(const void* at, std::size_t bytes) {
  static_cast<void>(kasane_evict(at, bytes));
  ::usleep(20000);  // it is asked for; the test is right without it, too
}

char letter(std::size_t i) { return static_cast<char>('a' + i % 23); }

std::string name(const char* end) { return "/tmp/kasane-calls-" + std::to_string(::getpid()) + end; }

char* text(Away<char>& memory, std::size_t at, const std::string& s) {
  return static_cast<char*>(std::memcpy(memory.get() + at, s.c_str(), s.size() + 1));
}

void paths() {
  Away<char> memory(64 << 10);
  char* const path = text(memory, 4096 * 3 - 9, name(".d"));  // over the end of a block
  char* const file = text(memory, 4096 * 5 - 4, name(".d") + "/file");
  char* const other = text(memory, 4096 * 7, name(".d") + "/other");
  Away<struct stat> status(40);
  CHECK(::mkdir(path, 0700) == 0);
  const int fd = ::open(file, O_CREAT | O_RDWR, 0600);
  CHECK(fd >= 0 && ::write(fd, path, 5) == 5);
  CHECK(::stat(file, &status[30]) == 0 && status[30].st_size == 5 && S_ISREG(status[30].st_mode));
  CHECK(::fstat(fd, &status[0]) == 0 && status[0].st_size == 5);
  CHECK(::access(file, R_OK) == 0 && ::rename(file, other) == 0 && ::access(file, R_OK) != 0 &&
        errno == ENOENT);
  CHECK(::symlink(other, file) == 0);
  char* const to = memory.get() + 4096 * 9 - 3;
  const auto length = ::readlink(file, to, 4096);
  CHECK(length == static_cast<ssize_t>(std::strlen(other)) &&
        std::memcmp(to, other, std::strlen(other)) == 0);
  CHECK(::unlink(file) == 0 && ::unlink(other) == 0 && ::rmdir(path) == 0);
  ::close(fd);
  memory.send_away();
  CHECK(::getcwd(memory.get() + 100, 9000) == memory.get() + 100 && memory[100] == '/');
  Away<struct statfs> system;
  CHECK(::statfs("/tmp", system.get()) == 0 && system->f_bsize > 0);
  Away<utsname> names;
  CHECK(::uname(names.get()) == 0 && std::strcmp(names->sysname, "Linux") == 0);
  Away<rusage> usage;
  CHECK(::getrusage(RUSAGE_SELF, usage.get()) == 0 && usage->ru_maxrss > 0);
  Away<rlimit> limit;
  CHECK(::getrlimit(RLIMIT_NOFILE, limit.get()) == 0 && limit->rlim_cur > 0);
}

void vectors() {
  constexpr std::size_t kBytes = 3 << 20, kEach = 11111;
  Away<char> from(kBytes), to(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) from[i] = letter(i);
  from.send_away();
  Away<iovec> list(1024);
  const int fd = ::memfd_create("vectors", 0);
  int n = 0;
  for (std::size_t at = 0; at < kBytes; at += kEach)
    list[static_cast<std::size_t>(n++)] = {from.get() + at, std::min(kEach, kBytes - at)};
  list.send_away();
  CHECK(::writev(fd, list.get(), n) == static_cast<ssize_t>(kBytes));
  for (int i = 0; i < n; ++i)
    list[static_cast<std::size_t>(i)].iov_base = to.get() + static_cast<std::size_t>(i) * kEach;
  CHECK(::preadv(fd, list.get(), n, 0) == static_cast<ssize_t>(kBytes));
  CHECK(std::equal(from.get(), from.get() + kBytes, to.get()));
  CHECK(::pwrite(fd, from.get() + 7, 100000, 1) == 100000);
  iovec own[2] = {{to.get() + 4095, 2}, {to.get() + 70000, 50000}};
  CHECK(::lseek(fd, 1, SEEK_SET) == 1 && ::readv(fd, own, 2) == 50002);
  CHECK(to[4095] == letter(7) && to[4096] == letter(8) && to[70000] == letter(9) &&
        to[119999] == letter(7 + 50001));
  ::close(fd);
}

/// A stream over which more goes than it holds, and messages.
void sockets() {
  constexpr std::size_t kBytes = 5 << 20;
  Away<char> from(kBytes), to(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) from[i] = letter(i);
  from.send_away();
  Away<int> pair(2);
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.get()) == 0);
  const int out = pair[0], in = pair[1];
  std::thread sender([&] {  // a plain OS thread
    CHECK(::send(out, from.get(), kBytes, 0) == static_cast<ssize_t>(kBytes));
    ::close(out);
  });
  std::size_t got = 0;
  for (ssize_t n = 1; n > 0; got += static_cast<std::size_t>(n))
    n = ::recv(in, to.get() + got, kBytes - got, 0);
  sender.join();
  CHECK(got == kBytes && std::equal(from.get(), from.get() + kBytes, to.get()));
  ::close(in);

  CHECK(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.get()) == 0);
  Away<msghdr> header(2);
  Away<iovec> part(4);
  Away<char> control(CMSG_SPACE(sizeof(int)));
  part[0] = {from.get() + 10, 5000};
  part[1] = {from.get() + 100000, 3000};
  const int sent = ::dup(2);
  header[0] = {};
  header[0].msg_iov = part.get();
  header[0].msg_iovlen = 2;
  header[0].msg_control = control.get();
  header[0].msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* const c = CMSG_FIRSTHDR(&header[0]);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &sent, sizeof sent);
  header.send_away();
  part.send_away();
  CHECK(::sendmsg(pair[0], header.get(), 0) == 8000);
  std::memset(to.get(), 0, kBytes);
  part[2] = {to.get() + 50, 6000};
  part[3] = {to.get() + 200000, 6000};
  header[1] = {};
  header[1].msg_iov = part.get() + 2;
  header[1].msg_iovlen = 2;
  header[1].msg_control = control.get();
  header[1].msg_controllen = CMSG_SPACE(sizeof(int));
  CHECK(::recvmsg(pair[1], &header[1], 0) == 8000);
  CHECK(std::equal(from.get() + 10, from.get() + 5010, to.get() + 50) &&
        std::equal(from.get() + 100000, from.get() + 101000, to.get() + 5050) &&
        to[200000] == letter(101000));
  int received = -1;
  if (const cmsghdr* const r = CMSG_FIRSTHDR(&header[1]))
    std::memcpy(&received, CMSG_DATA(r), sizeof received);
  CHECK(::close(received) == 0);
  ::close(sent);
  ::close(pair[0]);
  ::close(pair[1]);
}

void addresses() {
  Away<sockaddr_in> address(2);
  Away<socklen_t> length;
  Away<int> option;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  address[0] = {};
  address[0].sin_family = AF_INET;
  address[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.send_away();
  CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address[0]), sizeof(sockaddr_in)) == 0 &&
        ::listen(fd, 1) == 0);
  *length = sizeof(sockaddr_in);
  length.send_away();
  CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address[1]), length.get()) == 0 &&
        address[1].sin_port != 0 && *length == sizeof(sockaddr_in));
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  CHECK(::connect(client, reinterpret_cast<sockaddr*>(&address[1]), sizeof(sockaddr_in)) == 0);
  *length = sizeof(sockaddr_in);
  const int server = ::accept(fd, reinterpret_cast<sockaddr*>(&address[0]), length.get());
  CHECK(server >= 0 && address[0].sin_port != address[1].sin_port && address[0].sin_port != 0);
  *length = sizeof(int);
  CHECK(::getsockopt(client, SOL_SOCKET, SO_TYPE, option.get(), length.get()) == 0 && *option == SOCK_STREAM);
  *option = 1;
  CHECK(::setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, option.get(), sizeof(int)) == 0);
  ::close(client);
  ::close(server);
  ::close(fd);
}

void waits() {
  Away<int> pipes(2);
  CHECK(::pipe(pipes.get()) == 0);
  const int in = pipes[0], out = pipes[1];
  Away<pollfd> poll(3);
  poll[2] = {in, POLLIN, 0};
  poll.send_away();
  CHECK(::poll(poll.get() + 2, 1, 0) == 0);
  Away<char> bytes(70000);
  bytes[69999] = 'x';
  bytes.send_away();
  CHECK(::write(out, bytes.get() + 69999, 1) == 1);
  CHECK(::poll(poll.get() + 2, 1, 1000) == 1 && poll[2].revents == POLLIN);
  Away<fd_set> set;
  FD_ZERO(set.get());
  FD_SET(in, set.get());
  Away<timeval> limit;
  *limit = {1, 0};
  set.send_away();
  CHECK(::select(in + 1, set.get(), nullptr, nullptr, limit.get()) == 1 && FD_ISSET(in, set.get()));
  const int epoll = ::epoll_create1(0);
  Away<epoll_event> event(2);
  event[0].events = EPOLLIN;
  event[0].data.u64 = 42;
  event.send_away();
  CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, in, &event[0]) == 0 &&
        ::epoll_wait(epoll, &event[1], 1, 1000) == 1 && event[1].data.u64 == 42);
  CHECK(::read(in, bytes.get() + 4095, 1000) == 1 && bytes[4095] == 'x');
  // A reader waits long, and threads use its memory meanwhile.
  if (g_in_main) {
    char* const at = bytes.get();
    at[100] = 0;
    std::thread reader([=] { check(::read(in, at, 60) == 1 && at[0] == 'y', "a read that waits"); });
    kasane::run([=] {
      auto mutex = std::make_unique<kasane::mutex>();
      kasane::parallel_for(0, 200, [at, m = mutex.get()](int) {
        const std::lock_guard lock(*m);
        at[100] = static_cast<char>(at[100] + 1);
      });
    });
    CHECK(::write(out, "y", 1) == 1);
    reader.join();
    CHECK(at[100] == static_cast<char>(200));
  }
  ::close(epoll);
  ::close(in);
  ::close(out);
  Away<timespec> time(2);
  time[0] = {0, 1000000};
  time.send_away();
  CHECK(::nanosleep(&time[0], &time[1]) == 0);
}

void processes() {
  Away<char> memory(64 << 10);
  Away<char*> arguments(4);
  arguments[0] = text(memory, 4096 - 3, "/bin/sh");
  arguments[1] = text(memory, 8192, "-c");
  arguments[2] = text(memory, 12288, "exit 7");
  arguments[3] = nullptr;
  memory.send_away();
  arguments.send_away();
  Away<pid_t> child;
  Away<int> status;
  evict(memory.get(), 64 << 10);
  evict(arguments.get(), 4 * sizeof(char*));
  CHECK(::posix_spawn(child.get(), arguments[0], nullptr, nullptr, arguments.get(), environ) == 0);
  CHECK(::waitpid(*child, status.get(), 0) == *child && WIFEXITED(*status) && WEXITSTATUS(*status) == 7);
  char* const command = text(memory, 20000, "exit 5");
  evict(memory.get(), 64 << 10);
  CHECK(WEXITSTATUS(std::system(command)) == 5);
  FILE* const p = ::popen("echo one; echo two", "r");
  char line[100] = "";
  CHECK(p != nullptr && std::fgets(line, sizeof line, p) != nullptr && std::strcmp(line, "one\n") == 0);
  CHECK(std::fgets(line, sizeof line, p) != nullptr && std::strcmp(line, "two\n") == 0 && ::pclose(p) == 0);
  const pid_t forked = ::vfork();
  if (forked == 0) {
    ::execl("/bin/sh", "sh", "-c", "exit 3", static_cast<char*>(nullptr));
    ::_exit(99);
  }
  int how = 0;
  CHECK(forked > 0 && ::waitpid(forked, &how, 0) == forked && WEXITSTATUS(how) == 3);
}

void wild_stays_wild() {
  const auto all = kasane::make_array<char>(1 << 16);
  auto* const wild =
      reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(all.get()) + (std::uintptr_t{8} << 30));
  const int fd = ::memfd_create("wild", 0);
  errno = 0;
  CHECK(::write(fd, wild, 8) == -1 && errno == EFAULT);
  CHECK(::write(fd, reinterpret_cast<char*>(16), 8) == -1 && errno == EFAULT);
  CHECK(::open(wild, O_RDONLY) == -1 && errno == EFAULT);
  iovec list[1] = {{wild, 8}};
  CHECK(::writev(fd, list, 1) == -1 && errno == EFAULT);
  CHECK(::writev(fd, reinterpret_cast<iovec*>(16), 1) == -1 && errno == EFAULT);
  CHECK(::read(fd, wild, 0) == 0);
  ::close(fd);
}

/// Handlers run while a call waits, and their own calls work.
Away<char>* g_for_handler = nullptr;
int g_pipe = -1;
void on_alarm(int) { (void)!::write(g_pipe, g_for_handler->get(), 5000); }

void signals() {
  Away<char> from(8192), to(8192);
  std::memset(from.get(), 'q', 8192);
  from.send_away();
  int pipes[2];
  CHECK(::pipe(pipes) == 0);
  g_for_handler = &from;
  g_pipe = pipes[1];
  struct sigaction action = {};
  action.sa_handler = on_alarm;
  ::sigfillset(&action.sa_mask);
  CHECK(::sigaction(SIGALRM, &action, nullptr) == 0);
  const itimerval soon = {{0, 0}, {0, 20000}};
  CHECK(::setitimer(ITIMER_REAL, &soon, nullptr) == 0);
  std::size_t got = 0;
  while (got < 5000) {
    const ssize_t n =
        ::read(pipes[0], to.get(), 8192);  // SIGALRM interrupts it, on this OS thread or another
    if (n > 0) got += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR) break;
  }
  CHECK(got == 5000 && to[0] == 'q');
  sigset_t all, now;
  ::sigfillset(&all);
  CHECK(::pthread_sigmask(SIG_BLOCK, &all, nullptr) == 0);
  from.send_away();
  from[77] = 1;
  CHECK(::pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0 && ::sigismember(&now, SIGUSR1) == 1 &&
        ::sigismember(&now, SIGSEGV) == 0);
  CHECK(::pthread_sigmask(SIG_UNBLOCK, &all, nullptr) == 0);
  ::close(pipes[0]);
  ::close(pipes[1]);
}

void all_parts() {
  paths();
  vectors();
  sockets();
  addresses();
  waits();
  processes();
  wild_stays_wild();
  signals();
}

}  // namespace

int main() {
  g_in_main = true;
  all_parts();
  int wrong = g_wrong;
  g_in_main = false;
  kasane::run([&] {
    g_wrong = 0;
    g_in_main = false;
    all_parts();
    wrong += g_wrong;
  });
  return wrong == 0 ? 0 : 1;
}
