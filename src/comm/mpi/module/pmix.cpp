// SPDX-License-Identifier: Apache-2.0
// kasane-pmix.so: libpmix behind the table of comm/mpi/pmix_module.h.
#include <pmix.h>

#include <atomic>

#include "comm/mpi/pmix_module.h"

namespace {

using kasane::comm::mpi::PmixModule;

pmix_proc_t g_self;
/// of the fence under way; kUnderWay until it has ended
constexpr int kUnderWay = 1;
std::atomic<int> g_fence{PMIX_SUCCESS};

const char* text_of(pmix_status_t status) {
  return status == PMIX_SUCCESS ? nullptr : PMIx_Error_string(status);
}

const char* init(std::uint32_t* rank, std::uint32_t* ranks) {
  if (const char* why = text_of(PMIx_Init(&g_self, nullptr, 0))) return why;
  pmix_proc_t job;
  PMIX_LOAD_PROCID(&job, g_self.nspace, PMIX_RANK_WILDCARD);
  pmix_value_t* size = nullptr;
  if (const char* why = text_of(PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &size))) return why;
  *rank = g_self.rank;
  const bool fits = size->type == PMIX_UINT32;
  *ranks = size->data.uint32;
  PMIX_VALUE_RELEASE(size);
  return fits ? nullptr : "a size of the job of another type";
}

const char* begin(const char* key, const char* data, std::size_t bytes) {
  pmix_value_t value;
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(data);
  value.data.bo.size = bytes;
  if (const char* why = text_of(PMIx_Put(PMIX_GLOBAL, key, &value))) return why;
  if (const char* why = text_of(PMIx_Commit())) return why;
  static pmix_info_t collect;  // read until the fence has ended
  bool yes = true;
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  g_fence.store(kUnderWay);
  const auto ended = [](pmix_status_t status, void*) { g_fence.store(status); };
  const pmix_status_t status = PMIx_Fence_nb(nullptr, 0, &collect, 1, ended, nullptr);
  if (status == PMIX_OPERATION_SUCCEEDED) return g_fence.store(PMIX_SUCCESS), nullptr;
  return text_of(status);
}

const char* done(bool* done) {
  const int status = g_fence.load();
  *done = status != kUnderWay;
  return *done ? text_of(status) : nullptr;
}

const char* get(std::uint32_t rank, const char* key, void (*take)(void*, const char*, std::size_t),
                void* into) {
  pmix_proc_t other;
  PMIX_LOAD_PROCID(&other, g_self.nspace, rank);
  pmix_value_t* value = nullptr;
  if (const char* why = text_of(PMIx_Get(&other, key, nullptr, 0, &value))) return why;
  const bool fits = value->type == PMIX_BYTE_OBJECT;
  if (fits) take(into, value->data.bo.bytes, value->data.bo.size);
  PMIX_VALUE_RELEASE(value);
  return fits ? nullptr : "a value of another type";
}

void finalize() { PMIx_Finalize(nullptr, 0); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const PmixModule kasane_pmix_module;
const PmixModule kasane_pmix_module = {PmixModule::kAbi, sizeof(PmixModule), init, begin, done, get,
                                       finalize};
