// SPDX-License-Identifier: Apache-2.0
// Marks a program that becomes ranks by itself: its file contains head and tail, one after the other
// (runtime/start, comm/launch). They are two strings here so that a program that only searches for them
// (kasane run) does not contain the mark.
#pragma once

#define KASANE_START_MARK_HEAD "kasane load-time"
#define KASANE_START_MARK_TAIL " start, version 1"
