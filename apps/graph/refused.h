// SPDX-License-Identifier: Apache-2.0
// What the programs for graphs cannot do: a message and status 2.
#pragma once

#include <kasane/kasane.hpp>
#include <stdexcept>
#include <string>

#include "common/report.h"

namespace apps::graph {

struct Refused {
  std::string what;
};

/// As guarded(); what is refused, here or by the library, and files that cannot be written, are status 2.
template <class F>
int guarded_or_refused(const char* name, F&& body) noexcept {
  return guarded(name, [&] {
    try {
      return body();
    } catch (const Refused& r) {
      complain(name, r.what.c_str());
    } catch (const std::runtime_error& e) {  // a file; kasane::error
      complain(name, e.what());
    } catch (const kasane::out_of_memory& e) {
      complain(name, e.what());
    }
    return 2;
  });
}

}  // namespace apps::graph
