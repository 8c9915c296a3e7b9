// SPDX-License-Identifier: Apache-2.0
#include "runtime/options.h"
#include <cstdlib>
namespace kasane::runtime {
static std::uint64_t num(const char* n, std::uint64_t d){ const char* v=getenv(n); if(!v) return d; char* e; std::uint64_t x=strtoull(v,&e,0); switch(*e){case 'T':x<<=10;[[fallthrough]];case 'G':x<<=10;[[fallthrough]];case 'M':x<<=10;[[fallthrough]];case 'K':x<<=10;} return x; }
Result<Options> options_from_environment(){ Options o; o.ranks=num("KASANE_RANKS",1); o.workers=num("KASANE_WORKERS",0); o.space_bytes=num("KASANE_SPACE",o.space_bytes); o.stack_bytes=num("KASANE_STACK",o.stack_bytes); o.slots=num("KASANE_SLOTS",0);
 const char* m=getenv("KASANE_MAIN"); o.main_in_every_rank = m && std::string(m)=="all"; return o; }
}
