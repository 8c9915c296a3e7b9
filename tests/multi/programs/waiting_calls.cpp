// SPDX-License-Identifier: Apache-2.0
// Threads that wait in system calls for what threads of the same worker do: a call that kept its worker would
// wait for ever. Each rank has one worker. Status 1 if a result is wrong; a hang is the test's timeout.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kWord = 65536 / sizeof(int);
int* g_words;  ///< kWord of each rank

void need(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "rank %u: line %d: wrong: %s (%s)\n", kasane::rank(), line, what,
               std::strerror(errno));
  std::abort();
}
#define NEED(holds) need(holds, #holds, __LINE__)

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A thread that begins at a rank.
template <class F>
kasane::thread begin_at(std::uint32_t rank, const F& f) {
  return kasane::thread(kasane::near{g_words + rank % kasane::ranks() * kWord}, f);
}
/// Both at once, on each pair of ranks that begins with rank 0 or 1; each part may begin first.
template <class F, class G>
void both(const F& f, const G& g) {
  for (std::uint32_t r = 0; r < 2; ++r) {
    auto other = begin_at(r, g);
    f();
    other.join();
  }
  auto first = begin_at(0, f);
  auto second = begin_at(1, g);
  first.join();
  second.join();
}

constexpr int kNumbers = 50'000;

template <class Write>
void write_all(const Write& write_some, int fd) {
  std::vector<int> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 0);
  NEED(write_some(fd, reinterpret_cast<const char*>(numbers.data()), kNumbers * sizeof(int)) ==
       static_cast<ssize_t>(kNumbers * sizeof(int)));
}
template <class Read>
void read_all(const Read& read_some, int fd) {
  std::vector<int> numbers(kNumbers);
  auto* const to = reinterpret_cast<char*>(numbers.data());
  std::size_t n = 0;
  while (n < kNumbers * sizeof(int)) {
    const ssize_t k = read_some(fd, to + n, kNumbers * sizeof(int) - n);
    NEED(k > 0);
    n += static_cast<std::size_t>(k);
  }
  for (int i = 0; i < kNumbers; ++i) NEED(numbers[static_cast<std::size_t>(i)] == i);
}

ssize_t write_vectors(int fd, const char* p, std::size_t n) {
  auto* const base = const_cast<char*>(p);
  const iovec parts[3] = {{base, 5}, {base + 5, 0}, {base + 5, n - 5}};
  return ::writev(fd, parts, 3);
}
ssize_t send_message(int fd, const char* p, std::size_t n) {
  auto* const base = const_cast<char*>(p);
  iovec parts[2] = {{base, 7}, {base + 7, n - 7}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return ::sendmsg(fd, &message, 0);
}
ssize_t receive_message(int fd, char* p, std::size_t n) {
  iovec part = {p, n};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return ::recvmsg(fd, &message, 0);
}

void pipes() {
  auto ends = std::make_unique<int[]>(2);
  int* const fd = ends.get();
  NEED(::pipe(fd) == 0);
  both([=] { write_all(::write, fd[1]); }, [=] { read_all(::read, fd[0]); });
  both([=] { write_all(write_vectors, fd[1]); },
       [=] {
         read_all(
             [](int d, char* p, std::size_t n) {
               const iovec part = {p, n};
               return ::readv(d, &part, 1);
             },
             fd[0]);
       });
  // Many threads read from one pipe, a byte each, before another one writes.
  std::vector<kasane::thread> readers;
  for (std::uint32_t i = 0; i < 20; ++i)
    readers.push_back(begin_at(i, [=] {
      char byte = 0;
      NEED(::read(fd[0], &byte, 1) == 1 && byte == 'x');
    }));
  for (int i = 0; i < 20; ++i) NEED(::write(fd[1], "x", 1) == 1);
  for (auto& t : readers) t.join();
  // No waiting where the descriptor says so, nor at the end. Where calls are not caught fcntl() stays here.
  NEED(::lseek(fd[0], 0, SEEK_CUR) == -1);
  NEED(::fcntl(fd[0], F_SETFL, O_NONBLOCK) == 0);
  char byte;
  NEED(::read(fd[0], &byte, 1) == -1 && errno == EAGAIN);
  NEED(::fcntl(fd[0], F_SETFL, 0) == 0);
  both([=] { ::usleep(1000); }, [=] { NEED(::poll(nullptr, 0, 1) == 0); });
  ::close(fd[1]);
  NEED(::read(fd[0], &byte, 1) == 0);
  ::close(fd[0]);
}

void sockets() {
  auto ends = std::make_unique<int[]>(2);
  int* const fd = ends.get();
  NEED(::socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
  const auto send_some = [](int d, const char* p, std::size_t n) { return ::send(d, p, n, 0); };
  const auto receive_some = [](int d, char* p, std::size_t n) { return ::recv(d, p, n, 0); };
  both([=] { write_all(::write, fd[0]); }, [=] { read_all(::read, fd[1]); });
  both([=] { write_all(write_vectors, fd[0]); }, [=] { read_all(receive_some, fd[1]); });
  both([=] { write_all(send_some, fd[1]); }, [=] { read_all(receive_message, fd[0]); });
  both([=] { write_all(send_message, fd[0]); },
       [=] {
         std::vector<int> numbers(kNumbers);
         NEED(::recv(fd[1], numbers.data(), kNumbers * sizeof(int), MSG_WAITALL) ==
              static_cast<ssize_t>(kNumbers * sizeof(int)));
         NEED(numbers[kNumbers - 1] == kNumbers - 1);
       });
  // Its own time, and none.
  const timeval time = {0, 30'000};
  NEED(::setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
  char byte;
  const double begin = seconds();
  NEED(::read(fd[0], &byte, 1) == -1 && errno == EAGAIN && seconds() - begin >= 0.03);
  NEED(::recv(fd[0], &byte, 1, 0) == -1 && errno == EAGAIN && seconds() - begin >= 0.06);
  NEED(::recv(fd[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  ::close(fd[0]);
  NEED(::recv(fd[1], &byte, 1, 0) == 0);
  ::close(fd[1]);
  // Datagrams to a socket that has no room for them all.
  NEED(::socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0);
  both(
      [=] {
        for (int i = 0; i < 1000; ++i) NEED(::send(fd[0], &i, sizeof i, 0) == sizeof i);
      },
      [=] {
        for (int i = 0, got = -1; i < 1000; ++i)
          NEED(::recv(fd[1], &got, sizeof got, 0) == sizeof got && got == i);
      });
  ::close(fd[0]);
  ::close(fd[1]);
}

void connections() {
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  NEED(::bind(server, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 && ::listen(server, 20) == 0);
  socklen_t n = sizeof a;
  NEED(::getsockname(server, reinterpret_cast<sockaddr*>(&a), &n) == 0);
  std::vector<kasane::thread> threads;
  for (std::uint32_t i = 0; i < 8; ++i)
    threads.push_back(begin_at(i, [=] {
      const int one = ::accept(server, nullptr, nullptr);
      NEED(one >= 0);
      char text[8];
      NEED(::recv(one, text, 5, MSG_WAITALL) == 5 && std::memcmp(text, "hello", 5) == 0);
      NEED(::send(one, "bye", 3, 0) == 3);
      ::close(one);
    }));
  for (std::uint32_t i = 0; i < 8; ++i)
    threads.push_back(begin_at(i, [=] {
      const int client = ::socket(AF_INET, SOCK_STREAM, 0);
      NEED(::connect(client, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
      NEED((::fcntl(client, F_GETFL) & O_NONBLOCK) == 0);
      NEED(::send(client, "he", 2, 0) == 2);
      kasane::this_thread::yield();
      NEED(::write(client, "llo", 3) == 3);
      char text[8];
      NEED(::read(client, text, 3) == 3);
      ::close(client);
    }));
  for (auto& t : threads) t.join();
  ::close(server);
  const int nobody = ::socket(AF_INET, SOCK_STREAM, 0);
  NEED(::connect(nobody, reinterpret_cast<const sockaddr*>(&a), sizeof a) == -1 && errno == ECONNREFUSED);
  ::close(nobody);
}

void several_descriptors() {
  auto ends = std::make_unique<int[]>(2);
  int* const fd = ends.get();
  NEED(::pipe(fd) == 0);
  const int event = ::eventfd(0, 0), all = ::epoll_create1(0);
  NEED(event >= 0 && all >= 0);
  epoll_event asked{};
  asked.events = EPOLLIN;
  NEED(::epoll_ctl(all, EPOLL_CTL_ADD, event, &asked) == 0);
  // These name descriptors that are open on the thread's rank, where the first calls go.
  both([=] { NEED(::write(fd[1], "x", 1) == 1); },
       [=] {
         NEED(::lseek(fd[0], 0, SEEK_CUR) == -1);
         auto file = std::make_unique<pollfd>(pollfd{fd[0], POLLIN, 0});
         NEED(::poll(file.get(), 1, -1) == 1 && file->revents == POLLIN);
         char byte;
         NEED(::read(fd[0], &byte, 1) == 1);
       });
  both([=] { NEED(::write(fd[1], "x", 1) == 1); },
       [=] {
         NEED(::lseek(fd[0], 0, SEEK_CUR) == -1);
         fd_set set;
         FD_ZERO(&set);
         FD_SET(fd[0], &set);
         timeval time = {50, 0};
         NEED(::select(fd[0] + 1, &set, nullptr, nullptr, &time) == 1 && FD_ISSET(fd[0], &set));
         NEED(time.tv_sec >= 1 && time.tv_sec <= 50);
         char byte;
         NEED(::read(fd[0], &byte, 1) == 1);
       });
  both(
      [=] {
        const std::uint64_t one = 1;
        NEED(::write(event, &one, 8) == 8);
      },
      [=] {
        epoll_event got{};
        NEED(::epoll_wait(all, &got, 1, 50'000) == 1 && got.events == EPOLLIN);
        std::uint64_t value = 0;
        NEED(::read(event, &value, 8) == 8 && value == 1);
      });
  NEED(::lseek(fd[0], 0, SEEK_CUR) == -1);
  const double begin = seconds();
  pollfd file = {fd[0], POLLIN, 0};
  NEED(::poll(&file, 1, 20) == 0 && seconds() - begin >= 0.02);
  epoll_event got;
  NEED(::epoll_wait(all, &got, 1, 20) == 0 && seconds() - begin >= 0.04);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd[0], &set);
  timeval time = {0, 20'000};
  NEED(::select(fd[0] + 1, &set, nullptr, nullptr, &time) == 0 && seconds() - begin >= 0.06 &&
       !FD_ISSET(fd[0], &set));
  for (const int d : {fd[0], fd[1], event, all}) ::close(d);
}

void sleeps() {
  auto flag = std::make_unique<std::atomic<int>>(0);
  auto* const done = flag.get();
  const double begin = seconds();
  std::vector<kasane::thread> sleepers;
  for (std::uint32_t i = 0; i < 20; ++i)
    sleepers.push_back(begin_at(i, [=] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      NEED(done->load() == 1);
    }));
  auto other = begin_at(1, [=] { done->store(1); });
  other.join();
  for (auto& t : sleepers) t.join();
  const double slept = seconds() - begin;
  NEED(slept >= 0.2 && slept < 3);  // one after the other: 4 s on one worker
  timespec until;
  ::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  const double second = seconds();
  NEED(::clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, nullptr) == 0 && seconds() - second >= 0.99);
  rusage before, after;  // alone, a thread that sleeps keeps no core busy
  ::getrusage(RUSAGE_THREAD, &before);
  NEED(::sleep(1) == 0);
  ::getrusage(RUSAGE_THREAD, &after);
  const auto used = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  std::printf("slept 1 s with %.3f s of processor time\n", used(after) - used(before));
  NEED(used(after) - used(before) < 0.3);
}

void interruptions() {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  NEED(::sigaction(SIGUSR1, &action, nullptr) == 0);  // without SA_RESTART
  int fd[2];
  NEED(::pipe(fd) == 0);
  // A signal for this OS thread, which waits: a child of its rank sends it again and again.
  const pid_t parent = ::getpid(), thread = ::gettid(), child = ::fork();
  NEED(child >= 0);
  if (child == 0)
    for (;;) {
      ::usleep(5000);
      ::syscall(SYS_tgkill, parent, thread, SIGUSR1);
    }
  char byte;
  NEED(::read(fd[0], &byte, 1) == -1 && errno == EINTR);
  timespec time = {100, 0}, left = {0, 0};
  NEED(::nanosleep(&time, &left) == -1 && errno == EINTR && left.tv_sec >= 90);
  NEED(::poll(nullptr, 0, 100'000) == -1 && errno == EINTR);
  // With SA_RESTART poll ends, and read goes on.
  action.sa_flags = SA_RESTART;
  NEED(::sigaction(SIGUSR1, &action, nullptr) == 0);
  NEED(::poll(nullptr, 0, 100'000) == -1 && errno == EINTR);
  pollfd file = {fd[0], POLLIN, 0};
  NEED(::poll(&file, 1, -1) == -1 && errno == EINTR);
  kasane::thread writer([=] {
    for (int i = 0; i < 10; ++i) ::usleep(10'000);
    NEED(::write(fd[1], "x", 1) == 1);
  });
  NEED(::read(fd[0], &byte, 1) == 1 && byte == 'x');
  writer.join();
  NEED(::kill(child, SIGKILL) == 0);
  int status = 0;
  while (::waitpid(child, &status, 0) == -1) NEED(errno == EINTR);
  ::close(fd[0]);
  ::close(fd[1]);
}

std::atomic<int> g_broken{0};

void broken_pipe() {
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { g_broken.fetch_add(1); };
  NEED(::sigaction(SIGPIPE, &action, &before) == 0);
  int fd[2];
  NEED(::pipe(fd) == 0);
  const std::vector<char> bytes(1 << 20);
  const ssize_t room = ::fcntl(fd[1], F_GETPIPE_SZ);
  kasane::thread reader([=] {
    ::usleep(20'000);
    ::close(fd[0]);
  });
  NEED(::write(fd[1], bytes.data(), bytes.size()) == room);  // waits, and has written some
  NEED(g_broken.load() == 1);
  NEED(::write(fd[1], bytes.data(), 1) == -1 && errno == EPIPE && g_broken.load() == 2);
  reader.join();
  ::close(fd[1]);
  NEED(::sigaction(SIGPIPE, &before, nullptr) == 0);
}

void file_locks() {
  char name[] = "/dev/shm/kasane_waiting_XXXXXX";
  const int one = ::mkstemp(name), two = ::open(name, O_RDWR);
  NEED(one >= 0 && two >= 0 && ::unlink(name) == 0);
  auto flag = std::make_unique<std::atomic<int>>(0);
  auto* const done = flag.get();
  NEED(::flock(one, LOCK_EX) == 0);
  kasane::thread other([=] {
    NEED(::flock(two, LOCK_EX) == 0 && done->load() == 1);
    NEED(::flock(two, LOCK_UN) == 0);
  });
  ::usleep(10'000);
  done->store(1);
  NEED(::flock(one, LOCK_UN) == 0);
  other.join();
  ::close(one);
  ::close(two);
}

// A mutex that is libc's keeps the worker: another thread of the worker that locked it would do so for ever.
void private_mutex() {
  if (kasane::ranks() > 1) return;  // it is one rank's memory
  static auto* const mutex = static_cast<pthread_mutex_t*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::pthread_mutex_init(mutex, nullptr);
  int fd[2];
  NEED(::pipe(fd) == 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    ::usleep(100'000);
    ::_exit(::write(fd[1], "x", 1) == 1 ? 0 : 1);
  }
  kasane::thread holder([=] {
    ::pthread_mutex_lock(mutex);
    char byte;
    NEED(::read(fd[0], &byte, 1) == 1);
    ::pthread_mutex_unlock(mutex);
  });
  ::pthread_mutex_lock(mutex);
  ::pthread_mutex_unlock(mutex);
  holder.join();
  NEED(::waitpid(writer, nullptr, 0) == writer);
  ::close(fd[0]);
  ::close(fd[1]);
}

void many() {
  constexpr int kThreads = 800;
  const double begin = seconds();
  auto ends = std::make_unique<int[]>(2);
  int* const fd = ends.get();
  NEED(::pipe(fd) == 0);
  std::vector<kasane::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.push_back(begin_at(i, [=] {
      ::usleep(100'000 + 10 * (i % 7));
      if (i % 20 != 0) return;
      char byte;
      NEED(::read(fd[0], &byte, 1) == 1);
    }));
  for (int i = 0; i < kThreads / 20; ++i) NEED(::write(fd[1], "x", 1) == 1);
  for (auto& t : threads) t.join();
  for (int i = 0; i < 2; ++i) ::close(fd[i]);
  std::printf("%d threads in %.3f s\n", kThreads, seconds() - begin);
}

void children() {
  auto flag = std::make_unique<std::atomic<int>>(0);
  auto ends = std::make_unique<int[]>(2);
  auto* const state = flag.get();
  int* const fd = ends.get();
  auto other = begin_at(0, [=] {
    while (state->load() == 0) ::usleep(1000);
    state->store(2);
    NEED(::write(fd[1], "x", 1) == 1);
  });
  NEED(::pipe(fd) == 0);
  const int from = fd[0];
  const pid_t child = ::fork();  // the thread stays on its rank from here on, which has the child
  NEED(child >= 0);
  if (child == 0) {
    char byte;
    ::_exit(::read(from, &byte, 1) == 1 ? 3 : 4);
  }
  state->store(1);
  int status = 0;
  NEED(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
  NEED(state->load() == 2);
  NEED(::waitpid(-1, &status, 0) == -1 && errno == ECHILD);
  other.join();
  for (int i = 0; i < 2; ++i) ::close(fd[i]);
}

/// More memory than a small budget has, in calls that wait.
void buffers() {
  constexpr std::size_t kThreads = 200, kBytes = 192 * 1024;
  int fd[2];
  NEED(::pipe(fd) == 0);
  std::vector<kasane::thread> readers;
  for (std::size_t i = 0; i < kThreads; ++i)
    readers.emplace_back([=] {
      const auto buffer = std::make_unique<char[]>(kBytes);
      iovec parts[2] = {{buffer.get(), 1}, {buffer.get() + 1, kBytes - 1}};
      NEED((i % 2 == 0 ? ::read(fd[0], buffer.get(), kBytes) : ::readv(fd[0], parts, 2)) >= 0);
    });
  ::usleep(50'000);
  for (std::size_t i = 0; i < kThreads; ++i) {
    NEED(::write(fd[1], "x", 1) == 1);
    ::usleep(100);
  }
  ::close(fd[1]);
  for (auto& t : readers) t.join();
}

/// Threads that wait when main ends: the job lives until they have ended.
[[noreturn]] void end_main_first() {
  kasane::run([] {
    auto ends = std::make_unique<int[]>(2);
    int* const fd = ends.release();
    NEED(::pipe(fd) == 0);
    kasane::thread([fd] {
      char byte = 0;
      NEED(::read(fd[0], &byte, 1) == 1 && byte == 'x');
      std::puts("the last thread has read");
    }).detach();
    kasane::thread([fd] {
      ::usleep(200'000);
      NEED(::write(fd[1], "x", 1) == 1);
    }).detach();
  });
  ::pthread_exit(nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "end") == 0) end_main_first();
  kasane::run([&] {
    const auto owner = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    g_words = owner.get();
    const struct {
      const char* name;
      void (*run)();
    } parts[] = {{"pipes", pipes},
                 {"sockets", sockets},
                 {"connections", connections},
                 {"several", several_descriptors},
                 {"sleeps", sleeps},
                 {"children", children},
                 {"broken pipe", broken_pipe},
                 {"file locks", file_locks},
                 {"private mutex", private_mutex},
                 {"many", many},
                 {"buffers", buffers},
                 {"interruptions", interruptions}};
    for (const auto& part : parts)
      if (argc < 2 || std::strcmp(argv[1], part.name) == 0) {
        std::printf("%s\n", part.name);
        std::fflush(stdout);
        part.run();
      }
  });
}
