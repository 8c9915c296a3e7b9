// SPDX-License-Identifier: Apache-2.0
#include "names.h"

#include <cstdio>
#include <kasane/kasane.hpp>
#include <map>
#include <mutex>
#include <utility>

namespace names {
namespace {

struct Book {
  Book() { std::puts("names: constructed"); }
  ~Book() { std::printf("names: destroyed, %zu names, %zu bytes\n", entries.size(), bytes()); }
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& entry : entries) sum += entry.second.size();
    return sum;
  }
  std::map<int, std::string> entries;
};

Book book;
kasane::mutex lock;

struct Motto {
  explicit Motto(const std::string& first) : text(first) { std::puts("motto: constructed"); }
  ~Motto() { std::printf("motto: destroyed, %s\n", text.c_str()); }
  Motto(const Motto&) = delete;
  Motto& operator=(const Motto&) = delete;
  std::string text;
};

}  // namespace

Announce announce = nullptr;

void add_alone(int key, std::string name) { book.entries[key] = std::move(name); }
void add(int key, std::string name) {
  const std::lock_guard held(lock);
  add_alone(key, std::move(name));
}
std::size_t count() { return book.entries.size(); }
const std::string& of(int key) { return book.entries.at(key); }
std::string& motto(const std::string& first) {
  static Motto made(first);
  return made.text;
}

}  // namespace names
