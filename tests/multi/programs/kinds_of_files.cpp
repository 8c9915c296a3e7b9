// SPDX-License-Identifier: Apache-2.0
// Files, sockets and children of threads on all ranks; `lines` works on more memory than a small --dram.
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>

#include "cases.h"

using cases::elsewhere;
using cases::on_ranks;

extern char** environ;

namespace {

std::string folder;
std::string path(const std::string& name) { return folder + "/" + name; }

// evicts what it can: with --dram, all older memory leaves
void press() {
  static std::vector<char>& v = *new std::vector<char>(96u << 20);
  for (std::size_t i = 0; i < v.size(); i += 4096) v[i] = static_cast<char>(v[i] + 1);
}

void whole_file() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      const std::string name = path("whole" + std::to_string(i));
      std::vector<int> out(1 << 20), in(1 << 20);
      std::iota(out.begin(), out.end(), i);
      std::FILE* f = std::fopen(name.c_str(), "wb");
      EXPECT_EQ(std::fwrite(out.data(), sizeof(int), out.size(), f), out.size());
      EXPECT_EQ(std::fclose(f), 0);
      const int fd = ::open(name.c_str(), O_RDONLY);
      std::size_t got = 0;
      while (got < in.size() * 4) {
        const ssize_t n = ::read(fd, reinterpret_cast<char*>(in.data()) + got, in.size() * 4 - got);
        if (n <= 0) break;
        got += static_cast<std::size_t>(n);
      }
      ::close(fd);
      EXPECT(in == out);
      std::ifstream s(name, std::ios::binary);
      std::fill(in.begin(), in.end(), 0);
      s.read(reinterpret_cast<char*>(in.data()), static_cast<std::streamsize>(in.size() * 4));
      EXPECT(s.good() && in == out);
    });
  });
}
void lines() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      const std::string name = path("lines" + std::to_string(i));
      {
        std::ofstream out(name);
        for (int k = 0; k < 5000; ++k) out << "line " << k << " of " << i << '\n';
      }
      if (i == 0) press();
      std::ifstream in(name);
      int n = 0;
      for (std::string line; std::getline(in, line); ++n)
        if (line != "line " + std::to_string(n) + " of " + std::to_string(i)) break;
      EXPECT_EQ(n, 5000);
      std::FILE* f = std::fopen(name.c_str(), "r");
      char* line = nullptr;
      std::size_t size = 0;
      for (n = 0; ::getline(&line, &size, f) > 0;) ++n;
      EXPECT_EQ(n, 5000);
      std::free(line);
      std::rewind(f);
      char buffer[100];
      for (n = 0; std::fgets(buffer, sizeof buffer, f) != nullptr;) ++n;
      EXPECT_EQ(n, 5000);
      std::rewind(f);
      int a = 0, b = 0;
      for (n = 0; std::fscanf(f, "line %d of %d\n", &a, &b) == 2;) ++n;
      EXPECT_EQ(n, 5000);
      std::fclose(f);
    });
  });
}
void vectors_of_buffers() {
  kasane::run([] {
    const int fd = ::open(path("vectors").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    on_ranks(8, [fd](int i) {
      std::vector<char> a(70000, static_cast<char>('a' + i)), b(30000, static_cast<char>('A' + i));
      const iovec v[2] = {{a.data(), a.size()}, {b.data(), b.size()}};
      EXPECT_EQ(::pwritev(fd, v, 2, i * 100000), 100000);
      std::vector<char> c(50000), d(50000);
      const iovec w[2] = {{c.data(), c.size()}, {d.data(), d.size()}};
      EXPECT_EQ(::preadv(fd, w, 2, i * 100000), 100000);
      EXPECT(c[0] == 'a' + i && c[49999] == 'a' + i && d[19999] == 'a' + i && d[20000] == 'A' + i);
    });
    struct stat s;
    EXPECT(::fstat(fd, &s) == 0 && s.st_size == 800000);
    ::close(fd);
  });
}
void mapped() {
  const int fd = ::open(path("mapped").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  EXPECT_EQ(::ftruncate(fd, 1 << 20), 0);
  void* const p = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  std::memset(p, 'm', 1 << 20);
  kasane::run([&] {
    std::vector<char> copy(1 << 20);
    std::memcpy(copy.data(), p, copy.size());
    elsewhere([&] { EXPECT_EQ(std::count(copy.begin(), copy.end(), 'm'), 1 << 20); });
    std::vector<char> again(1 << 20);
    EXPECT_EQ(::pread(fd, again.data(), again.size(), 0), 1 << 20);
    EXPECT(again == copy);
  });
  ::munmap(p, 1 << 20);
  ::close(fd);
}
void copied_file() {
  kasane::run([] {
    std::vector<char> text(200000, 'c');
    on_ranks(2, [&](int i) {
      const int from = ::open(path("from" + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
      const int to = ::open(path("to" + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
      EXPECT_EQ(::write(from, text.data(), text.size()), 200000);
      off_t offset = 0;
      EXPECT_EQ(::sendfile(to, from, &offset, 200000), 200000);
      EXPECT_EQ(offset, 200000);
      loff_t start = 0;
      EXPECT_EQ(::copy_file_range(from, &start, to, nullptr, 100000, 0), 100000);
      struct stat s;
      EXPECT(::fstat(to, &s) == 0 && s.st_size == 300000);
      ::close(from);
      ::close(to);
    });
  });
}
void sockets() {
  kasane::run([] {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    elsewhere([&] {
      std::string text(5000, 's');
      iovec v = {text.data(), text.size()};
      msghdr m = {};
      m.msg_iov = &v;
      m.msg_iovlen = 1;
      EXPECT_EQ(::sendmsg(pair[0], &m, 0), 5000);
    });
    std::vector<char> buffer(10000);
    pollfd p = {pair[1], POLLIN, 0};
    EXPECT_EQ(::poll(&p, 1, 1000), 1);
    EXPECT_EQ(::recv(pair[1], buffer.data(), buffer.size(), 0), 5000);
    EXPECT_EQ(buffer[4999], 's');
    ::close(pair[0]);
    ::close(pair[1]);
    const int server = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(::listen(server, 5), 0);
    socklen_t n = sizeof a;
    EXPECT_EQ(::getsockname(server, reinterpret_cast<sockaddr*>(&a), &n), 0);
    on_ranks(2, [&](int i) {
      std::vector<char> text(100000, 't');
      if (i == 1) {
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
        EXPECT_EQ(::send(client, text.data(), text.size(), 0), 100000);
        ::close(client);
      } else {
        sockaddr_in from;
        socklen_t size = sizeof from;
        const int one = ::accept(server, reinterpret_cast<sockaddr*>(&from), &size);
        EXPECT(one >= 0 && size == sizeof from && from.sin_family == AF_INET);
        std::size_t got = 0;
        for (ssize_t k; (k = ::recv(one, text.data(), text.size(), 0)) > 0;)
          got += static_cast<std::size_t>(k);
        EXPECT_EQ(got, 100000u);
        ::close(one);
      }
    });
    ::close(server);
  });
}
void events() {
  kasane::run([] {
    const int event = ::eventfd(0, 0), timer = ::timerfd_create(CLOCK_MONOTONIC, 0),
              epoll = ::epoll_create1(0);
    auto e = std::make_unique<epoll_event>();
    e->events = EPOLLIN;
    e->data.u64 = 7;
    EXPECT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, event, e.get()), 0);
    e->data.u64 = 8;
    EXPECT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, timer, e.get()), 0);
    elsewhere([&] {
      auto one = std::make_unique<std::uint64_t>(5);
      EXPECT_EQ(::write(event, one.get(), 8), 8);
    });
    std::vector<epoll_event> got(4);
    EXPECT_EQ(::epoll_wait(epoll, got.data(), 4, 1000), 1);
    EXPECT_EQ(got[0].data.u64, 7u);
    std::uint64_t value = 0;
    EXPECT_EQ(::read(event, &value, 8), 8);
    EXPECT_EQ(value, 5u);
    auto when = std::make_unique<itimerspec>();
    when->it_value.tv_nsec = 1000000;
    EXPECT_EQ(::timerfd_settime(timer, 0, when.get(), nullptr), 0);
    EXPECT_EQ(::epoll_wait(epoll, got.data(), 4, 2000), 1);
    EXPECT_EQ(got[0].data.u64, 8u);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(timer, &set);
    timeval t = {1, 0};
    EXPECT_EQ(::select(timer + 1, &set, nullptr, nullptr, &t), 1);
    ::close(event);
    ::close(timer);
    ::close(epoll);
  });
}
void children() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      std::string command = "echo child " + std::to_string(i) + "; exit " + std::to_string(i);
      std::FILE* f = ::popen(command.c_str(), "r");
      std::vector<char> line(100);
      EXPECT(std::fgets(line.data(), 100, f) != nullptr);
      EXPECT_EQ(line[6] - '0', i);
      EXPECT_EQ(WEXITSTATUS(::pclose(f)), i);
      const std::string name = path("child" + std::to_string(i));
      EXPECT_EQ(std::system(("printf %s text > " + name).c_str()), 0);
      std::vector<std::string> words = {"/bin/sh", "-c", "test \"$K\" = v && exit 3", "sh"};
      std::vector<char*> argv;
      for (std::string& w : words) argv.push_back(w.data());
      argv.push_back(nullptr);
      std::string variable = "K=v";
      std::vector<char*> environment = {variable.data(), nullptr};
      pid_t child = 0;
      EXPECT_EQ(::posix_spawn(&child, words[0].c_str(), nullptr, nullptr, argv.data(), environment.data()),
                0);
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(WEXITSTATUS(status), 3);
    });
  });
}
void calls_of_libraries() {
  kasane::run([] {
    on_ranks(4, [](int) {
      auto name = std::make_unique<utsname>();
      EXPECT_EQ(::uname(name.get()), 0);
      EXPECT(std::strcmp(name->sysname, "Linux") == 0);
      std::vector<char> cwd(4096), random(1000);
      EXPECT(::getcwd(cwd.data(), cwd.size()) != nullptr);
      EXPECT_EQ(::getrandom(random.data(), random.size(), 0), 1000);
      auto found = std::make_unique<glob_t>();
      const std::string pattern = "/et[c]";
      EXPECT_EQ(::glob(pattern.c_str(), 0, nullptr, found.get()), 0);
      EXPECT(std::strcmp(found->gl_pathv[0], "/etc") == 0);
      ::globfree(found.get());
      DIR* d = ::opendir("/proc/self/task");
      int n = 0;
      while (::readdir(d) != nullptr) ++n;
      EXPECT(n >= 3);
      ::closedir(d);
      auto hints = std::make_unique<addrinfo>();
      hints->ai_flags = AI_NUMERICHOST;
      addrinfo* list = nullptr;
      const std::string host = "127.0.0.1", port = "80";
      EXPECT_EQ(::getaddrinfo(host.c_str(), port.c_str(), hints.get(), &list), 0);
      ::freeaddrinfo(list);
      std::vector<char> link(4096);
      EXPECT(::readlink("/proc/self/exe", link.data(), link.size()) > 0);
      EXPECT(::realpath("/proc/self/exe", link.data()) != nullptr);
      timespec t;
      EXPECT_EQ(::clock_gettime(CLOCK_REALTIME, &t), 0);
      char* copy = ::strdup("copy");
      EXPECT(std::strcmp(copy, "copy") == 0);
      std::free(copy);
      std::string formatted(100, ' ');
      EXPECT_EQ(std::snprintf(formatted.data(), 100, "%s", cwd.data()),
                static_cast<int>(std::strlen(cwd.data())));
    });
  });
}
void errors_of_calls() {
  kasane::run([] {
    on_ranks(4, [](int) {
      std::string none = path("none/at/all");
      errno = 0;
      EXPECT(::open(none.c_str(), O_RDONLY) == -1 && errno == ENOENT);
      std::ifstream in(none);
      EXPECT(!in);
      EXPECT(std::fopen(none.c_str(), "r") == nullptr && errno == ENOENT);
      EXPECT(::read(-1, none.data(), 1) == -1 && errno == EBADF);
      EXPECT(::close(12345) == -1 && errno == EBADF);
    });
  });
}
// A descriptor of each rank, used by all.
void shared_descriptors() {
  kasane::run([] {
    std::vector<int> fds(4);
    on_ranks(4, [&](int i) {
      fds[static_cast<std::size_t>(i)] =
          ::open(path("shared" + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    });
    on_ranks(4, [&](int i) {
      for (const int fd : fds)
        for (int k = 0; k < 25; ++k) {
          const std::string line = "from " + std::to_string(i) + "\n";
          EXPECT_EQ(::write(fd, line.data(), line.size()), 7);
        }
    });
    for (const int fd : fds) {
      EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 700);
      std::vector<char> text(1000);
      EXPECT_EQ(::pread(fd, text.data(), 1000, 0), 700);
      EXPECT_EQ(std::count(text.begin(), text.end(), '3'), 25);
      EXPECT_EQ(::close(fd), 0);
    }
  });
}
// opened in main, before the ranks' threads use it
void descriptor_of_main() {
  const int fd = ::open(path("of main").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
  kasane::run([&] {
    on_ranks(4, [&](int i) {
      const std::string line(10, static_cast<char>('0' + i));
      EXPECT_EQ(::write(fd, line.data(), 10), 10);
    });
  });
  EXPECT_EQ(::lseek(fd, 0, SEEK_END), 40);
  ::close(fd);
}
constexpr cases::Case kAll[] = {
    {"whole-file", whole_file},
    {"lines", lines},
    {"vectors", vectors_of_buffers},
    {"mapped", mapped},
    {"copied", copied_file},
    {"sockets", sockets},
    {"events", events},
    {"children", children},
    {"calls", calls_of_libraries},
    {"errors", errors_of_calls},
    {"shared-descriptors", shared_descriptors},
    {"descriptor-of-main", descriptor_of_main},
};

}  // namespace

int main(int argc, char** argv) {
  char name[] = "/tmp/kasane-io-XXXXXX";
  folder = ::mkdtemp(name);
  const int status = cases::main_of(argc, argv, kAll);
  (void)!std::system(("rm -rf " + folder).c_str());
  return status;
}
