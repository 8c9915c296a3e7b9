// SPDX-License-Identifier: Apache-2.0
// Jobs over UCX on one host, as a user starts them: signals, what listens, what is left in /dev/shm, and a
// small /dev/shm.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

namespace fs = std::filesystem;

const std::string kProgram = KASANE_LAUNCH_PROGRAM;

std::vector<std::string> over_ucx(int ranks, const std::string& deed) {
  return kasane_run_command({"-n", std::to_string(ranks), "--transport", "ucx", "--", kProgram, deed});
}

/// What UCX has in /dev/shm, of any job.
std::set<std::string> queues() {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.find("ucx") != std::string::npos) found.insert(name);
  }
  return found;
}

/// Something that was not there before: a rank is making its queues.
bool wait_for_new(const std::set<std::string>& before) {
  for (int i = 0; i < 1'000'000; ++i) {
    for (const std::string& name : queues()) {
      if (before.count(name) == 0) return true;
    }
  }
  return false;
}

std::set<std::string> new_ones(const std::set<std::string>& before) {
  std::set<std::string> now = queues();
  for (const std::string& name : before) now.erase(name);
  return now;
}

/// A process's sockets over TCP, as /proc/net/tcp has them.
struct Socket {
  std::string address;  ///< its own
  std::string state;    ///< 0A: it listens
  std::string queues;   ///< bytes not yet acknowledged:bytes not yet read
};

std::vector<Socket> sockets(pid_t pid) {
  std::set<std::string> own;
  std::error_code error;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error))
    own.insert(fs::read_symlink(fd.path(), error).string());
  std::vector<Socket> found;
  for (const char* family : {"tcp", "tcp6"}) {
    std::ifstream table("/proc/" + std::to_string(pid) + "/net/" + family);
    for (std::string line; std::getline(table, line);) {
      std::istringstream in(line);
      std::string word[10];
      for (auto& w : word) in >> w;
      if (own.count("socket:[" + word[9] + "]") != 0) found.push_back({word[1], word[3], word[4]});
    }
  }
  return found;
}

/// Local addresses at which a process listens.
std::vector<std::string> listening(pid_t pid) {
  std::vector<std::string> found;
  for (const Socket& socket : sockets(pid)) {
    if (socket.state == "0A") found.push_back(socket.address);
  }
  return found;
}

/// Sockets of a job with bytes that nobody has read.
std::size_t unread(const std::vector<pid_t>& family) {
  std::size_t found = 0;
  for (const pid_t pid : family) {
    for (const Socket& socket : sockets(pid)) {
      const std::string queued = socket.queues.substr(socket.queues.find(':') + 1);
      found += socket.state != "0A" && queued.find_first_not_of('0') != std::string::npos;
    }
  }
  return found;
}

bool maps_system_v(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::ostringstream text;
  text << maps.rdbuf();
  return text.str().find("/SYSV") != std::string::npos;
}

TEST(UcxOnOneHost, SighupEndsTheJob) {
  Job job(over_ucx(2, "busy"));
  ASSERT_TRUE(job.wait_for_output("ready"));
  ::kill(job.pid(), SIGHUP);
  const Outcome o = job.wait();
  EXPECT_TRUE(o.ended) << "SIGHUP did not end it";
  EXPECT_EQ(o.code, 128 + SIGHUP) << o.err;
}

TEST(UcxOnOneHost, NothingListensAndNoSystemVSegments) {
  Job job(over_ucx(2, "busy"));
  ASSERT_TRUE(job.wait_for_output("ready"));
  for (const pid_t pid : job.family()) {
    EXPECT_TRUE(listening(pid).empty()) << "listens at " << listening(pid)[0];
    EXPECT_FALSE(maps_system_v(pid));
  }
}

TEST(UcxOnOneHost, TheUsersTransportsStandOnTheLoopback) {
  Job job(over_ucx(2, "busy"), {"UCX_TLS=tcp,self"});
  ASSERT_TRUE(job.wait_for_output("ready"));
  std::size_t sockets = 0;
  for (const pid_t pid : job.family()) {
    for (const std::string& at : listening(pid)) {
      EXPECT_EQ(at.substr(0, 8), "0100007F") << "127.0.0.1";
      ++sockets;
    }
  }
  EXPECT_GT(sockets, 0u);
}

// Where UCX's answer to a connection is not read, the peer's UCX may wait for ever with an event that is
// always ready: its threads that sleep wake at once, again and again, and each message takes milliseconds.
TEST(UcxOnOneHost, EveryAnswerToAConnectionIsRead) {
  Job job(over_ucx(3, "busy"), {"UCX_TLS=tcp,self"});
  ASSERT_TRUE(job.wait_for_output("ready"));
  ASSERT_GT(job.family().size(), 2u);
  std::size_t left = 1;
  for (int looks = 0; looks < 100 && left != 0; ++looks) {
    ::usleep(50'000);
    left = unread(job.family());
  }
  EXPECT_EQ(left, 0u) << "sockets with unread bytes";
}

TEST(UcxOnOneHost, RanksKilledWhileTheyStartLeaveNothing) {
  for (int i = 0; i < 5; ++i) {
    const auto before = queues();
    Job job(over_ucx(4, "busy"));
    ASSERT_TRUE(wait_for_new(before));
    for (const pid_t pid : job.family()) {
      if (pid != job.pid()) ::kill(pid, SIGKILL);
    }
    EXPECT_NE(job.wait().code, 0);
    EXPECT_TRUE(new_ones(before).empty()) << *new_ones(before).begin();
  }
}

TEST(UcxOnOneHost, TheNextJobRemovesWhatAKilledSupervisorLeft) {
  const auto before = queues();
  {
    Job job(over_ucx(4, "busy"));
    ASSERT_TRUE(wait_for_new(before));
    ::kill(job.pid(), SIGKILL);
    (void)job.wait();
  }
  const Outcome next = Job(over_ucx(2, "return")).wait();
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_TRUE(new_ones(before).empty()) << *new_ones(before).begin();
}

/// The job with a /dev/shm of its own.
Outcome with_shm_of(const std::string& size, int ranks) {
  std::string command = "mount -t tmpfs -o size=" + size + " tmpfs /dev/shm && exec";
  for (const std::string& word : over_ucx(ranks, "return")) command += " " + word;
  return Job({"unshare", "-m", "sh", "-c", command}).wait();
}

TEST(UcxOnOneHost, ASmallShmDoesOrIsNamed) {
  if (::geteuid() != 0 || with_shm_of("1G", 1).code != 0) GTEST_SKIP() << "no mount namespaces here";
  const Outcome docker = with_shm_of("64M", 8), tiny = with_shm_of("2M", 2), none = with_shm_of("100K", 2);
  EXPECT_EQ(docker.code, 0) << docker.err;
  EXPECT_EQ(tiny.code, 0) << tiny.err;
  EXPECT_NE(none.code, 0);
  EXPECT_NE(none.err.find("/dev/shm has 100 KiB free"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("--shm-size"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace kasane::launch_test
