// SPDX-License-Identifier: Apache-2.0
// Remote memory and active messages: operations that never wait, what to hand them as callbacks, and options
// from the environment. The guide is docs/guide/communication.md.
#pragma once

#include "comm/engine/completion.h"
#include "comm/engine/engine.h"
#include "comm/engine/environment.h"
