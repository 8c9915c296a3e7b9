// SPDX-License-Identifier: Apache-2.0
// Groups: a communicator of the MPI each. Only the members of a new group take part in its creation, so it is
// the same whether the other processes of the parent call it or not. Domains: each process is one.
#include <cstdlib>
#include <numeric>
#include <vector>

#include "armci/library.h"

namespace kasane::armci {
namespace {

/// of: of ranks of the world in the group, or of ranks of the group in the world.
int* translated(MPI_Group from, int count, MPI_Group to) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  auto* const result = static_cast<int*>(std::malloc(sizeof(int) * static_cast<std::size_t>(count)));
  if (result == nullptr) fatal("no memory for a group of %d processes", count);
  MPI_Group_translate_ranks(from, count, numbers.data(), to, result);
  for (int i = 0; i < count; ++i) {
    if (result[i] == MPI_UNDEFINED) result[i] = -1;
  }
  return result;
}

bool is_member(const ARMCI_Group& parent, int size, const int* members) noexcept {
  for (int i = 0; i < size; ++i) {
    if (members[i] == parent.rank) return true;
  }
  return false;
}

void create(int size, const int* members, ARMCI_Group& out, const ARMCI_Group& parent) {
  need_started("ARMCI_Group_create");
  constexpr int kTag = 0x4b41;
  MPI_Comm comm = MPI_COMM_NULL;
  if (is_member(parent, size, members)) {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm_group(parent.comm, &all);
    MPI_Group_incl(all, size, members, &some);
    MPI_Comm_create_group(parent.comm, some, kTag, &comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
  }
  out.comm = comm;
  describe_group(out);
}

}  // namespace

void describe_group(ARMCI_Group& group) {
  group.noncoll_pgroup_comm = MPI_COMM_NULL;
  group.grp_to_abs = group.abs_to_grp = nullptr;
  group.rank = -1;
  group.size = 0;
  if (group.comm == MPI_COMM_NULL) return;
  MPI_Comm_rank(group.comm, &group.rank);
  MPI_Comm_size(group.comm, &group.size);
  if (group.comm == library.world.comm) return;
  MPI_Group world = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
  MPI_Comm_group(library.world.comm, &world);
  MPI_Comm_group(group.comm, &mine);
  group.grp_to_abs = translated(mine, group.size, world);
  group.abs_to_grp = translated(world, library.size, mine);
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
}

int number_in(const ARMCI_Group& group, int process) {
  if (process < 0 || process >= library.size) return -1;
  return group.abs_to_grp == nullptr ? process : group.abs_to_grp[process];
}

namespace {
/// By the MPI, whose messages make progress meanwhile: another process may wait for one that this process has
/// begun to send.
void wait_for(MPI_Request request) {
  Patience patience;
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0;) patience.wait();
}
}  // namespace

/// Nothing is to be released or acquired: accesses complete at the owner, where all meet in one frame.
void group_barrier(const ARMCI_Group& group) {
  if (group.comm == library.world.comm && meet_all()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(group.comm, &request);
  wait_for(request);
}

void group_gather(const ARMCI_Group& group, const void* mine, void* all, std::size_t bytes) {
  const int n = static_cast<int>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, group.comm, &request);
  wait_for(request);
}

}  // namespace kasane::armci

using kasane::armci::describe_group, kasane::armci::library;

extern "C" {

void ARMCI_Group_create(int grp_size, int* pid_list, ARMCI_Group* group_out) {
  kasane::armci::create(grp_size, pid_list, *group_out, library.default_group);
}
void ARMCI_Group_create_child(int grp_size, int* pid_list, ARMCI_Group* group_out,
                              ARMCI_Group* group_parent) {
  kasane::armci::create(grp_size, pid_list, *group_out, *group_parent);
}
void ARMCI_Group_free(ARMCI_Group* group) {
  if (group->comm != MPI_COMM_NULL) MPI_Comm_free(&group->comm);
  std::free(group->grp_to_abs);
  std::free(group->abs_to_grp);
  describe_group(*group);
}
int ARMCI_Group_rank(ARMCI_Group* group, int* rank) {
  *rank = group->rank;
  return group->rank >= 0 ? 0 : 1;
}
void ARMCI_Group_size(ARMCI_Group* group, int* size) { *size = group->size; }
void ARMCI_Group_set_default(ARMCI_Group* group) { library.default_group = *group; }
void ARMCI_Group_get_default(ARMCI_Group* group_out) { *group_out = library.default_group; }
void ARMCI_Group_get_world(ARMCI_Group* group_out) { *group_out = library.world; }
int ARMCI_Absolute_id(ARMCI_Group* group, int group_rank) {
  if (group_rank < 0 || group_rank >= group->size) return -1;
  return group->grp_to_abs == nullptr ? group_rank : group->grp_to_abs[group_rank];
}
MPI_Comm armci_group_comm(ARMCI_Group* group) { return group->comm; }

int ARMCIX_Group_split(ARMCI_Group* parent, int color, int key, ARMCI_Group* new_group) {
  const int error = MPI_Comm_split(parent->comm, color, key, &new_group->comm);
  if (error == MPI_SUCCESS) describe_group(*new_group);
  return error;
}
int ARMCIX_Group_dup(ARMCI_Group* parent, ARMCI_Group* new_group) {
  const int error = MPI_Comm_dup(parent->comm, &new_group->comm);
  if (error == MPI_SUCCESS) describe_group(*new_group);
  return error;
}

// ---- domains ---------------------------------------------------------------------------------------------

int armci_domain_nprocs(armci_domain_t, int) { return 1; }
int armci_domain_id(armci_domain_t, int glob_proc_id) { return glob_proc_id; }
int armci_domain_glob_proc_id(armci_domain_t, int id, int) { return id; }
int armci_domain_my_id(armci_domain_t) { return library.me; }
int armci_domain_count(armci_domain_t) { return library.size; }
int armci_domain_same_id(armci_domain_t, int proc) { return proc == library.me ? 1 : 0; }
int ARMCI_Same_node(int proc) { return proc == library.me ? 1 : 0; }

// Programs ask these to find memory that they may load and store without ARMCI: only their own.
int ARMCI_Uses_shm() { return 0; }
int ARMCI_Uses_shm_grp(ARMCI_Group*) { return 0; }
void ARMCI_Set_shm_limit(unsigned long) {}

}  // extern "C"
