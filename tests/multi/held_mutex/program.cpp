// SPDX-License-Identifier: Apache-2.0
// Holds a std::mutex in private memory over a fork (argument "fork") or a join ("join"): in builds with
// assertions the job must end with a message that says so. With "kasane" it holds a kasane::mutex over both,
// which is allowed.
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <mutex>
#include <new>

int main(int argc, char** argv) {
  const char* where = argc > 1 ? argv[1] : "";
  kasane::run([&] {
    const auto lock_native = [] { (::new (std::malloc(sizeof(std::mutex))) std::mutex)->lock(); };
    kasane::mutex ours;
    if (std::strcmp(where, "kasane") == 0) ours.lock();
    if (std::strcmp(where, "fork") == 0) lock_native();
    kasane::thread child([] {});
    if (std::strcmp(where, "join") == 0) lock_native();
    child.join();
    if (std::strcmp(where, "kasane") == 0) ours.unlock();
  });
}
