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

/// Local addresses, as /proc/net/tcp has them, at which a process listens.
std::vector<std::string> listening(pid_t pid) {
  std::set<std::string> sockets;
  std::error_code error;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error))
    sockets.insert(fs::read_symlink(fd.path(), error).string());
  std::vector<std::string> found;
  for (const char* family : {"tcp", "tcp6"}) {
    std::ifstream table("/proc/" + std::to_string(pid) + "/net/" + family);
    for (std::string line; std::getline(table, line);) {
      std::istringstream in(line);
      std::string word[10];
      for (auto& w : word) in >> w;
      if (word[3] == "0A" && sockets.count("socket:[" + word[9] + "]") != 0) found.push_back(word[1]);
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
