// SPDX-License-Identifier: Apache-2.0
// What callers see of a graph.
#include "graph/layout.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "graph/beyond_dram.h"

namespace kasane::graph {

namespace detail {

void advise_rows(const Layout& l, std::uint32_t rank, usage how) {
  if (!l.beyond_dram) return;
  const Part& part = l.parts[rank];
  const polling_scope here;  // a member stays at its rank
  const auto advise_ids = [how](const Rows& rows, std::size_t n) {
    std::uint64_t edges = 0;
    kasane::get(&edges, rows.start + n);
    if (edges != 0) advise(rows.ids, edges, how);
  };
  advise_ids(part.in, l.block);
  if (part.out.ids != part.in.ids) advise_ids(part.out, l.block);
  if (part.forward.ids != part.out.ids) advise_ids(part.forward, l.places());
}

void destroy(Graph* g) noexcept { delete g; }

void refuse(const char* format, ...) {
  char text[480];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw error(EINVAL, text);
}

void expect_vertex(const Layout& l, const char* call, vertex v) {
  if (v >= l.vertices)
    refuse("graph::%s: there is no vertex %u: the graph has %llu", call, v,
           static_cast<unsigned long long>(l.vertices));
}

namespace {

std::uint64_t degree_of(const Layout& l, vertex v, Rows Part::* rows) {
  std::uint64_t ends[2];
  kasane::get(ends, (l.parts[l.owner(v)].*rows).start + l.place_of(v) % l.block, 2);
  return ends[1] - ends[0];
}

}  // namespace
}  // namespace detail

template <weight W>
std::uint64_t csr<W>::vertices() const noexcept {
  return layout().vertices;
}
template <weight W>
std::uint64_t csr<W>::size() const noexcept {
  return layout().stored;
}
template <weight W>
bool csr<W>::symmetric() const noexcept {
  return layout().symmetric;
}
template <weight W>
std::uint64_t csr<W>::loops() const noexcept {
  return layout().loops;
}
template <weight W>
std::uint64_t csr<W>::duplicates() const noexcept {
  return layout().duplicates;
}
template <weight W>
const detail::Layout& csr<W>::layout() const noexcept {
  static const detail::Layout none;
  return graph_ != nullptr ? graph_->layout : none;
}

template <weight W>
std::uint64_t csr<W>::out_degree(vertex v) const {
  detail::expect_vertex(layout(), "out_degree", v);
  return detail::degree_of(layout(), v, &detail::Part::out);
}
template <weight W>
std::uint64_t csr<W>::in_degree(vertex v) const {
  detail::expect_vertex(layout(), "in_degree", v);
  return detail::degree_of(layout(), v, &detail::Part::in);
}

template <weight W>
std::vector<edge<W>> csr<W>::out_edges(vertex v) const {
  const detail::Layout& l = layout();
  detail::expect_vertex(l, "out_edges", v);
  const detail::Rows& rows = l.parts[l.owner(v)].out;
  std::uint64_t ends[2];
  kasane::get(ends, rows.start + l.place_of(v) % l.block, 2);
  const std::size_t n = ends[1] - ends[0];
  std::vector<edge<W>> all(n);
  std::vector<vertex> ids(n);
  if (n != 0) kasane::get(ids.data(), rows.ids + ends[0], n);
  for (std::size_t i = 0; i < n; ++i) all[i].from = v, all[i].to = l.caller_of(ids[i]);
  if constexpr (!std::is_void_v<W>) {
    std::vector<W> weights(n);
    if (n != 0) kasane::get(weights.data(), rows.weights_of<W>() + ends[0], n);
    for (std::size_t i = 0; i < n; ++i) all[i].weight = weights[i];
  }
  return all;
}

template class csr<void>;
template class csr<std::int32_t>;
template class csr<float>;

}  // namespace kasane::graph
