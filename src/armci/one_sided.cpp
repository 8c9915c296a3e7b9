// SPDX-License-Identifier: Apache-2.0
// ARMCI's one-sided calls, as transfers.
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "armci/library.h"
#include "armci/pending.h"
#include "armci/scale.h"
#include "armci/transfers.h"

namespace kasane::armci {
namespace {

std::size_t size_of(const char* call, int bytes) {
  if (bytes < 0) fatal("%s: %d bytes", call, bytes);
  return static_cast<std::size_t>(bytes);
}

Patch patch_of(const char* call, const int* global, const int* local, const int* count, int levels) {
  if (levels < 0 || levels >= static_cast<int>(Patch::kMost)) fatal("%s: %d stride levels", call, levels);
  return Patch::strided(global, local, count, levels);
}

/// Calls issue(pending) and notes under the handle what is left.
template <class Issue>
int non_blocking(armci_hdl_t* handle, const Issue& issue) {
  kasane_pending_t pending = {0};
  issue(&pending);
  note_pending(handle, pending);
  return 0;
}

/// Of a patch: if something of it is on SSD it is only sent for.
int non_blocking(armci_hdl_t* handle, Deferred&& later) {
  if (sent_for(later)) return note_deferred(handle, std::move(later)), 0;
  return non_blocking(handle, [&](kasane_pending_t* p) { transfer(later, p); });
}

int put_later(const char* call, int process, void* to, void* from, const Patch& patch, armci_hdl_t* handle) {
  if (patch.is_small())
    return non_blocking(handle, [&](kasane_pending_t* p) { put({call, process, p}, to, from, patch); });
  return non_blocking(handle, {Deferred::Kind::put, call, process, to, from, patch, 0, {}, {}});
}

int get_later(const char* call, int process, void* from, void* to, const Patch& patch, armci_hdl_t* handle) {
  if (patch.is_small())
    return non_blocking(handle, [&](kasane_pending_t* p) { get({call, process, p}, from, to, patch); });
  return non_blocking(handle, {Deferred::Kind::get, call, process, from, to, patch, 0, {}, {}});
}

int accumulate_later(const char* call, int process, int type, const void* scale, void* to, void* from,
                     const Patch& patch, armci_hdl_t* handle) {
  if (patch.is_small()) {
    return non_blocking(
        handle, [&](kasane_pending_t* p) { accumulate({call, process, p}, type, scale, to, from, patch); });
  }
  Deferred later = {Deferred::Kind::accumulate, call, process, to, from, patch, type, {}, {}};
  if (const Scale s = scale_for(type, scale); s.known) std::memcpy(later.scale, scale, s.type_bytes);
  return non_blocking(handle, std::move(later));
}

/// f(source, destination, bytes) for each segment of the vectors.
template <class F>
void each_segment(const char* call, const armci_giov_t* iov, int length, const F& f) {
  for (int v = 0; v < length; ++v) {
    const std::size_t n = size_of(call, iov[v].bytes);
    for (int i = 0; i < iov[v].ptr_array_len; ++i) f(iov[v].src_ptr_array[i], iov[v].dst_ptr_array[i], n);
  }
}

/// The segments as pieces of global memory; puts: from source to destination.
std::vector<kasane_piece_t> pieces_of(const char* call, const armci_giov_t* iov, int length, bool puts) {
  std::vector<kasane_piece_t> pieces;
  each_segment(call, iov, length, [&](void* from, void* to, std::size_t n) {
    pieces.push_back(puts ? kasane_piece_t{to, from, n} : kasane_piece_t{from, to, n});
  });
  return pieces;
}

/// puts: from this process, else to it.
void copy_vector(const Call& call, const armci_giov_t* iov, int length, bool puts) {
  if (call.process == library.me) {
    return each_segment(call.name, iov, length,
                        [](const void* from, void* to, std::size_t n) { copy_row(to, from, n); });
  }
  const auto pieces = pieces_of(call.name, iov, length, puts);
  if (pieces.empty()) return;
  const int code = (puts ? kasane_put_vector : kasane_get_vector)(pieces.data(), pieces.size(), call.pending);
  if (code != 0) fatal_at(call.name, call.process, pieces.front().global, code);
}

/// All are issued before the first is waited for.
void accumulate_vector(const Call& call, int type, const void* scale, const armci_giov_t* iov, int length) {
  kasane_pending_t mine = {0};
  const Call each = {call.name, call.process, call.pending != nullptr ? call.pending : &mine};
  each_segment(call.name, iov, length, [&](const void* from, void* to, std::size_t n) {
    accumulate(each, type, scale, to, from, Patch::bytes(n));
  });
  if (mine.id == 0) return;
  const int code = kasane_wait(&mine);
  if (code != 0) fatal_at(call.name, call.process, nullptr, code);
}

template <class T>
int put_value(const char* call, T value, void* to, int process) {
  return put({call, process}, to, &value, Patch::bytes(sizeof value)), 0;
}
template <class T>
int put_value_later(const char* call, T value, void* to, int process, armci_hdl_t* handle) {
  return non_blocking(
      handle, [&](kasane_pending_t* p) { put({call, process, p}, to, &value, Patch::bytes(sizeof value)); });
}
template <class T>
T get_value(const char* call, const void* from, int process) {
  T value{};
  get({call, process}, from, &value, Patch::bytes(sizeof value));
  return value;
}

/// An atomic on an integer of type T at `at`; returns its old value.
template <class T>
T atomic(const Call& call, kasane_atomic_op_t op, T operand, void* at) {
  uint64_t old = 0;
  const int code = kasane_atomic(op, sizeof(T), at, static_cast<uint64_t>(operand), 0, &old, nullptr);
  if (code == 0) [[likely]]
    return static_cast<T>(old);
  uint32_t rank = 0;
  if (call.process != library.me || kasane_where(at, &rank) == 0) fatal_at(call.name, call.process, at, code);
  need_started(call.name);  // in this process's private memory
  auto* const here = static_cast<T*>(at);
  return op == KASANE_SWAP ? __atomic_exchange_n(here, operand, __ATOMIC_SEQ_CST)
                           : __atomic_fetch_add(here, operand, __ATOMIC_SEQ_CST);
}

template <class T>
void read_modify_write(const Call& call, kasane_atomic_op_t op, void* local, void* at, int value) {
  T operand = static_cast<T>(value);
  if (op == KASANE_SWAP) std::memcpy(&operand, local, sizeof operand);
  const T old = atomic<T>(call, op, operand, at);
  std::memcpy(local, &old, sizeof old);
}

/// Copies the rows of a patch to or from a packed buffer.
template <class Copy>
void pack(void* address, int levels, const int* strides, const int* count, char* buffer, const Copy& copy) {
  const Patch p = patch_of("armci_write_strided", strides, strides, count, levels);
  each_row(p, p.dimensions, static_cast<char*>(address), buffer, [&](char* row, char*, std::size_t n) {
    copy(row, buffer, n);
    buffer += n;
  });
}

}  // namespace
}  // namespace kasane::armci

using namespace kasane::armci;  // NOLINT(google-build-using-namespace): what follows are its entry points

extern "C" {

// ---- contiguous ------------------------------------------------------------------------------------------

int PARMCI_Put(void* src, void* dst, int size, int target) {
  return put({"ARMCI_Put", target}, dst, src, Patch::bytes(size_of("ARMCI_Put", size))), 0;
}
int PARMCI_Get(void* src, void* dst, int size, int target) {
  return get({"ARMCI_Get", target}, src, dst, Patch::bytes(size_of("ARMCI_Get", size))), 0;
}
int PARMCI_Acc(int datatype, void* scale, void* src, void* dst, int bytes, int proc) {
  const Patch patch = Patch::bytes(size_of("ARMCI_Acc", bytes));
  return accumulate({"ARMCI_Acc", proc}, datatype, scale, dst, src, patch), 0;
}
int PARMCI_NbPut(void* src, void* dst, int bytes, int proc, armci_hdl_t* hdl) {
  const Patch patch = Patch::bytes(size_of("ARMCI_NbPut", bytes));
  return put_later("ARMCI_NbPut", proc, dst, src, patch, hdl);
}
int PARMCI_NbGet(void* src, void* dst, int bytes, int proc, armci_hdl_t* hdl) {
  const Patch patch = Patch::bytes(size_of("ARMCI_NbGet", bytes));
  return get_later("ARMCI_NbGet", proc, src, dst, patch, hdl);
}
int PARMCI_NbAcc(int datatype, void* scale, void* src, void* dst, int bytes, int proc, armci_hdl_t* hdl) {
  const Patch patch = Patch::bytes(size_of("ARMCI_NbAcc", bytes));
  return accumulate_later("ARMCI_NbAcc", proc, datatype, scale, dst, src, patch, hdl);
}
void ARMCI_Copy(void* src, void* dst, int size) { std::memmove(dst, src, size_of("ARMCI_Copy", size)); }

// ---- strided ---------------------------------------------------------------------------------------------

int PARMCI_PutS(void* src, int src_stride[], void* dst, int dst_stride[], int count[], int levels, int proc) {
  const Patch patch = patch_of("ARMCI_PutS", dst_stride, src_stride, count, levels);
  return put({"ARMCI_PutS", proc}, dst, src, patch), 0;
}
int PARMCI_GetS(void* src, int src_stride[], void* dst, int dst_stride[], int count[], int levels, int proc) {
  const Patch patch = patch_of("ARMCI_GetS", src_stride, dst_stride, count, levels);
  return get({"ARMCI_GetS", proc}, src, dst, patch), 0;
}
int PARMCI_AccS(int datatype, void* scale, void* src, int src_stride[], void* dst, int dst_stride[],
                int count[], int levels, int proc) {
  const Patch patch = patch_of("ARMCI_AccS", dst_stride, src_stride, count, levels);
  return accumulate({"ARMCI_AccS", proc}, datatype, scale, dst, src, patch), 0;
}
int PARMCI_NbPutS(void* src, int src_stride[], void* dst, int dst_stride[], int count[], int levels, int proc,
                  armci_hdl_t* hdl) {
  const Patch patch = patch_of("ARMCI_NbPutS", dst_stride, src_stride, count, levels);
  return put_later("ARMCI_NbPutS", proc, dst, src, patch, hdl);
}
int PARMCI_NbGetS(void* src, int src_stride[], void* dst, int dst_stride[], int count[], int levels, int proc,
                  armci_hdl_t* hdl) {
  const Patch patch = patch_of("ARMCI_NbGetS", src_stride, dst_stride, count, levels);
  return get_later("ARMCI_NbGetS", proc, src, dst, patch, hdl);
}
int PARMCI_NbAccS(int datatype, void* scale, void* src, int src_stride[], void* dst, int dst_stride[],
                  int count[], int levels, int proc, armci_hdl_t* hdl) {
  const Patch patch = patch_of("ARMCI_NbAccS", dst_stride, src_stride, count, levels);
  return accumulate_later("ARMCI_NbAccS", proc, datatype, scale, dst, src, patch, hdl);
}
void armci_write_strided(void* ptr, int levels, int stride[], int count[], char* buf) {
  pack(ptr, levels, stride, count, buf, [](char* row, char* to, std::size_t n) { copy_row(to, row, n); });
}
void armci_read_strided(void* ptr, int levels, int stride[], int count[], char* buf) {
  pack(ptr, levels, stride, count, buf, [](char* row, char* from, std::size_t n) { copy_row(row, from, n); });
}

// ---- with a flag that is set after the data --------------------------------------------------------------

int PARMCI_Put_flag(void* src, void* dst, int size, int* flag, int value, int proc) {
  put({"ARMCI_Put_flag", proc}, dst, src, Patch::bytes(size_of("ARMCI_Put_flag", size)));
  return put_value("ARMCI_Put_flag", value, flag, proc);
}
int PARMCI_PutS_flag(void* src, int src_stride[], void* dst, int dst_stride[], int count[], int levels,
                     int* flag, int value, int proc) {
  const Patch patch = patch_of("ARMCI_PutS_flag", dst_stride, src_stride, count, levels);
  put({"ARMCI_PutS_flag", proc}, dst, src, patch);
  return put_value("ARMCI_PutS_flag", value, flag, proc);
}

// ---- vectors ---------------------------------------------------------------------------------------------

int PARMCI_PutV(armci_giov_t* iov, int iov_len, int proc) {
  return copy_vector({"ARMCI_PutV", proc}, iov, iov_len, true), 0;
}
int PARMCI_GetV(armci_giov_t* iov, int iov_len, int proc) {
  return copy_vector({"ARMCI_GetV", proc}, iov, iov_len, false), 0;
}
int PARMCI_AccV(int datatype, void* scale, armci_giov_t* iov, int iov_len, int proc) {
  return accumulate_vector({"ARMCI_AccV", proc}, datatype, scale, iov, iov_len), 0;
}
int PARMCI_NbPutV(armci_giov_t* iov, int iov_len, int proc, armci_hdl_t* handle) {
  return non_blocking(
      handle, [&](kasane_pending_t* p) { copy_vector({"ARMCI_NbPutV", proc, p}, iov, iov_len, true); });
}
int PARMCI_NbGetV(armci_giov_t* iov, int iov_len, int proc, armci_hdl_t* handle) {
  return non_blocking(
      handle, [&](kasane_pending_t* p) { copy_vector({"ARMCI_NbGetV", proc, p}, iov, iov_len, false); });
}
int PARMCI_NbAccV(int datatype, void* scale, armci_giov_t* iov, int iov_len, int proc, armci_hdl_t* handle) {
  return non_blocking(handle, [&](kasane_pending_t* p) {
    accumulate_vector({"ARMCI_NbAccV", proc, p}, datatype, scale, iov, iov_len);
  });
}

// ---- values ----------------------------------------------------------------------------------------------

int PARMCI_PutValueInt(int src, void* dst, int proc) {
  return put_value("ARMCI_PutValueInt", src, dst, proc);
}
int PARMCI_PutValueLong(long src, void* dst, int proc) {
  return put_value("ARMCI_PutValueLong", src, dst, proc);
}
int PARMCI_PutValueFloat(float src, void* dst, int proc) {
  return put_value("ARMCI_PutValueFloat", src, dst, proc);
}
int PARMCI_PutValueDouble(double src, void* dst, int proc) {
  return put_value("ARMCI_PutValueDouble", src, dst, proc);
}
int PARMCI_NbPutValueInt(int src, void* dst, int proc, armci_hdl_t* hdl) {
  return put_value_later("ARMCI_NbPutValueInt", src, dst, proc, hdl);
}
int PARMCI_NbPutValueLong(long src, void* dst, int proc, armci_hdl_t* hdl) {
  return put_value_later("ARMCI_NbPutValueLong", src, dst, proc, hdl);
}
int PARMCI_NbPutValueFloat(float src, void* dst, int proc, armci_hdl_t* hdl) {
  return put_value_later("ARMCI_NbPutValueFloat", src, dst, proc, hdl);
}
int PARMCI_NbPutValueDouble(double src, void* dst, int proc, armci_hdl_t* hdl) {
  return put_value_later("ARMCI_NbPutValueDouble", src, dst, proc, hdl);
}
int PARMCI_GetValueInt(void* src, int proc) { return get_value<int>("ARMCI_GetValueInt", src, proc); }
long PARMCI_GetValueLong(void* src, int proc) { return get_value<long>("ARMCI_GetValueLong", src, proc); }
float PARMCI_GetValueFloat(void* src, int proc) { return get_value<float>("ARMCI_GetValueFloat", src, proc); }
double PARMCI_GetValueDouble(void* src, int proc) {
  return get_value<double>("ARMCI_GetValueDouble", src, proc);
}

int PARMCI_Rmw(int op, void* ploc, void* prem, int value, int proc) {
  const Call call = {"ARMCI_Rmw", proc};
  switch (op) {
    case ARMCI_FETCH_AND_ADD: read_modify_write<int>(call, KASANE_FETCH_ADD, ploc, prem, value); break;
    case ARMCI_FETCH_AND_ADD_LONG: read_modify_write<long>(call, KASANE_FETCH_ADD, ploc, prem, value); break;
    case ARMCI_SWAP: read_modify_write<int>(call, KASANE_SWAP, ploc, prem, value); break;
    case ARMCI_SWAP_LONG: read_modify_write<long>(call, KASANE_SWAP, ploc, prem, value); break;
    default: fatal("ARMCI_Rmw: no operation %d", op);
  }
  return 0;
}

}  // extern "C"

KASANE_WEAK_ALIAS(ARMCI_Put, PARMCI_Put);
KASANE_WEAK_ALIAS(ARMCI_Get, PARMCI_Get);
KASANE_WEAK_ALIAS(ARMCI_Acc, PARMCI_Acc);
KASANE_WEAK_ALIAS(ARMCI_NbPut, PARMCI_NbPut);
KASANE_WEAK_ALIAS(ARMCI_NbGet, PARMCI_NbGet);
KASANE_WEAK_ALIAS(ARMCI_NbAcc, PARMCI_NbAcc);
KASANE_WEAK_ALIAS(ARMCI_PutS, PARMCI_PutS);
KASANE_WEAK_ALIAS(ARMCI_GetS, PARMCI_GetS);
KASANE_WEAK_ALIAS(ARMCI_AccS, PARMCI_AccS);
KASANE_WEAK_ALIAS(ARMCI_NbPutS, PARMCI_NbPutS);
KASANE_WEAK_ALIAS(ARMCI_NbGetS, PARMCI_NbGetS);
KASANE_WEAK_ALIAS(ARMCI_NbAccS, PARMCI_NbAccS);
KASANE_WEAK_ALIAS(ARMCI_Put_flag, PARMCI_Put_flag);
KASANE_WEAK_ALIAS(ARMCI_PutS_flag, PARMCI_PutS_flag);
KASANE_WEAK_ALIAS(ARMCI_PutV, PARMCI_PutV);
KASANE_WEAK_ALIAS(ARMCI_GetV, PARMCI_GetV);
KASANE_WEAK_ALIAS(ARMCI_AccV, PARMCI_AccV);
KASANE_WEAK_ALIAS(ARMCI_NbPutV, PARMCI_NbPutV);
KASANE_WEAK_ALIAS(ARMCI_NbGetV, PARMCI_NbGetV);
KASANE_WEAK_ALIAS(ARMCI_NbAccV, PARMCI_NbAccV);
KASANE_WEAK_ALIAS(ARMCI_PutValueInt, PARMCI_PutValueInt);
KASANE_WEAK_ALIAS(ARMCI_PutValueLong, PARMCI_PutValueLong);
KASANE_WEAK_ALIAS(ARMCI_PutValueFloat, PARMCI_PutValueFloat);
KASANE_WEAK_ALIAS(ARMCI_PutValueDouble, PARMCI_PutValueDouble);
KASANE_WEAK_ALIAS(ARMCI_NbPutValueInt, PARMCI_NbPutValueInt);
KASANE_WEAK_ALIAS(ARMCI_NbPutValueLong, PARMCI_NbPutValueLong);
KASANE_WEAK_ALIAS(ARMCI_NbPutValueFloat, PARMCI_NbPutValueFloat);
KASANE_WEAK_ALIAS(ARMCI_NbPutValueDouble, PARMCI_NbPutValueDouble);
KASANE_WEAK_ALIAS(ARMCI_GetValueInt, PARMCI_GetValueInt);
KASANE_WEAK_ALIAS(ARMCI_GetValueLong, PARMCI_GetValueLong);
KASANE_WEAK_ALIAS(ARMCI_GetValueFloat, PARMCI_GetValueFloat);
KASANE_WEAK_ALIAS(ARMCI_GetValueDouble, PARMCI_GetValueDouble);
KASANE_WEAK_ALIAS(ARMCI_Rmw, PARMCI_Rmw);
