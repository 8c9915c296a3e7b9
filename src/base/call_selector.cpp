// SPDX-License-Identifier: Apache-2.0
#include "base/call_selector.h"

constinit thread_local unsigned char kasane_call_selector = 0;
