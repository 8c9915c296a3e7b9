// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file: what is read is what was written, or the reader says which part is wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "fixtures.h"

namespace kasane::checkpoint {
namespace {

constexpr std::size_t kSizes[] = {
    0, 1, 4096, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1, 5 * kChunkBytes + 17};

void poke(const std::string& path, std::uint64_t offset, std::byte value) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(static_cast<std::streamoff>(offset)).put(static_cast<char>(value));
}
std::byte peek(const std::string& path, std::uint64_t offset) {
  std::ifstream f(path, std::ios::binary);
  return static_cast<std::byte>(f.seekg(static_cast<std::streamoff>(offset)).get());
}
void expect_failure(const FileResult<Bytes>& result, int code, const std::string& text) {
  ASSERT_FALSE(result) << "no error: " << text;
  EXPECT_EQ(result.error().code, code) << result.error().text;
  EXPECT_NE(result.error().text.find(text), std::string::npos) << result.error().text;
}

TEST(CheckpointFile, GivesBackWhatWasSavedAndLeavesNothingElse) {
  for (const bool named : {false, true}) {
    const Folder folder;
    for (const std::size_t bytes : kSizes) {
      const Bytes data = pattern(bytes, 1);
      const auto saved = save(folder.file(), data, bytes, named);
      ASSERT_TRUE(saved) << saved.error().text;
      const auto back = load(folder.file());
      ASSERT_TRUE(back) << back.error().text;
      EXPECT_EQ(*back, data);
      EXPECT_EQ(OldFile::open(folder.file())->header().note, bytes);
      EXPECT_EQ(folder.names(), std::vector<std::string>{"c"});
    }
  }
}

TEST(CheckpointFile, KeepsZerosAsHoles) {
  const Folder folder;
  Bytes data(200 * kChunkBytes);
  data[150 * kChunkBytes + 5] = std::byte{1};
  ASSERT_TRUE(save(folder.file(), data));
  struct stat s{};
  ASSERT_EQ(::stat(folder.file().c_str(), &s), 0);
  EXPECT_LE(s.st_blocks * 512, static_cast<off_t>(4 * kChunkBytes)) << "of " << s.st_size;
  EXPECT_EQ(*load(folder.file()), data);
  EXPECT_TRUE(OldFile::open(folder.file())->is_hole(149));
  EXPECT_FALSE(OldFile::open(folder.file())->is_hole(150));
}

/// Bytes of the file in the page cache, and those of them that are not on their way to the disk; none where
/// the kernel does not say (before Linux 6.5).
std::optional<std::pair<std::uint64_t, std::uint64_t>> cached_and_dirty(int fd) {
  constexpr long kCachestat = 451;
  const std::uint64_t all[2] = {0, 0};
  std::uint64_t pages[5] = {};  // struct cachestat
  if (::syscall(kCachestat, fd, all, pages, 0) != 0) return {};
  return std::pair(pages[0] * ::getpagesize(), pages[1] * ::getpagesize());
}

// A memory control group may have room for no more.
TEST(CheckpointFile, KeepsLittleInThePageCache) {
  const Folder folder;
  const std::string path = folder.file();
  const Bytes data = pattern(512 * kChunkBytes, 3);
  const FileLayout layout(data.size());
  auto unfinished = create(path, layout, false);
  ASSERT_TRUE(unfinished) << unfinished.error().text;
  const OwnedFd written(unfinished->fd);
  ASSERT_TRUE(write(written.get(), data, 0, layout, path));
  const auto after_write = cached_and_dirty(written.get());
  if (!after_write) GTEST_SKIP() << "no cachestat";
  ASSERT_TRUE(save(path, data));
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (cached_and_dirty(fd.get())->first != 0) GTEST_SKIP() << "a file system in memory";
  EXPECT_LT(after_write->second, layout.bytes / 4) << "waits to be written";
  const auto file = OldFile::open(path);
  ASSERT_TRUE(file) << file.error().text;
  Bytes some(4 * kChunkBytes);
  ASSERT_TRUE(file->read(some, 64));
  EXPECT_LE(cached_and_dirty(fd.get())->first, 2 * some.size() + 2 * kChunkBytes) << "was read ahead";
}

TEST(CheckpointFile, EveryByteOfItCounts) {
  const Folder folder;
  const Bytes data = pattern(3 * kChunkBytes + 100, 2);
  const FileLayout layout(data.size());
  ASSERT_TRUE(save(folder.file(), data));
  const auto damaged = [&](std::uint64_t at, int code, const std::string& text) {
    const std::byte was = peek(folder.file(), at);
    poke(folder.file(), at, was ^ std::byte{0x10});
    expect_failure(load(folder.file()), code, text);
    poke(folder.file(), at, was);
  };
  damaged(0, EINVAL, "no checkpoint");
  damaged(8, EINVAL, "version");
  damaged(12, EINVAL, "header is damaged");
  for (std::uint64_t at = 16; at < sizeof(Header); ++at) damaged(at, EIO, "header is damaged");
  for (std::uint64_t at = kHeaderBytes; at < kHeaderBytes + 8 * layout.chunks; at += 3)
    damaged(at, EIO, "table of chunks is damaged");
  for (std::uint64_t c = 0; c < layout.chunks; ++c) {
    damaged(layout.offset_of(c), EIO, "chunk " + std::to_string(c) + " of 4");
    damaged(layout.offset_of(c) + layout.bytes_of(c) - 1, EIO, "chunk " + std::to_string(c) + " of 4");
  }
  EXPECT_EQ(*load(folder.file()), data);
}

TEST(CheckpointFile, KnowsTheOtherByteOrderAndOtherVersions) {
  const Folder folder;
  ASSERT_TRUE(save(folder.file(), pattern(10, 3)));
  for (std::uint64_t i = 0; i < 4; ++i) poke(folder.file(), 12 + i, static_cast<std::byte>(i + 1));
  expect_failure(load(folder.file()), EINVAL, "other byte order");
  ASSERT_TRUE(save(folder.file(), pattern(10, 3)));
  poke(folder.file(), 8, std::byte{2});
  expect_failure(load(folder.file()), EINVAL, "format version 2; this program reads version 1");
}

TEST(CheckpointFile, SaysWhereItWasCutOff) {
  const Folder folder;
  const FileLayout layout(3 * kChunkBytes + 100);
  const auto cut = [&](std::uint64_t bytes, int code, const std::string& text) {
    ASSERT_TRUE(save(folder.file(), pattern(layout.bytes, 4)));
    ASSERT_EQ(::truncate(folder.file().c_str(), static_cast<off_t>(bytes)), 0);
    expect_failure(load(folder.file()), code, text);
  };
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{87}, kHeaderBytes - 1})
    cut(bytes, EINVAL, "no checkpoint");
  cut(kHeaderBytes, EIO, "the table of chunks is incomplete");
  cut(layout.data_offset, EIO, "chunk 0 of 4 is incomplete");
  cut(layout.offset_of(2) - 1, EIO, "chunk 1 of 4 is incomplete");
  cut(layout.offset_of(2), EIO, "chunk 2 of 4 is incomplete");
  cut(layout.file_bytes - 1, EIO, "chunk 3 of 4 is incomplete");
  cut(layout.file_bytes + 1, EIO, "1 more than its header says");
}

TEST(CheckpointFile, RefusesOtherElements) {
  const Header h = make_header({10, 8, 0, 1}, std::span<const std::uint64_t>());
  EXPECT_TRUE(check_wanted(h, {10, 8, 5, 1}, "f"));
  EXPECT_EQ(check_wanted(h, {10, 4, 0, 1}, "f").error().text,
            "f holds elements of 8 bytes; elements of 4 bytes were asked for");
  EXPECT_EQ(check_wanted(h, {10, 8, 0, 2}, "f").error().text,
            "f holds elements of type 1; type 2 was asked for");
  EXPECT_EQ(check_wanted(h, {11, 8, 0, 1}, "f").error().text, "f holds 10 elements; 11 were asked for");
}

TEST(CheckpointFile, SaysWhyItCannotBeWritten) {
  const Folder folder;
  const Bytes data = pattern(10, 5);
  const auto refused = [&](const std::string& path, int code) {
    const auto name = resolve(path);
    const auto saved = name ? save(*name, data) : FileResult<void>(tl::unexpected(name.error()));
    ASSERT_FALSE(saved) << path;
    EXPECT_EQ(saved.error().code, code) << saved.error().text;
    EXPECT_NE(saved.error().text.find(path), std::string::npos) << saved.error().text;
  };
  refused(folder.file("nowhere/c"), ENOENT);
  refused(folder.path(), EISDIR);
  refused("/dev/null", EINVAL);
  ASSERT_TRUE(save(folder.file("file"), data));
  refused(folder.file("file/c"), ENOTDIR);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(CheckpointFile, ReplacesTheFileAndNotALinkToIt) {
  const Folder folder;
  ASSERT_TRUE(save(folder.file("real"), pattern(5, 0)));
  ASSERT_EQ(::symlink("real", folder.file("link").c_str()), 0);
  const auto name = resolve(folder.file("link"));
  ASSERT_TRUE(name);
  ASSERT_TRUE(save(*name, pattern(5, 6)));
  EXPECT_EQ(*load(folder.file("real")), pattern(5, 6));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
}

TEST(CheckpointFile, OthersFindTheSameFileOrSayThatTheyDoNot) {
  for (const bool named : {false, true}) {
    const Folder folder;
    const FileLayout layout(kChunkBytes);
    auto file = create(folder.file(), layout, named);
    ASSERT_TRUE(file);
    const auto same = open_same(folder.file(), layout, *file);
    ASSERT_TRUE(same) << same.error().text;
    struct stat a{}, b{};
    ::fstat(file->fd, &a), ::fstat(*same, &b);
    EXPECT_EQ(a.st_ino, b.st_ino);
    NewFile other = *file;
    ++other.mark[0];
    EXPECT_EQ(open_same(folder.file(), layout, other).error().code, ESTALE);
    ::close(*same);
    abandon(*file, folder.file());
    EXPECT_TRUE(folder.names().empty());
  }
}

TEST(CheckpointFile, TakesAwayWhatAKilledJobLeft) {
  const Folder folder;
  std::ofstream(folder.file("c.kasane-new")) << "half of a checkpoint";
  ASSERT_TRUE(save(folder.file(), pattern(5, 7)));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"c"});
}

/// Runs f in a thread of another user; only root may.
template <class F>
void as_user(uid_t user, F&& f) {
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_setresuid, -1, user, -1), 0);  // of this thread alone, unlike the function
    f();
  }).join();
}

// No call may wait for a writer that never comes.
TEST(CheckpointFile, RefusesWhatIsNoRegularFileAtOnce) {
  const Folder folder;
  ASSERT_EQ(::mkfifo(folder.file("fifo").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::snprintf(name.sun_path, sizeof name.sun_path, "%s", folder.file("socket").c_str());
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  ::close(socket);
  const auto stuck = std::signal(SIGALRM, SIG_DFL);
  ::alarm(20);  // ends the test if it waits
  for (const std::string& path :
       {folder.file("fifo"), folder.file("socket"), folder.path(), std::string("/dev/zero")}) {
    const auto read = OldFile::open(path);
    ASSERT_FALSE(read) << path;
    EXPECT_EQ(read.error().code, EINVAL) << read.error().text;
    EXPECT_NE(read.error().text.find("not a regular file"), std::string::npos) << read.error().text;
    EXPECT_FALSE(resolve(path)) << path;
  }
  // Planted where ranks of other hosts look for the file that they are to write.
  const FileLayout layout(kChunkBytes);
  auto file = create(folder.file(), layout, true);
  ASSERT_TRUE(file);
  ASSERT_EQ(::rename(folder.file("fifo").c_str(), folder.file("c.kasane-new").c_str()), 0);
  EXPECT_FALSE(open_same(folder.file(), layout, *file));
  abandon(*file, folder.file());
  ::alarm(0);
  std::signal(SIGALRM, stuck);
}

TEST(CheckpointFile, AFileThatIsReplacedKeepsItsMode) {
  for (const bool named : {false, true}) {
    const Folder folder;
    struct stat s{};
    const auto mode = [&] { return ::stat(folder.file().c_str(), &s) == 0 ? s.st_mode & 07777 : 0; };
    const mode_t before = ::umask(027);
    ASSERT_TRUE(save(folder.file(), pattern(5, 1), 0, named));
    EXPECT_EQ(mode(), 0640u) << "a new one's is the umask's matter";
    for (const mode_t kept : {0600u, 0664u, 0400u}) {
      ASSERT_EQ(::chmod(folder.file().c_str(), kept), 0);
      ASSERT_TRUE(save(folder.file(), pattern(5, 2), 0, named));
      EXPECT_EQ(mode(), kept);
    }
    ::umask(before);
    if (::geteuid() != 0) continue;
    ASSERT_EQ(::chown(folder.file().c_str(), 1234, 4321), 0);
    ASSERT_TRUE(save(folder.file(), pattern(5, 3), 0, named));
    EXPECT_EQ(mode(), 0400u);
    EXPECT_EQ(s.st_uid, 1234u);
    EXPECT_EQ(s.st_gid, 4321u);
    // Another user may not set that group: then the group gets no rights either.
    ASSERT_EQ(::chmod(folder.file().c_str(), 0664), 0);
    ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
    as_user(65534, [&] { EXPECT_TRUE(save(folder.file(), pattern(5, 4), 0, named)); });
    EXPECT_EQ(mode(), 0644u);
    EXPECT_EQ(s.st_uid, 65534u);
  }
}

TEST(CheckpointFile, WhileItIsWrittenOthersSeeNoMoreThanOfTheOldOne) {
  const Folder folder;
  ASSERT_TRUE(save(folder.file(), pattern(5, 1)));
  ASSERT_EQ(::chmod(folder.file().c_str(), 0600), 0);
  auto file = create(folder.file(), FileLayout(kChunkBytes), true);
  ASSERT_TRUE(file);
  struct stat s{};
  ASSERT_EQ(::stat(folder.file("c.kasane-new").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 077, 0u);
  abandon(*file, folder.file());
}

// In a directory like /tmp.
TEST(CheckpointFile, FollowsNoLinkThatAnotherUserPlanted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has two users";
  const Folder folder, mine;
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  const std::string precious = mine.file("precious");
  std::ofstream(precious) << "precious";
  ASSERT_EQ(::symlink(precious.c_str(), folder.file("link").c_str()), 0);
  EXPECT_EQ(resolve(folder.file("link")).value_or(""), precious) << "one's own link is followed";
  ASSERT_EQ(::symlink(mine.path().c_str(), folder.file("folder").c_str()), 0);
  for (const char* name : {"link", "folder"}) ASSERT_EQ(::lchown(folder.file(name).c_str(), 65534, 65534), 0);
  for (const char* name : {"link", "folder/precious", "folder/new"}) {
    const auto resolved = resolve(folder.file(name));
    ASSERT_FALSE(resolved) << name << " is " << *resolved;
    EXPECT_NE(resolved.error().text.find("is a symbolic link of user 65534"), std::string::npos)
        << resolved.error().text;
  }
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  EXPECT_TRUE(resolve(folder.file("link"))) << "who may write here is trusted";
}

// A link, file or directory at the temporary name neither prevents the checkpoint, nor is written through.
TEST(CheckpointFile, WhatIsPlantedAtItsTemporaryNameHarmsNothing) {
  for (const bool named : {false, true}) {
    const Folder folder;
    const std::string precious = folder.file("precious"), planted = folder.file("c.kasane-new");
    std::ofstream(precious) << "precious";
    ASSERT_EQ(::symlink(precious.c_str(), planted.c_str()), 0);
    ASSERT_TRUE(save(folder.file(), pattern(5, 1), 0, named));
    EXPECT_EQ(std::filesystem::file_size(precious), 8u);
    // Something that cannot be removed, as another user's file in /tmp
    ASSERT_EQ(::mkdir(planted.c_str(), 0700), 0);
    const auto saved = save(folder.file(), pattern(5, 2), 0, named);
    ASSERT_TRUE(saved) << saved.error().text;
    EXPECT_EQ(*load(folder.file()), pattern(5, 2));
    EXPECT_EQ(folder.names().size(), 3u);
  }
}

TEST(CheckpointFile, MindsTheLimitOfFileSizes) {
  const Folder folder;
  ASSERT_TRUE(save(folder.file(), pattern(5, 8)));
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{kChunkBytes, kChunkBytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);  // SIGXFSZ would end this process
    const auto saved = save(folder.file(), pattern(kChunkBytes, 9));
    ::_exit(!saved && saved.error().code == EFBIG &&
                    saved.error().text.find("ulimit -f allows 65536") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*load(folder.file()), pattern(5, 8));
}

TEST(CheckpointFile, SaysHowMuchAFullDiskLacks) {
  const Folder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "needs root, to mount a small file system";
  for (const bool named : {false, true}) {
    EXPECT_TRUE(save(folder.file(), pattern(kChunkBytes, 10), 0, named));
    const auto saved = save(folder.file(), pattern(40 * kChunkBytes, 11), 0, named);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, ENOSPC);
    for (const char* text :
         {"from chunk ", " of 40", "needs up to 2686976 bytes", "bytes are free there", "free space there"})
      EXPECT_NE(saved.error().text.find(text), std::string::npos) << saved.error().text;
    EXPECT_EQ(*load(folder.file()), pattern(kChunkBytes, 10));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"c"});
  }
  ASSERT_EQ(::mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  EXPECT_EQ(save(folder.file(), pattern(1, 12)).error().code, EROFS);
  EXPECT_EQ(*load(folder.file()), pattern(kChunkBytes, 10));
  ASSERT_EQ(::umount(folder.path().c_str()), 0);
}

}  // namespace
}  // namespace kasane::checkpoint
