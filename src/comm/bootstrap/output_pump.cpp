// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/output_pump.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace kasane::comm {
namespace {

constexpr std::size_t kHighWater = 256 * 1024;   ///< a sink with so many bytes waiting takes no more
constexpr std::size_t kLongestLine = 64 * 1024;  ///< longer lines are cut, so that memory use is bounded

void close_end(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

Result<OutputPump> OutputPump::create(std::uint32_t ranks, const diagnostics::JobStatus& status) {
  OutputPump pump;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::size_t sink = 0; sink < 2; ++sink) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) {
        return fail_errno(Errc::limit, "pipe for the output of rank " + std::to_string(r) +
                                           " (four descriptors a rank; raise the limit with ulimit -n)");
      }
      pump.sources_.push_back({.rank = Rank{r},
                               .sink = sink,
                               .in = ends[0],
                               .out = ends[1],
                               .line = {},
                               .taken = sink == 0 ? &status.of(Rank{r}).output_taken : nullptr});
    }
  }
  return pump;
}

void OutputPump::become_writer(Rank rank) {
  for (Source& s : sources_) {
    if (s.rank == rank) ::dup2(s.out, sinks_[s.sink].fd);
    close_end(s.in);
    close_end(s.out);
  }
}

void OutputPump::become_reader() {
  for (Source& s : sources_) {
    close_end(s.out);
    ::fcntl(s.in, F_SETFL, O_NONBLOCK);
  }
}

void OutputPump::watch(std::vector<pollfd>& fds) const {
  for (const Source& s : sources_) {
    if (s.in >= 0 && sinks_[s.sink].waiting.size() < kHighWater) fds.push_back({s.in, POLLIN, 0});
  }
  for (const Sink& sink : sinks_) {
    if (!sink.waiting.empty()) fds.push_back({sink.fd, POLLOUT, 0});
  }
}

void OutputPump::pump() {
  for (Source& s : sources_) {
    // One read at a time: a rank that writes without end must not delay the others.
    if (s.in >= 0 && sinks_[s.sink].waiting.size() < kHighWater) read_once(s);
  }
  for (Sink& sink : sinks_) {
    while (!sink.waiting.empty() && writable(sink, 0)) write_once(sink);
  }
}

void OutputPump::drain() {
  for (Source& s : sources_) {
    while (s.in >= 0 && read_once(s)) {
      Sink& sink = sinks_[s.sink];
      while (sink.waiting.size() >= kHighWater && writable(sink, -1)) write_once(sink);
    }
    finish(s);
  }
  for (Sink& sink : sinks_) {
    while (!sink.waiting.empty() && writable(sink, -1)) write_once(sink);
  }
}

/// False when nothing is there now, or the pipe has ended.
bool OutputPump::read_once(Source& source) {
  char buffer[16 * 1024];
  const ssize_t n = ::read(source.in, buffer, sizeof buffer);
  if (n > 0) {
    take(source, buffer, static_cast<std::size_t>(n));
    // release: the rank that waits for the count goes on when its lines stand before all later ones
    if (source.taken != nullptr)
      source.taken->fetch_add(static_cast<std::uint64_t>(n), std::memory_order_release);
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return false;
  finish(source);
  return false;
}

void OutputPump::take(Source& source, const char* data, std::size_t bytes) {
  std::string_view rest(data, bytes);
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    source.line.append(rest.substr(0, end));
    emit(sinks_[source.sink], source.rank, source.line);
    source.line.clear();
    rest.remove_prefix(end + 1);
  }
  source.line.append(rest);
  if (source.line.size() >= kLongestLine) {
    emit(sinks_[source.sink], source.rank, source.line);
    source.line.clear();
  }
}

void OutputPump::finish(Source& source) {
  if (!source.line.empty()) emit(sinks_[source.sink], source.rank, source.line);
  source.line.clear();
  close_end(source.in);
}

void OutputPump::emit(Sink& sink, Rank rank, std::string_view line) {
  if (sink.gone) return;
  sink.waiting.append("[").append(std::to_string(raw(rank))).append("] ").append(line).append("\n");
}

bool OutputPump::writable(const Sink& sink, int timeout_ms) {
  pollfd p{sink.fd, POLLOUT, 0};
  return ::poll(&p, 1, timeout_ms) > 0;
}

void OutputPump::write_once(Sink& sink) {
  // A writable pipe takes PIPE_BUF bytes without blocking.
  const ssize_t n =
      ::write(sink.fd, sink.waiting.data(), std::min<std::size_t>(sink.waiting.size(), PIPE_BUF));
  if (n >= 0) {
    sink.waiting.erase(0, static_cast<std::size_t>(n));
    return;
  }
  if (errno == EINTR || errno == EAGAIN) return;
  // The reader has closed it: the ranks then get SIGPIPE, as they would without the pump. Or a disk is full.
  if (errno != EPIPE) lost_ = ::strerrordesc_np(errno);
  sink.gone = true;
  sink.waiting.clear();
  for (Source& s : sources_) {
    if (&sinks_[s.sink] == &sink) close_end(s.in);
  }
}

}  // namespace kasane::comm
