// SPDX-License-Identifier: Apache-2.0
// armci_msg_*: messages and collective operations, by the MPI.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "armci/library.h"

namespace kasane::armci {
namespace {

MPI_Comm comm_of(int scope, const ARMCI_Group& group) noexcept {
  return scope == SCOPE_NODE ? MPI_COMM_SELF : group.comm;
}

MPI_Datatype type_of(int type) {
  switch (type) {
    case ARMCI_INT: return MPI_INT;
    case ARMCI_LONG: return MPI_LONG;
    case ARMCI_LONG_LONG: return MPI_LONG_LONG;
    case ARMCI_FLOAT: return MPI_FLOAT;
    case ARMCI_DOUBLE: return MPI_DOUBLE;
    default: fatal("armci_msg: no type %d", type);
  }
}

/// absolute: the operation is on absolute values.
MPI_Op operation(const char* op, bool& absolute) {
  const std::string_view name(op);
  absolute = name.starts_with("abs");
  const std::string_view rest = absolute ? name.substr(3) : name;
  if (rest.starts_with("max")) return MPI_MAX;
  if (rest.starts_with("min")) return MPI_MIN;
  if (absolute) fatal("armci_msg: no operation '%s'", op);
  if (name.starts_with("+")) return MPI_SUM;
  if (name.starts_with("*")) return MPI_PROD;
  if (name.starts_with("&&") || name.starts_with("land")) return MPI_LAND;
  if (name.starts_with("||") || name.starts_with("lor")) return MPI_LOR;
  if (name.starts_with("&") || name.starts_with("band")) return MPI_BAND;
  if (name.starts_with("|") || name.starts_with("bor") || name.starts_with("or")) return MPI_BOR;
  fatal("armci_msg: no operation '%s'", op);
}

template <class T>
void absolute_values(void* x, int n) noexcept {
  auto* const values = static_cast<T*>(x);
  for (int i = 0; i < n; ++i) values[i] = std::abs(values[i]);
}

void take_absolute(void* x, int n, int type) noexcept {
  switch (type) {
    case ARMCI_INT: return absolute_values<int>(x, n);
    case ARMCI_LONG: return absolute_values<long>(x, n);
    case ARMCI_LONG_LONG: return absolute_values<long long>(x, n);
    case ARMCI_FLOAT: return absolute_values<float>(x, n);
    default: return absolute_values<double>(x, n);
  }
}

/// The operation; if it is one of absolute values, x has them afterwards.
MPI_Op prepare(void* x, int n, const char* op, int type) {
  bool absolute = false;
  const MPI_Op with = operation(op, absolute);
  if (absolute) take_absolute(x, n, type);
  return with;
}

void reduce_all(MPI_Comm comm, void* x, int n, const char* op, int type) {
  const MPI_Datatype of = type_of(type);
  const MPI_Op with = prepare(x, n, op, type);
  MPI_Allreduce(MPI_IN_PLACE, x, n, of, with, comm);
}

/// The result is at process 0 of the communicator.
void reduce_to_first(MPI_Comm comm, void* x, int n, const char* op, int type) {
  const MPI_Datatype of = type_of(type);
  const MPI_Op with = prepare(x, n, op, type);
  int me = 0;
  MPI_Comm_rank(comm, &me);
  MPI_Reduce(me == 0 ? MPI_IN_PLACE : x, x, n, of, with, 0, comm);
}

struct Candidate {
  long contributes;
  long double value;  ///< holds each value of each type
};

template <class T>
long double first_as(const void* x) noexcept {
  T value;
  std::memcpy(&value, x, sizeof value);
  return static_cast<long double>(value);
}

long double first_of(const void* x, int type) {
  switch (type) {
    case ARMCI_INT: return first_as<int>(x);
    case ARMCI_LONG: return first_as<long>(x);
    case ARMCI_LONG_LONG: return first_as<long long>(x);
    case ARMCI_FLOAT: return first_as<float>(x);
    case ARMCI_DOUBLE: return first_as<double>(x);
    default: fatal("armci_msg_sel: no type %d", type);
  }
}

/// The process whose contribution is selected, the first of several; -1: none contributes.
int selected(const std::vector<Candidate>& all, bool greatest) noexcept {
  int best = -1;
  for (std::size_t p = 0; p < all.size(); ++p) {
    if (all[p].contributes == 0) continue;
    const long double old = best < 0 ? 0 : all[static_cast<std::size_t>(best)].value;
    if (best < 0 || (greatest ? all[p].value > old : all[p].value < old)) best = static_cast<int>(p);
  }
  return best;
}

void select(MPI_Comm comm, void* x, int bytes, const char* op, int type, int contribute) {
  const std::string_view name(op);
  const bool greatest = name.starts_with("max");
  if (!greatest && !name.starts_with("min")) fatal("armci_msg_sel: no operation '%s'", op);
  Candidate mine = {contribute != 0, contribute != 0 ? first_of(x, type) : 0.0L};
  int size = 1;
  MPI_Comm_size(comm, &size);
  std::vector<Candidate> all(static_cast<std::size_t>(size));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm);
  const int best = selected(all, greatest);
  if (best >= 0) MPI_Bcast(x, bytes, MPI_BYTE, best, comm);
}

int receive(int tag, void* buffer, int bytes, int* received, int from) {
  MPI_Status status;
  MPI_Recv(buffer, bytes, MPI_BYTE, from, tag, library.world.comm, &status);
  if (received != nullptr) MPI_Get_count(&status, MPI_BYTE, received);
  return status.MPI_SOURCE;
}

}  // namespace
}  // namespace kasane::armci

using namespace kasane::armci;  // NOLINT(google-build-using-namespace): what follows are its entry points

extern "C" {

int armci_msg_me() { return library.me; }
int armci_msg_nproc() { return library.size; }
void armci_msg_abort(int code) { MPI_Abort(library.starts != 0 ? library.world.comm : MPI_COMM_WORLD, code); }
double armci_timer() { return MPI_Wtime(); }

void armci_msg_snd(int tag, void* buffer, int len, int to) {
  MPI_Send(buffer, len, MPI_BYTE, to, tag, library.world.comm);
}
void armci_msg_rcv(int tag, void* buffer, int buflen, int* msglen, int from) {
  receive(tag, buffer, buflen, msglen, from);
}
int armci_msg_rcvany(int tag, void* buffer, int buflen, int* msglen) {
  return receive(tag, buffer, buflen, msglen, MPI_ANY_SOURCE);
}

void parmci_msg_barrier() { group_barrier(library.world); }
void parmci_msg_group_barrier(ARMCI_Group* group) { group_barrier(*group); }

void armci_msg_bintree(int scope, int* Root, int* Up, int* Left, int* Right) {
  const int me = library.me;
  const bool all = scope != SCOPE_NODE;
  *Root = all ? 0 : me;
  *Up = all && me != 0 ? (me - 1) / 2 : -1;
  *Left = all && 2 * me + 1 < library.size ? 2 * me + 1 : -1;
  *Right = all && 2 * me + 2 < library.size ? 2 * me + 2 : -1;
}

void armci_msg_group_bcast_scope(int scope, void* buf, int len, int root, ARMCI_Group* group) {
  if (scope == SCOPE_NODE) return;  // of one process
  const int first = number_in(*group, root);
  if (first < 0) fatal("armci_msg_group_bcast_scope: process %d is not in the group", root);
  MPI_Bcast(buf, len, MPI_BYTE, first, group->comm);
}
void armci_msg_bcast_scope(int scope, void* buffer, int len, int root) {
  armci_msg_group_bcast_scope(scope, buffer, len, root, &library.world);
}
void armci_msg_bcast(void* buffer, int len, int root) { armci_msg_bcast_scope(SCOPE_ALL, buffer, len, root); }
void armci_msg_brdcst(void* buffer, int len, int root) {
  armci_msg_bcast_scope(SCOPE_ALL, buffer, len, root);
}

void armci_msg_reduce_scope(int scope, void* x, int n, char* op, int type) {
  reduce_to_first(comm_of(scope, library.world), x, n, op, type);
}
void armci_msg_reduce(void* x, int n, char* op, int type) {
  armci_msg_reduce_scope(SCOPE_ALL, x, n, op, type);
}

void armci_msg_sel_scope(int scope, void* x, int n, char* op, int type, int contribute) {
  select(comm_of(scope, library.world), x, n, op, type, contribute);
}
void armci_msg_sel(void* x, int n, char* op, int type, int contribute) {
  armci_msg_sel_scope(SCOPE_ALL, x, n, op, type, contribute);
}

void armci_msg_group_gop_scope(int scope, void* x, int n, char* op, int type, ARMCI_Group* group) {
  reduce_all(comm_of(scope, *group), x, n, op, type);
}
void armci_msg_gop_scope(int scope, void* x, int n, char* op, int type) {
  reduce_all(comm_of(scope, library.world), x, n, op, type);
}
void armci_msg_igop(int* x, int n, char* op) { reduce_all(library.world.comm, x, n, op, ARMCI_INT); }
void armci_msg_lgop(long* x, int n, char* op) { reduce_all(library.world.comm, x, n, op, ARMCI_LONG); }
void armci_msg_llgop(long long* x, int n, char* op) {
  reduce_all(library.world.comm, x, n, op, ARMCI_LONG_LONG);
}
void armci_msg_fgop(float* x, int n, char* op) { reduce_all(library.world.comm, x, n, op, ARMCI_FLOAT); }
void armci_msg_dgop(double* x, int n, char* op) { reduce_all(library.world.comm, x, n, op, ARMCI_DOUBLE); }
void armci_msg_group_igop(int* x, int n, char* op, ARMCI_Group* g) {
  reduce_all(g->comm, x, n, op, ARMCI_INT);
}
void armci_msg_group_lgop(long* x, int n, char* op, ARMCI_Group* g) {
  reduce_all(g->comm, x, n, op, ARMCI_LONG);
}
void armci_msg_group_llgop(long long* x, int n, char* op, ARMCI_Group* g) {
  reduce_all(g->comm, x, n, op, ARMCI_LONG_LONG);
}
void armci_msg_group_fgop(float* x, int n, char* op, ARMCI_Group* g) {
  reduce_all(g->comm, x, n, op, ARMCI_FLOAT);
}
void armci_msg_group_dgop(double* x, int n, char* op, ARMCI_Group* g) {
  reduce_all(g->comm, x, n, op, ARMCI_DOUBLE);
}

}  // extern "C"

KASANE_WEAK_ALIAS(armci_msg_barrier, parmci_msg_barrier);
KASANE_WEAK_ALIAS(armci_msg_group_barrier, parmci_msg_group_barrier);
