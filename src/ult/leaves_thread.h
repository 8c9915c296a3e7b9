// SPDX-License-Identifier: Apache-2.0
// No exception has this type. A handler for it, before `catch (...)`, is asked in the first phase of a throw,
// the search for a handler, while all frames of the throw are there: it notes them (base/throw_site.h) and
// does not take the exception. So an exception that stays within its thread costs nothing.
#pragma once

namespace kasane::ult {

class LeavesThread {
 public:
  virtual ~LeavesThread();  ///< the key function, which is nowhere: so the type's description can be ours
};

}  // namespace kasane::ult
