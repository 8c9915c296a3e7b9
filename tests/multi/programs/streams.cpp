// SPDX-License-Identifier: Apache-2.0
// Streams of the standard library over more memory than DRAM holds: streams MIB writes a vector of so many
// MiB as a whole by ofstream::write and by fwrite, and reads it back; then it copies a text line by line
// while it works on other memory. Status 1 if a byte or a line is missing.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

namespace {

constexpr int kLines = 20000;

char byte(std::size_t i) { return static_cast<char>(i * 0x9E3779B1u >> 24); }

bool right(const std::vector<char>& v) {
  for (std::size_t i = 0; i < v.size(); ++i)
    if (v[i] != byte(i)) return false;
  return true;
}

std::vector<char> read_back(const std::string& path, std::size_t bytes) {
  std::vector<char> v(bytes);
  FILE* const f = std::fopen(path.c_str(), "rb");
  const std::size_t n = std::fread(v.data(), 1, bytes, f);
  const bool end = std::fgetc(f) == EOF;
  std::fclose(f);
  if (n != bytes || !end) v.clear();
  return v;
}

bool whole_vectors(const std::string& path, std::size_t bytes) {
  {
    std::vector<char> v(bytes);
    for (std::size_t i = 0; i < bytes; ++i) v[i] = byte(i);
    std::ofstream out(path, std::ios::binary);
    out.write(v.data(), static_cast<std::streamsize>(bytes));
    out.flush();
    FILE* const f = std::fopen((path + "2").c_str(), "wb");
    const bool written = std::fwrite(v.data(), 1, bytes, f) == bytes;
    if (std::fclose(f) != 0 || !written || !out) return false;
  }
  for (const std::string& file : {path, path + "2"}) {
    const std::vector<char> v = read_back(file, bytes);
    if (v.size() != bytes || !right(v)) return false;
  }
  std::vector<char> v(bytes);
  std::ifstream in(path, std::ios::binary);
  return in.read(v.data(), static_cast<std::streamsize>(bytes)) && right(v);
}

bool lines(const std::string& path, std::size_t bytes) {
  {
    std::ofstream text(path);
    for (int i = 0; i < kLines; ++i) text << "line " << i << " of a text that a program reads\n";
  }
  auto work = kasane::make_array<char>(bytes);
  std::ifstream in(path);
  std::ofstream out(path + "2");
  int n = 0;
  for (std::string line; std::getline(in, line); ++n) {
    if (n % 1000 == 0)
      for (std::size_t i = 0; i < bytes; i += 4096) work[i] = static_cast<char>(i);
    out << line << '\n';
  }
  out.close();
  if (n != kLines || in.bad() || !out) return false;
  std::ifstream one(path), two(path + "2");
  std::string a, b;
  while (std::getline(one, a) && std::getline(two, b))
    if (a != b) return false;
  return one.eof() && !std::getline(two, b);
}

}  // namespace

int main(int, char** argv) {
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10) << 20;
  bool whole = false, all_lines = false;
  kasane::run([&] {
    const std::string path = "/tmp/kasane-streams-" + std::to_string(::getpid());
    whole = whole_vectors(path, bytes);
    all_lines = lines(path, bytes);
    for (const char* end : {"", "2"}) std::remove((path + end).c_str());
  });
  std::printf("whole vectors: %s, lines: %s\n", whole ? "right" : "wrong", all_lines ? "right" : "wrong");
  return whole && all_lines ? 0 : 1;
}
