// SPDX-License-Identifier: Apache-2.0
// Streams that one rank opens and others use: FILE*, fstream, DIR*, pipes to children. Status 1 if a line is
// missing or a byte wrong.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <kasane/kasane.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "need.h"

namespace {

constexpr std::size_t kWord = 65536 / sizeof(int);
constexpr int kLines = 50;

int* g_words;         ///< a page of each rank
FILE* g_log;          ///< opened by main
std::ofstream g_out;  ///< opened on the last rank
kasane::mutex g_lock;
std::string g_folder;

std::uint32_t last() { return kasane::ranks() - 1; }

template <class F>
kasane::thread begin_at(std::uint32_t rank, const F& f) {
  return kasane::thread(kasane::near{g_words + rank % kasane::ranks() * kWord}, f);
}
template <class F>
void at(std::uint32_t rank, const F& f) {
  begin_at(rank, f).join();
}
template <class F>
void on_all(const F& f) {
  std::vector<kasane::thread> all;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) all.push_back(begin_at(r, [&f, r] { f(r); }));
  for (auto& t : all) t.join();
}

std::string path(const char* name) { return g_folder + "/" + name; }

std::multiset<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  std::multiset<std::string> all;
  for (std::string line; std::getline(in, line);) all.insert(line);
  return all;
}
std::multiset<std::string> lines_expected() {
  std::multiset<std::string> all;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
    for (int i = 0; i < kLines; ++i) all.insert("rank " + std::to_string(r) + " line " + std::to_string(i));
  return all;
}

// ---- written by all ranks ----

void write_by_all() {
  on_all([](std::uint32_t r) {
    for (int i = 0; i < kLines; ++i) {
      g_lock.lock();
      std::fprintf(g_log, "rank %u ", r);
      std::fputs("line ", g_log);
      std::fprintf(g_log, "%d", i);
      std::fputc('\n', g_log);
      g_out << "rank " << r << " line " << i << '\n';
      g_lock.unlock();
    }
  });
}

void write_as_a_text() {
  std::string text;
  for (int i = 0; i < kLines; ++i) text += std::to_string(i) + " " + std::to_string(i * i) + " word\n";
  std::ofstream(path("text")) << text;
}

// ---- read on another rank than opened ----

void read_lines() {
  FILE* f = nullptr;
  at(last(), [&] { NEED((f = std::fopen(path("text").c_str(), "re")) != nullptr); });
  at(0, [&] {
    char line[100];
    NEED(std::fgets(line, sizeof line, f) == line && std::strcmp(line, "0 0 word\n") == 0);
  });
  at(last() / 2, [&] {
    char* line = nullptr;
    std::size_t room = 0;
    NEED(::getline(&line, &room, f) == 9 && std::strcmp(line, "1 1 word\n") == 0);
    std::free(line);
  });
  at(0, [&] {
    int a = 0, b = 0;
    char word[10];
    NEED(std::fscanf(f, "%d %d %9s", &a, &b, word) == 3 && a == 2 && b == 4 && !std::strcmp(word, "word"));
    NEED(std::fgetc(f) == '\n' && std::ungetc('x', f) == 'x' && std::getc(f) == 'x');
    NEED(std::ftell(f) == 27 && std::feof(f) == 0 && std::ferror(f) == 0);
  });
  at(last(), [&] {
    std::rewind(f);
    long bytes = 0;
    while (::getc_unlocked(f) != EOF) ++bytes;
    NEED(::feof_unlocked(f) != 0 && std::ftell(f) == bytes);
    NEED(std::fseek(f, -5, SEEK_END) == 0);
  });
  at(0, [&] {
    char word[5];
    NEED(std::fread(word, 1, 5, f) == 5 && std::memcmp(word, "word\n", 5) == 0);
    NEED(std::fclose(f) == 0);
    NEED(std::fopen(path("none").c_str(), "r") == nullptr && errno == ENOENT);
    NEED(std::fopen(path("text").c_str(), "z") == nullptr && errno == EINVAL);
  });
}

void append_and_replace() {
  FILE* f = nullptr;
  at(last(), [&] { NEED((f = std::fopen(path("more").c_str(), "w+x")) != nullptr); });
  at(0, [&] { NEED(std::fputs("one\n", f) >= 0 && std::setvbuf(f, nullptr, _IOFBF, 64) == 0); });
  at(0, [&] { NEED(std::fopen(path("more").c_str(), "wx") == nullptr && errno == EEXIST); });
  at(last() / 2, [&] { NEED(std::fclose(f) == 0); });
  at(0, [&] { NEED((f = std::fopen(path("more").c_str(), "a+")) != nullptr && std::fgetc(f) == 'o'); });
  at(last(), [&] {
    NEED(std::fseek(f, 0, SEEK_CUR) == 0 && std::fwrite("two\n", 1, 4, f) == 4 && std::fflush(nullptr) == 0);
    NEED(std::filesystem::file_size(path("more")) == 8);
    NEED((f = std::freopen(path("text").c_str(), "r", f)) != nullptr);
  });
  at(0, [&] {
    int a = -1;
    NEED(std::fscanf(f, "%d", &a) == 1 && a == 0 && std::fclose(f) == 0);
  });
}

void streams_of_descriptors() {
  int fd = -1;
  FILE *f = nullptr, *temporary = nullptr;
  at(last(), [&] { fd = ::open(path("text").c_str(), O_RDONLY); });
  at(0, [&] { NEED((f = ::fdopen(fd, "r")) != nullptr); });
  at(last() / 2, [&] {
    char line[100];
    NEED(std::fgets(line, sizeof line, f) != nullptr && ::fileno(f) == fd);
    NEED((temporary = std::tmpfile()) != nullptr && std::fputs("kept\n", temporary) >= 0);
  });
  at(0, [&] {
    char line[100];
    std::rewind(temporary);
    NEED(std::fgets(line, sizeof line, temporary) != nullptr && std::strcmp(line, "kept\n") == 0);
    NEED(std::fclose(f) == 0 && std::fclose(temporary) == 0);
    NEED(::fcntl(fd, F_GETFD) == -1 && errno == EBADF);
  });
  char text[] = "17 4";
  at(last(), [&] { f = ::fmemopen(text, sizeof text - 1, "r"); });
  at(0, [&] {
    int a = 0, b = 0;
    NEED(std::fscanf(f, "%d%d", &a, &b) == 2 && a == 17 && b == 4 && std::fclose(f) == 0);
  });
}

void children() {
  FILE* f = nullptr;
  at(last(), [&] { NEED((f = ::popen("echo one; echo two; exit 3", "r")) != nullptr); });
  at(0, [&] {
    char line[100];
    NEED(std::fgets(line, sizeof line, f) != nullptr && std::strcmp(line, "one\n") == 0);
  });
  at(last() / 2, [&] {
    char line[100];
    NEED(std::fgets(line, sizeof line, f) != nullptr && std::strcmp(line, "two\n") == 0);
    const int status = ::pclose(f);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  });
  const std::string command = "cat > " + path("piped");
  at(0, [&] { NEED((f = ::popen(command.c_str(), "w")) != nullptr); });
  at(last(), [&] { NEED(std::fputs("through a pipe\n", f) >= 0 && ::pclose(f) == 0); });
  at(0, [&] { NEED(lines_of(path("piped")).count("through a pipe") == 1); });
}

void directories() {
  DIR* d = nullptr;
  at(last(), [&] { NEED((d = ::opendir(g_folder.c_str())) != nullptr); });
  std::set<std::string> names;
  at(0, [&] {
    while (const dirent* entry = ::readdir(d)) names.insert(entry->d_name);
    NEED(names.count("text") == 1 && names.count("log") == 1);
    ::rewinddir(d);
  });
  at(last() / 2, [&] { NEED(::readdir(d) != nullptr && ::dirfd(d) >= 0 && ::closedir(d) == 0); });
  std::filesystem::directory_iterator all;
  at(last(), [&] { all = std::filesystem::directory_iterator(g_folder); });
  at(0, [&] {
    std::size_t n = 2;  // "." and ".."
    for (const auto& entry : all) n += names.count(entry.path().filename().string());
    NEED(n == names.size());
  });
}

// ---- main uses what threads opened ----

FILE* g_left;
int g_descriptor = -1;
DIR* g_directory;

void open_for_main() {
  at(last(), [] {
    g_left = std::fopen(path("left").c_str(), "w");
    g_descriptor = ::open(path("text").c_str(), O_RDONLY);
    g_directory = ::opendir(g_folder.c_str());
    NEED(g_left != nullptr && std::fputs("by a thread\n", g_left) >= 0 && g_directory != nullptr);
  });
}

void use_in_main() {
  char bytes[8];
  NEED(std::fprintf(g_left, "by %s\n", "main") == 8 && std::fclose(g_left) == 0);
  NEED(lines_of(path("left")) == (std::multiset<std::string>{"by a thread", "by main"}));
  NEED(::read(g_descriptor, bytes, 8) == 8 && std::memcmp(bytes, "0 0 word", 8) == 0);
  NEED(::close(g_descriptor) == 0 && ::close(g_descriptor) == -1 && errno == EBADF);
  NEED(::readdir(g_directory) != nullptr && ::closedir(g_directory) == 0);
  g_out.close();
  NEED(std::fclose(g_log) == 0);
  NEED(lines_of(path("log")) == lines_expected());
  NEED(lines_of(path("out")) == lines_expected());
}

// ---- what ends the program, with a message ----

void use_after_close() {
  FILE* f = nullptr;
  at(last(), [&] { f = std::fopen("/dev/null", "w"); });
  at(last(), [&] { std::fclose(f); });
  at(0, [&] { std::fputs("lost", f); });
}

void use_on_an_os_thread() {
  FILE* f = nullptr;
  at(last(), [&] { f = std::fopen("/dev/null", "w"); });
  at(0, [&] { std::thread([&] { std::fputs("lost", f); }).join(); });
}

/// More than DRAM holds, by a call within libc.
void write_absent() {
  const std::vector<char> all(std::size_t{48} << 20, 'x');
  FILE* const f = ::fdopen(::memfd_create("kasane-files", 0), "w");
  NEED(f != nullptr);
  NEED(std::fwrite(all.data(), 1, all.size(), f) == all.size());
}

void run_failing(const std::string& how) {
  kasane::run([&] {
    const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    g_words = words.get();
    how == "closed" ? use_after_close() : how == "absent" ? write_absent() : use_on_an_os_thread();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return run_failing(argv[1]), 0;
  g_folder = "/tmp/kasane-files-" + std::to_string(::getpid());
  std::filesystem::create_directory(g_folder);
  g_log = std::fopen(path("log").c_str(), "w");
  NEED(g_log != nullptr);
  kasane::run([&] {
    const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    g_words = words.get();
    at(last(), [] { g_out.open(path("out")); });
    write_by_all();
    write_as_a_text();
    read_lines();
    append_and_replace();
    streams_of_descriptors();
    children();
    directories();
    open_for_main();
  });
  use_in_main();
  std::filesystem::remove_all(g_folder);
  std::puts("right");
}
