// SPDX-License-Identifier: Apache-2.0
// Files of graphs, of all formats: what is read is a graph that holds what it says.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <kasane/graph.hpp>
#include <kasane/kasane.hpp>

#include "fuzz.h"

using kasane::fuzz::expect;

namespace {

template <class Weight>
void read_as(const std::string& path, const char* format) {
  try {
    const auto found = kasane::graph::read<Weight>(path, format);
    for (const auto& e : found.list)
      expect(e.from < found.list.vertices() && e.to < found.list.vertices(),
             "an edge of vertices of the graph");
  } catch (const kasane::error& e) {
    expect(e.code() == EINVAL || e.code() == ENOENT, "an error of the file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  constexpr const char* kFormats[] = {".el", ".wel", ".gr",     ".graph", ".mtx",
                                      ".sg", ".wsg", ".tuples", ".names"};
  kasane::fuzz::Input input(bytes, size);
  const char* const format = kFormats[input.below(std::size(kFormats))];
  const std::uint32_t weight = input.below(3);
  const std::string_view text = input.rest();
  expect(::ftruncate(fd, 0) == 0 &&
             ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
         "writing the file");
  kasane::run([&] {
    if (weight == 0) read_as<void>(path, format);
    if (weight == 1) read_as<std::int32_t>(path, format);
    if (weight == 2) read_as<float>(path, format);
  });
  return 0;
}
