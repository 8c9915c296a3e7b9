// SPDX-License-Identifier: Apache-2.0
// Drives gas/address_cache_protocol.h over words of this process and, for recalls, over those of other ranks
// of the host. All changes are compare-swaps, sequentially consistent: an entry is one side of the handshake
// with the page's mover, whose other sides are words of the directory and messages.
#include "gas/address_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/memory_file.h"

namespace kasane::gas {
namespace {

constexpr char kWhat[] = "the address cache";

/// Zeroed memory that the other ranks of the host map too.
Result<std::byte*> map_shared(comm::Transport& transport, std::size_t bytes) {
  auto words = transport.make_memory(kAddresses, bytes);
  KASANE_TRY(words);
  KASANE_TRY(transport.attach(kAddresses, -1, *words, bytes));
  return *words;
}

bool shared_with_peers(const comm::Transport& transport) noexcept {
  return transport.facts().completes_inline && transport.ranks() > 1;
}

void count_access(comm::Blocking& io, bool hit) noexcept {
  io.count(hit ? &Counters::address_hits : &Counters::address_misses);
}

AddressCache::Found found_by(std::uint64_t word0) noexcept {
  return {Location::of(word0).owner, false, word0};
}

}  // namespace

Result<std::unique_ptr<AddressCache>> AddressCache::create(const Parts& parts) {
  comm::Transport& transport = parts.transport;
  const std::uint64_t pages = parts.directory.pages().count();
  const std::size_t bytes = pages * sizeof(Word);
  auto words = shared_with_peers(transport) ? map_shared(transport, bytes) : map_sparse(bytes, kWhat);
  KASANE_TRY(words);
  auto reply_token = map_sparse(pages * sizeof(comm::ReplyToken), kWhat);
  if (!reply_token && !shared_with_peers(transport)) ::munmap(*words, bytes);
  KASANE_TRY(reply_token);
  return std::unique_ptr<AddressCache>(new AddressCache(parts, reinterpret_cast<Word*>(*words),
                                                        reinterpret_cast<comm::ReplyToken*>(*reply_token)));
}

AddressCache::AddressCache(const Parts& parts, Word* words, comm::ReplyToken* reply_token)
    : transport_(parts.transport),
      directory_(parts.directory),
      words_(words),
      shared_(shared_with_peers(transport_)),
      sharing_(parts.sharing),
      page_in_(parts.page_in),
      reach_(transport_.ranks()),
      reply_tokens_(reply_token) {
  if (transport_.facts().completes_inline) {
    for (std::uint32_t r = 0; r < transport_.ranks(); ++r)
      reach_[r] = reinterpret_cast<Word*>(transport_.mapped(Rank{r}, kAddresses));
  }
  reach_[raw(transport_.rank())] = words;
  transport_.set_handler(kRecallHandler, &AddressCache::on_recall, this);
}

AddressCache::~AddressCache() {
  if (!shared_) ::munmap(words_, directory_.pages().count() * sizeof(Word));
  ::munmap(reply_tokens_, directory_.pages().count() * sizeof(comm::ReplyToken));
}

// ---- gets and puts ---------------------------------------------------------------------------------------

// A page that was paged in has the version that it had on SSD, and a rank that was registered for it still
// is: so its owner's answer is as good as a second look.
AddressCache::Found AddressCache::find(comm::Blocking& io, PageId page) {
  DirectoryAnswer asked;
  Found found = look(io, page, asked);
  while (is_on_ssd(found)) [[unlikely]] {
    const std::uint64_t word = page_in(io, page, found.owner, asked.word);
    if (word == asked.word) {
      found = look(io, page, asked);
      continue;
    }
    asked.word = word;
    found = found_by(asked.word);
    if (keep(page, asked, AddressEvent::read))
      found = {found.owner, true,
               filled(AddressEntry::of(asked.entry), found.owner, AddressEvent::read).word()};
  }
  return found;
}

AddressCache::Found AddressCache::look(comm::Blocking& io, PageId page) {
  DirectoryAnswer asked;
  return look(io, page, asked);
}

AddressCache::Found AddressCache::look(comm::Blocking& io, PageId page, DirectoryAnswer& asked) {
  if (const auto* near = directory_.near_word(page)) {
    asked = {.word = near->load()};
    return found_by(asked.word);
  }
  asked.entry = words_[raw(page)].load();
  const AddressEntry entry = AddressEntry::of(asked.entry);
  const AddressStep step = next(entry, AddressEvent::read);
  count_access(io, step.action == AddressAction::go);
  if (step.action == AddressAction::go) return {entry.owner, true, asked.entry};
  ask(io, page, asked);
  // if it is not kept: a read only needs to know where the page was just now
  const Found found = found_by(asked.word);
  return keep(page, asked, AddressEvent::read)
             ? Found{found.owner, true, filled(entry, found.owner, AddressEvent::read).word()}
             : found;
}

AddressCache::Found AddressCache::find_here(comm::Blocking& io, PageId page) {
  if (const auto* near = directory_.near_word(page)) {
    const Found found = found_by(near->load());
    return is_on_ssd(found) ? Found{} : found;
  }
  const std::uint64_t seen = words_[raw(page)].load();
  const AddressEntry entry = AddressEntry::of(seen);
  if (next(entry, AddressEvent::read).action != AddressAction::go) return {};
  count_access(io, true);
  return {entry.owner, true, seen};
}

// The word is loaded after the bytes: reads of comm end with an acquire, be they copies (comm/copy.h) or
// completions.
bool AddressCache::stood_here(PageId page, const Found& found) const noexcept {
  if (found.by_entry)
    return gas::stood(AddressEntry::of(found.word), AddressEntry::of(words_[raw(page)].load()));
  const auto* near = directory_.near_word(page);
  return near != nullptr && gas::stood(Location::of(found.word), Location::of(near->load()));
}

bool AddressCache::stood(comm::Blocking& io, PageId page, const Found& found) const {
  if (found.by_entry || directory_.near(page)) return stood_here(page, found);
  return gas::stood(Location::of(found.word), directory_.lookup(io, page));
}

Rank AddressCache::begin_put_here(comm::Blocking& io, PageId page, bool& counted) {
  if (alone()) return directory_.near_owner(page);
  Word& word = words_[raw(page)];
  std::uint64_t seen = word.load();
  for (;;) {
    const AddressEntry entry = AddressEntry::of(seen);
    const AddressStep step = next(entry, AddressEvent::put);
    if (step.action != AddressAction::go) return kNoRank;
    if (!word.compare_exchange_weak(seen, step.after.word())) continue;
    count_access(io, true);
    counted = true;
    return entry.owner;
  }
}

Rank AddressCache::begin_put(comm::Blocking& io, PageId page, bool& counted, Location* on_ssd) {
  if (alone()) return directory_.lookup(io, page).owner;
  Word& word = words_[raw(page)];
  bool hit = true;
  for (;;) {
    std::uint64_t seen = word.load();
    const AddressEntry entry = AddressEntry::of(seen);
    const AddressStep step = next(entry, AddressEvent::put);
    if (step.action == AddressAction::go) {
      if (!word.compare_exchange_weak(seen, step.after.word())) continue;
      count_access(io, hit);
      counted = true;
      return entry.owner;
    }
    if (step.action == AddressAction::wait) {
      io.waiter().pause();
      continue;
    }
    hit = false;
    DirectoryAnswer asked{.entry = seen};
    ask(io, page, asked);
    Location where = Location::of(asked.word);
    if (on_ssd == nullptr && is_on_ssd(where)) {
      asked.word = page_in(io, page, where.owner, asked.word);
      where = Location::of(asked.word);
    }
    counted = keep(page, asked, AddressEvent::put);
    if (counted || !where.allocated) {
      count_access(io, false);
      return where.owner;
    }
    if (where.untouched && !where.busy) {
      touch(io, page, where);  // then an entry of it can be filled
      continue;
    }
    if (on_ssd != nullptr && is_on_ssd(where)) {
      *on_ssd = where;
      return where.owner;
    }
    // not busy: recalled, filled or moved meanwhile
    for (; where.busy; where = directory_.lookup(io, page)) io.waiter().pause();
  }
}

void AddressCache::touch(comm::Blocking& io, PageId page, const Location& found) const {
  directory_.replace(io, page, found, in_tier(touched(found), initial_tier(page)));
}

void AddressCache::end_put(PageId page, PartMask parts, OwnCopies copies) noexcept {
  if (sharing_ != nullptr)
    copies == OwnCopies::renewed ? sharing_->changed(page, parts) : sharing_->changed_directly(page, parts);
  end_use(page);
}

void AddressCache::end_use(PageId page) noexcept {
  Word& word = words_[raw(page)];
  std::uint64_t seen = word.load();
  AddressStep step;
  comm::ReplyToken reply_token{};
  do {
    step = next(AddressEntry::of(seen), AddressEvent::end);
    // Before this use ends: until then the entry stays leaving, so no thread writes there; afterwards the
    // page may move again.
    if (step.action == AddressAction::answer_kept) reply_token = reply_tokens_[raw(page)];
  } while (!word.compare_exchange_weak(seen, step.after.word()));
  if (step.action == AddressAction::answer_kept) transport_.reply(reply_token, 0);
}

/// For many pages at once: each entry is read before its bit is set and word 0 is read.
std::size_t AddressCache::learn(comm::Blocking& io, std::span<const PageId> pages, bool for_puts,
                                PagesIn which) {
  std::array<PageId, kMostLearnt> page;
  std::array<DirectoryAnswer, kMostLearnt> asked;
  std::size_t n = 0;
  for (const PageId p : pages) {
    const auto* const near = for_puts ? nullptr : directory_.near_word(p);
    const DirectoryAnswer here{.entry = words_[raw(p)].load(),
                               .word = near != nullptr ? near->load() : 0,
                               .registers = near == nullptr};
    const bool needed = near != nullptr ? which != PagesIn::none && is_on_ssd(Location::of(here.word))
                                        : next(AddressEntry::of(here.entry), AddressEvent::read).action ==
                                              AddressAction::fill;
    if (!needed) continue;
    page[n] = p;
    asked[n++] = here;
  }
  // a single one is asked for just as well by the thread that needs it; a put would wait
  if (n == 0 || (n == 1 && !for_puts && which == PagesIn::none)) return 0;
  {
    comm::Batch batch(io);
    for (std::size_t i = 0; i < n; ++i) {
      if (asked[i].registers) directory_.add_holder(batch, page[i], &asked[i].holders, &asked[i].word);
    }
  }
  std::size_t absent = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Location where = Location::of(asked[i].word);
    if (!is_on_ssd_elsewhere(where)) continue;
    ++absent;
    if (which == PagesIn::sent_for) page_in_->send_for(page[i], where.owner);
  }
  if (which == PagesIn::all) page_in(io, {page.data(), n}, asked.data());
  for (std::size_t i = 0; i < n; ++i) {
    if (!asked[i].registers) continue;
    count_access(io, false);
    keep(page[i], asked[i], AddressEvent::read);  // else it was recalled or filled meanwhile
  }
  return absent;
}

bool AddressCache::known_here(PageId page, bool for_put) const noexcept {
  if (alone()) return true;
  if (const auto* near = for_put ? nullptr : directory_.near_word(page))
    return readable(Location::of(near->load()));
  return next(AddressEntry::of(words_[raw(page)].load()), for_put ? AddressEvent::put : AddressEvent::read)
             .action == AddressAction::go;
}

void AddressCache::hand_over(comm::Blocking& io, std::span<PageIn::HandOver> pages) const {
  page_in_->hand_over(io, pages);
  for (const PageIn::HandOver& h : pages) {
    if (h.taken && sharing_ != nullptr) sharing_->changed_directly(h.page, kAllParts);
  }
}

/// Pages in those of the pages that are on SSD, with one wait for all.
void AddressCache::page_in(comm::Blocking& io, std::span<const PageId> pages, DirectoryAnswer* asked) const {
  std::array<PageIn::Request, kMostLearnt> requests;
  std::array<DirectoryAnswer*, kMostLearnt> of;
  std::size_t n = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Location where = Location::of(asked[i].word);
    if (!is_on_ssd(where)) continue;
    of[n] = &asked[i];
    requests[n++] = {pages[i], where.owner, asked[i].word};
  }
  if (n == 0) return;
  page_in_->page_in(io, {requests.data(), n});
  for (std::size_t i = 0; i < n; ++i) of[i]->word = requests[i].word;
}

bool AddressCache::is_on_ssd(const Location& where) const noexcept {
  return page_in_ != nullptr && where.allocated && !where.busy && !readable(where);
}

bool AddressCache::is_on_ssd_elsewhere(const Location& where) const noexcept {
  return is_on_ssd(where) && where.owner != transport_.rank();
}

void AddressCache::ask(comm::Blocking& io, PageId page, DirectoryAnswer& asked) const {
  comm::Batch batch(io);
  directory_.add_holder(batch, page, &asked.holders, &asked.word);
  asked.registers = true;
}

bool AddressCache::keep(PageId page, const DirectoryAnswer& asked, AddressEvent wanted) const {
  const Location where = Location::of(asked.word);
  if (!asked.registers || !registered(where, asked.holders)) return false;
  std::uint64_t expected = asked.entry;
  return words_[raw(page)].compare_exchange_strong(
      expected, filled(AddressEntry::of(asked.entry), where.owner, wanted).word());
}

// ---- moves -----------------------------------------------------------------------------------------------

void AddressCache::recall(comm::Blocking& io, PageId page, std::uint64_t holders, std::uint64_t without,
                          comm::Requests& requests) {
  std::uint64_t asked = 0;
  directory_.holder_code().for_each(holders, [&](Rank r) {
    if (r == transport_.rank() || directory_.holder_code().names(without, r)) return;
    if (reach_[raw(r)] != nullptr) {
      take_back(reach_[raw(r)][raw(page)]);
    } else {
      requests.post(r, kRecallHandler, comm::as_payload(page));
    }
    ++asked;
  });
  io.count(&Counters::address_recalls, asked);
}

void AddressCache::recall_own(PageId page) noexcept { take_back(words_[raw(page)]); }

void AddressCache::take_back(Word& word) noexcept {
  std::uint64_t seen = word.load();
  while (!word.compare_exchange_weak(seen, next(AddressEntry::of(seen), AddressEvent::watch).after.word())) {
  }
}

bool AddressCache::recalled(PageId page, std::uint64_t holders) const noexcept {
  bool watched = AddressEntry::of(words_[raw(page)].load()).state == AddressState::watched;
  directory_.holder_code().for_each(holders, [&](Rank r) {
    if (reach_[raw(r)] != nullptr)
      watched |= AddressEntry::of(reach_[raw(r)][raw(page)].load()).state == AddressState::watched;
  });
  return !watched;
}

void AddressCache::on_recall(void* self, const comm::Message& message) noexcept {
  auto& cache = *static_cast<AddressCache*>(self);
  const auto page = value_of<PageId>(message);
  Word& word = cache.words_[raw(page)];
  std::uint64_t seen = word.load();
  AddressStep step;
  do {
    step = next(AddressEntry::of(seen), AddressEvent::recall);
    // published by the compare-swap to leaving
    if (step.action == AddressAction::keep) cache.reply_tokens_[raw(page)] = message.token;
  } while (!word.compare_exchange_weak(seen, step.after.word()));
  if (step.action == AddressAction::answer) cache.transport_.reply(message.token, 0);
}

}  // namespace kasane::gas
