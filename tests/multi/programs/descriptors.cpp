// SPDX-License-Identifier: Apache-2.0
// Descriptors that one rank opens and threads of others use: files, pipes, sockets. Status 1 if a number is
// given twice, or a byte is wrong.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kWord = 65536 / sizeof(int);

/// A thread that begins at a rank.
template <class F>
void at(int* words, std::uint32_t rank, const F& f) {
  kasane::thread t(kasane::near{words + rank * kWord}, f);
  t.join();
}

void need(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %u: wrong: %s (%s)\n", kasane::rank(), what, std::strerror(errno));
  std::abort();
}
#define NEED(holds) need(holds, #holds)

}  // namespace

int main() {
  const std::uint32_t ranks = kasane::ranks();
  const int before = ::open("/dev/null", O_WRONLY);  // main's, so rank 0's
  kasane::run([&] {
    const auto owner = kasane::make_array<int>(ranks * kWord, kasane::placement::block);
    int* const words = owner.get();
    auto opened = std::make_unique<int[]>(6 * ranks);
    int* const fd = opened.get();
    const std::string name = "/tmp/kasane-descriptors-" + std::to_string(::getpid()) + "-";

    // Each rank opens a file, a pair of pipes, a pair of sockets, and a copy.
    for (std::uint32_t r = 0; r < ranks; ++r) {
      at(words, r, [=] {
        const std::string path = name + std::to_string(r);
        int* const mine = fd + 6 * r;
        mine[0] = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        NEED(mine[0] >= 0 && ::unlink(path.c_str()) == 0 && ::fcntl(mine[0], F_GETFD) == FD_CLOEXEC);
        NEED(::pipe(mine + 1) == 0 && ::fcntl(mine[1], F_GETFD) == 0);
        NEED(::socketpair(AF_UNIX, SOCK_STREAM, 0, mine + 3) == 0);
        mine[5] = ::dup(mine[0]);
        NEED(mine[5] >= 0);
      });
    }
    std::set<int> numbers;
    for (std::uint32_t i = 0; i < 6 * ranks; ++i) numbers.insert(fd[i]);
    NEED(numbers.size() == 6 * ranks && numbers.count(before) == 0);

    // All others use them.
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t r = 0; r < ranks; ++r) {
        at(words, from, [=] {
          const int* const f = fd + 6 * r;
          char text[40];
          const int n = std::snprintf(text, sizeof text, "%u writes to %u\n", from, r);
          NEED(::lseek(f[0], 0, SEEK_END) >= 0 && ::write(f[0], text, static_cast<std::size_t>(n)) == n);
          NEED(::write(f[2], text, static_cast<std::size_t>(n)) == n);
          NEED(::send(f[3], text, static_cast<std::size_t>(n), 0) == n);
          NEED(::write(before, text, static_cast<std::size_t>(n)) == n);
          NEED(::write(2, text, 0) == 0);  // everybody's
        });
      }
    }
    // All at once: a thread on its way may be stolen by the rank that it comes from.
    for (int round = 0; round < 20; ++round) {
      kasane::parallel_for(
          std::uint32_t{0}, 8 * ranks,
          [=](std::uint32_t i) {
            kasane::this_thread::move_near(words + i % ranks * kWord);
            NEED(::write(before, words, 1) == 1 && ::lseek(fd[6 * (i / 8)], 0, SEEK_CUR) >= 0);
          },
          1);
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      at(words, (r + 1) % ranks, [=] {
        const int* const f = fd + 6 * r;
        std::string all;
        for (std::uint32_t from = 0; from < ranks; ++from)
          all += std::to_string(from) + " writes to " + std::to_string(r) + "\n";
        std::vector<char> got(all.size() + 10);
        struct stat status;
        NEED(::fstat(f[5], &status) == 0 && status.st_size == static_cast<off_t>(all.size()));
        NEED(::pread(f[5], got.data(), got.size(), 0) == static_cast<ssize_t>(all.size()));
        NEED(std::memcmp(got.data(), all.data(), all.size()) == 0);
        NEED(::read(f[1], got.data(), got.size()) == static_cast<ssize_t>(all.size()));
        NEED(std::memcmp(got.data(), all.data(), all.size()) == 0);
        NEED(::recv(f[4], got.data(), got.size(), 0) == static_cast<ssize_t>(all.size()));
        for (int i = 0; i < 6; ++i) NEED(::close(f[i]) == 0);
        NEED(::close(f[0]) == -1 && errno == EBADF);
      });
    }
  });
  return ::close(before) == 0 ? 0 : 1;
}
