// SPDX-License-Identifier: Apache-2.0
// A checkpoint's file: what is written is what is read, or the reader says which part is wrong.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "fixtures.h"

namespace kasane::checkpoint {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 4096, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1, 5 * kChunkBytes + 17};

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
  struct stat s {};
  ASSERT_EQ(::stat(folder.file().c_str(), &s), 0);
  EXPECT_LE(s.st_blocks * 512, static_cast<off_t>(4 * kChunkBytes)) << "of " << s.st_size;
  EXPECT_EQ(*load(folder.file()), data);
  EXPECT_TRUE(OldFile::open(folder.file())->is_hole(149));
  EXPECT_FALSE(OldFile::open(folder.file())->is_hole(150));
}

TEST(CheckpointFile, EveryByteOfItCounts) {
  const Folder folder;
  const Bytes data = pattern(3 * kChunkBytes + 100, 2);
  const Layout layout(data.size());
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
  for (std::uint64_t at = kHeaderBytes; at < kHeaderBytes + 8 * layout.chunks; at += 3) damaged(at, EIO, "table of chunks is damaged");
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
  const Layout layout(3 * kChunkBytes + 100);
  const auto cut = [&](std::uint64_t bytes, int code, const std::string& text) {
    ASSERT_TRUE(save(folder.file(), pattern(layout.bytes, 4)));
    ASSERT_EQ(::truncate(folder.file().c_str(), static_cast<off_t>(bytes)), 0);
    expect_failure(load(folder.file()), code, text);
  };
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{87}, kHeaderBytes - 1}) cut(bytes, EINVAL, "no checkpoint");
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
  EXPECT_EQ(check_wanted(h, {10, 4, 0, 1}, "f").error().text, "f holds elements of 8 bytes; elements of 4 bytes were asked for");
  EXPECT_EQ(check_wanted(h, {10, 8, 0, 2}, "f").error().text, "f holds elements of type 1; type 2 was asked for");
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
    const Layout layout(kChunkBytes);
    auto file = create(folder.file(), layout, named);
    ASSERT_TRUE(file);
    const auto same = open_same(folder.file(), layout, *file);
    ASSERT_TRUE(same) << same.error().text;
    struct stat a {}, b {};
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
  std::ofstream(temporary_name(folder.file())) << "half of a checkpoint";
  ASSERT_TRUE(save(folder.file(), pattern(5, 7)));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"c"});
}

TEST(CheckpointFile, MindsTheLimitOfFileSizes) {
  const Folder folder;
  ASSERT_TRUE(save(folder.file(), pattern(5, 8)));
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{kChunkBytes, kChunkBytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);   // SIGXFSZ would end this process
    const auto saved = save(folder.file(), pattern(kChunkBytes, 9));
    ::_exit(!saved && saved.error().code == EFBIG && saved.error().text.find("ulimit -f allows 65536") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*load(folder.file()), pattern(5, 8));
}

TEST(CheckpointFile, SaysHowMuchAFullDiskLacks) {
  const Folder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "needs root, to mount a small file system";
  for (const bool named : {false, true}) {
    EXPECT_TRUE(save(folder.file(), pattern(kChunkBytes, 10), 0, named));
    const auto saved = save(folder.file(), pattern(40 * kChunkBytes, 11), 0, named);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, ENOSPC);
    for (const char* text : {"from chunk ", " of 40", "needs up to 2686976 bytes", "bytes are free there", "free space there"})
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
