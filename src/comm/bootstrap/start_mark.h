// SPDX-License-Identifier: Apache-2.0
// What a program that becomes ranks by itself can be told by: head and tail, one after the other, are in its file (runtime/start, comm/launch). They are kept
// apart here, so that a program that only looks for them (kasane run) does not contain them.
#pragma once

#define KASANE_START_MARK_HEAD "kasane load-time"
#define KASANE_START_MARK_TAIL " start, version 1"
