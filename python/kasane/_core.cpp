// SPDX-License-Identifier: Apache-2.0
// The part of the Python package that is C++: attached processes and one array, of any type and number of
// dimensions, by the buffer protocol. kasane/_job.py and kasane/_array.py have what users see.
//
// Thread safety: what the C++ functions promise. Each call that may wait frees the GIL; what it uses of
// Python objects is held by their buffers.
#include <dlfcn.h>
#include <kasane/kasane.h>
#include <pthread.h>
#include <pybind11/complex.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <kasane/array.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace py = pybind11;
using namespace py::literals;

namespace {

#ifdef KASANE_HAVE_BLAS
constexpr bool kHasBlas = true;
#else
constexpr bool kHasBlas = false;
#endif

using Sizes = std::vector<std::size_t>;
using kasane::detail::ArrayLayout;
using NoGil = py::gil_scoped_release;

[[noreturn]] void refuse(const std::string& text) { throw kasane::error(EINVAL, text.c_str()); }

/// Whether this process has been forked from one that was attached. It shares that one's memory, and has none
/// of its threads: whatever it did would change the job behind its back, or wait for ever.
std::atomic<bool> g_forked = false;

void check_process() {
  if (g_forked)
    throw kasane::error(
        EPERM,
        "kasane: this process was forked by one that has joined a job, and has no part in it; "
        "give it NumPy arrays, or start it anew (multiprocessing's \"spawn\")");
}

/// The memory of a Python object, as long as this lives. Made and destroyed with the GIL.
class Buffer {
 public:
  Buffer(const py::handle& object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }
  [[nodiscard]] const Py_buffer* operator->() const noexcept { return &view_; }
  [[nodiscard]] char* data() const noexcept { return static_cast<char*>(view_.buf); }
  [[nodiscard]] std::size_t bytes() const noexcept { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

// ---- patches ---------------------------------------------------------------------------------------------

/// A patch, and which of its dimensions an index left.
struct Box {
  std::size_t dimensions = 0;
  std::size_t first[ArrayLayout::kMost] = {}, last[ArrayLayout::kMost] = {};
  bool kept[ArrayLayout::kMost] = {};

  [[nodiscard]] std::size_t extent(std::size_t d) const noexcept { return last[d] - first[d]; }
  /// Of what NumPy's index gives.
  [[nodiscard]] py::tuple shape() const {
    py::list list;
    for (std::size_t d = 0; d < dimensions; ++d)
      if (kept[d]) list.append(extent(d));
    return py::tuple(list);
  }
};

/// One number for each dimension of a Box or an ArrayLayout.
template <class T>
Sizes sizes_of(const T& has_dimensions, const std::size_t* numbers) {
  return {numbers, numbers + has_dimensions.dimensions};
}
Box box_of(const Sizes& first, const Sizes& last, const std::vector<bool>& kept) {
  Box b;
  b.dimensions = first.size();
  if (b.dimensions > ArrayLayout::kMost || last.size() != first.size() || kept.size() != first.size())
    refuse("kasane: a patch of other dimensions");
  std::copy(first.begin(), first.end(), b.first);
  std::copy(last.begin(), last.end(), b.last);
  std::copy(kept.begin(), kept.end(), b.kept);
  return b;
}

/// One entry of an index in dimension d. False: not an integer within the array or a slice of step 1.
bool add_entry(Box& b, std::size_t d, std::size_t extent, PyObject* entry) {
  const auto n = static_cast<Py_ssize_t>(extent);
  Py_ssize_t begin = 0, end = n, step = 1;
  b.kept[d] = PySlice_Check(entry) != 0;
  if (b.kept[d]) {
    if (PySlice_Unpack(entry, &begin, &end, &step) != 0) throw py::error_already_set();
    const Py_ssize_t count = PySlice_AdjustIndices(n, &begin, &end, step);
    if (step != 1) return false;
    end = begin + count;
  } else {
    if (!PyLong_CheckExact(entry)) return false;
    begin = PyLong_AsSsize_t(entry);
    if (begin == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    if (begin < -n || begin >= n) return false;
    if (begin < 0) begin += n;
    end = begin + 1;
  }
  b.first[d] = static_cast<std::size_t>(begin);
  b.last[d] = static_cast<std::size_t>(end);
  return true;
}

/// The leading dimensions of a patch in the buffer, or nothing where that has other strides.
struct Leading {
  bool fits = false;
  std::size_t extents[ArrayLayout::kMost] = {};
};
Leading leading_of(const Buffer& memory, const Box& b, std::size_t element_bytes) {
  Leading ld;
  const std::size_t n = b.dimensions;
  const bool all = static_cast<std::size_t>(memory->ndim) == n;
  if (static_cast<std::size_t>(memory->itemsize) != element_bytes) return ld;
  auto at = static_cast<std::size_t>(memory->ndim);  // of the buffer's dimensions
  std::size_t inner = element_bytes;                 // bytes between neighbours of the dimension behind
  for (std::size_t d = n; d-- > 0;) {
    const std::size_t extent = b.extent(d), behind = d + 1 < n ? b.extent(d + 1) : 0;
    std::size_t stride = d + 1 < n ? inner * behind : element_bytes;
    if (all || b.kept[d]) {
      if (at-- == 0 || static_cast<std::size_t>(memory->shape[at]) != extent) return ld;
      if (extent > 1) {
        if (memory->strides[at] <= 0) return ld;
        if (d + 1 == n && static_cast<std::size_t>(memory->strides[at]) != element_bytes) return ld;
        stride = static_cast<std::size_t>(memory->strides[at]);
      }
    }
    if (d + 1 < n) {
      if (stride % inner != 0 || stride / inner < behind) return ld;
      ld.extents[d] = stride / inner;  // the extent of dimension d + 1
    }
    inner = stride;
  }
  ld.fits = at == 0;
  return ld;
}

// ---- an array --------------------------------------------------------------------------------------------

/// Views of parts that are alive: while there are any, detach is refused.
std::atomic<std::int64_t> g_views = 0;

kasane::distribution distribution_of(const std::optional<Sizes>& tiles, const std::optional<Sizes>& blocks) {
  kasane::distribution how = kasane::blocks();
  const Sizes& given = tiles ? *tiles : blocks ? *blocks : Sizes();
  how.in_tiles = tiles.has_value();
  how.dimensions = given.size();
  for (std::size_t d = 0; d < std::min(given.size(), kasane::array_dimensions_max); ++d)
    how.values[d] = given[d];
  return how;
}
kasane::ghosts ghosts_of(const Sizes& widths, bool periodic) {
  kasane::ghosts around(0, periodic ? kasane::boundary::periodic : kasane::boundary::kept);
  if (widths.empty()) return around;
  around.dimensions = widths.size();
  for (std::size_t d = 0; d < std::min(widths.size(), kasane::array_dimensions_max); ++d)
    around.widths[d] = widths[d];
  return around;
}

/// What the bytes of an element are, for the operations that have to know.
enum class Kind : char {
  int32 = 'i',
  int64 = 'l',
  float32 = 'f',
  float64 = 'd',
  complex64 = 'F',
  complex128 = 'D'
};

template <class F>
auto with_number(char kind, const char* what, const F& f) {
  switch (Kind{kind}) {
    case Kind::int32: return f(std::int32_t{});
    case Kind::int64: return f(std::int64_t{});
    case Kind::float32: return f(float{});
    case Kind::float64: return f(double{});
    default: refuse(std::string(what) + ": elements are int32, int64, float32 or float64");
  }
}
kasane_element_t element_of(char kind) {
  switch (Kind{kind}) {
    case Kind::int32: return KASANE_INT32;
    case Kind::int64: return KASANE_INT64;
    case Kind::float32: return KASANE_FLOAT;
    case Kind::float64: return KASANE_DOUBLE;
    case Kind::complex64: return KASANE_COMPLEX_FLOAT;
    case Kind::complex128: return KASANE_COMPLEX_DOUBLE;
  }
  refuse("accumulate: elements are int32, int64, float32, float64, complex64 or complex128");
}

class Array {
 public:
  Array(const Sizes& extents, std::size_t element_bytes, const std::optional<Sizes>& tiles,
        const std::optional<Sizes>& blocks, const Sizes& ghosts, bool periodic)
      : layout_(make(extents, element_bytes, tiles, blocks, ghosts, periodic)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (g_forked) return;
    const NoGil free;
    layout_.release();
  }
  [[nodiscard]] const ArrayLayout& layout() const noexcept { return layout_; }

  /// The patch that an index means; nothing: one that is not simple, or wrong.
  [[nodiscard]] std::optional<Box> box(const py::object& index) const {
    Box b;
    b.dimensions = layout_.dimensions;
    const bool several = PyTuple_CheckExact(index.ptr()) != 0;
    const auto given = several ? static_cast<std::size_t>(PyTuple_GET_SIZE(index.ptr())) : std::size_t{1};
    if (given > b.dimensions) return {};
    for (std::size_t d = 0; d < b.dimensions; ++d) {
      if (d >= given) {
        b.last[d] = layout_.extents[d];
        b.kept[d] = true;
        continue;
      }
      PyObject* const entry =
          several ? PyTuple_GET_ITEM(index.ptr(), static_cast<Py_ssize_t>(d)) : index.ptr();
      if (!add_entry(b, d, layout_.extents[d], entry)) return {};
    }
    return b;
  }

  // Patches. False: the object's strides do not fit; give a contiguous one.
  bool get(const Box& b, const py::object& out) const {
    return transfer(b, out, PyBUF_WRITABLE, &ArrayLayout::get);
  }
  bool put(const Box& b, const py::object& values) const { return transfer(b, values, 0, &ArrayLayout::put); }
  /// alpha: one element, as bytes.
  bool accumulate(const Box& b, const py::object& values, char kind, const std::string& alpha) const {
    if (alpha.size() != layout_.element_bytes) refuse("accumulate: an alpha of another size");
    const void* const bytes = alpha.data();
    return transfer(b, values, 0, &ArrayLayout::accumulate, element_of(kind), bytes);
  }

  // Elements. indices: as many numbers of 64 bits as dimensions, each.
  void gather(const py::object& indices, const py::object& out) const {
    elements("kasane.Array.get", indices, out, PyBUF_WRITABLE, &ArrayLayout::gather);
  }
  void scatter(const py::object& indices, const py::object& values) const {
    elements("kasane.Array.put", indices, values, 0, &ArrayLayout::scatter);
  }
  /// The value before, as bytes; n: as bytes.
  py::bytes fetch_add(const Box& b, char kind, const std::string& n) const {
    return with_number(kind, "fetch_add", [&](auto number) {
      using T = decltype(number);
      if (n.size() != sizeof(T)) refuse("fetch_add: a number of another size");
      std::memcpy(&number, n.data(), sizeof number);
      {
        const NoGil free;
        check("kasane.Array.fetch_add");
        layout_.check_index("kasane.Array.fetch_add", b.first);
        number = kasane::atomic_ref<T>(kasane::global_ptr<T>(reinterpret_cast<T*>(layout_.address(b.first))))
                     .fetch_add(number);
      }
      return py::bytes(reinterpret_cast<const char*>(&number), sizeof number);
    });
  }

  /// This rank's tiles: (first, last) each.
  [[nodiscard]] std::vector<std::pair<Sizes, Sizes>> tiles() const {
    check("kasane.Array.parts");
    std::vector<std::pair<Sizes, Sizes>> boxes;
    for (std::size_t k = kasane::rank(); k < layout_.parts; k += kasane::ranks())
      for (std::size_t t = 0; t < layout_.tiles_of_part(k); ++t) {
        auto& [first, last] = boxes.emplace_back(Sizes(layout_.dimensions), Sizes(layout_.dimensions));
        layout_.box_of(k, t, first.data(), last.data());
      }
    return boxes;
  }
  /// A hint before loads and stores of a patch in one tile. access: of kasane_access.
  void expect(const Sizes& first, const Sizes& last, int access) const {
    const NoGil free;
    layout_.expect(first.data(), last.data(), static_cast<kasane::view_access>(access));
  }
  void update_ghosts() const {
    check("kasane.Array.update_ghosts");
    const NoGil free;
    kasane::detail::update_ghosts("kasane.Array.update_ghosts", layout_);
  }
  [[nodiscard]] bool distributed_as(const Array& other) const noexcept {
    const ArrayLayout &a = layout_, &b = other.layout_;
    const auto same = [&](const std::size_t* x, const std::size_t* y) {
      return std::equal(x, x + a.dimensions, y);
    };
    return a.dimensions == b.dimensions && same(a.extents, b.extents) && same(a.tile, b.tile) &&
           same(a.grid, b.grid);
  }
  void check(const char* call) const {
    check_process();
    layout_.check_attached(call);
  }

 private:
  static ArrayLayout make(const Sizes& extents, std::size_t element_bytes, const std::optional<Sizes>& tiles,
                          const std::optional<Sizes>& blocks, const Sizes& ghosts, bool periodic) {
    if (extents.empty() || extents.size() > kasane::array_dimensions_max)
      refuse("kasane: an array of " + std::to_string(extents.size()) + " dimensions; give 1 to 8");
    check_process();
    const NoGil free;
    return ArrayLayout::make(extents.size(), extents.data(), element_bytes, distribution_of(tiles, blocks),
                             ghosts_of(ghosts, periodic));
  }
  /// f: ArrayLayout::gather or scatter.
  template <class F>
  void elements(const char* call, const py::object& indices, const py::object& values, int flags, F f) const {
    const Buffer where(indices, PyBUF_C_CONTIGUOUS), memory(values, PyBUF_C_CONTIGUOUS | flags);
    const std::size_t n = memory.bytes() / layout_.element_bytes;
    if (where.bytes() != n * layout_.dimensions * sizeof(std::size_t))
      refuse("kasane: as many indices as values are needed");
    const NoGil free;
    check(call);
    (layout_.*f)(reinterpret_cast<const std::size_t*>(where.data()), n, memory.data());
  }
  /// f: ArrayLayout::get, put or accumulate, which takes more numbers.
  template <class F, class... More>
  bool transfer(const Box& b, const py::object& memory, int flags, F f, const More&... more) const {
    const Buffer buffer(memory, PyBUF_STRIDES | flags);
    const Leading ld = leading_of(buffer, b, layout_.element_bytes);
    if (!ld.fits) return false;
    const NoGil free;
    check("kasane.Array");
    (layout_.*f)(b.first, b.last, buffer.data(), ld.extents, more..., nullptr);
    return true;
  }

  ArrayLayout layout_;
};

/// One tile of an array, which lives as long as a view of it does.
class Part {
 public:
  Part(std::shared_ptr<Array> array, const Sizes& first, Sizes extents, std::string format, bool ghosts)
      : array_(std::move(array)), extents_(std::move(extents)), format_(std::move(format)) {
    check_process();
    const ArrayLayout& l = array_->layout();
    at_ = l.address(first.data()) - (ghosts ? l.origin_bytes : 0);
    for (std::size_t d = 0; d < extents_.size(); ++d) {
      strides_.push_back(static_cast<py::ssize_t>(l.stride[d]));
      if (ghosts) extents_[d] += 2 * l.ghost[d];
    }
    ++g_views;
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() { --g_views; }
  [[nodiscard]] py::buffer_info buffer() const {
    return {at_,
            static_cast<py::ssize_t>(array_->layout().element_bytes),
            format_,
            static_cast<py::ssize_t>(extents_.size()),
            std::vector<py::ssize_t>(extents_.begin(), extents_.end()),
            strides_};
  }

 private:
  std::shared_ptr<Array> array_;
  Sizes extents_;
  std::vector<py::ssize_t> strides_;
  std::string format_;
  std::byte* at_;
};

/// A view of a patch that lies in one tile of this rank, which is on its way; None: of another one, or one to
/// read of which the gaps are the larger part: a copy brings it at once, where loads would page by page.
/// access: of kasane_access.
py::object view_of(const std::shared_ptr<Array>& array, const Sizes& first, const Sizes& last,
                   const std::string& format, int access) {
  const ArrayLayout& l = array->layout();
  if (first.size() != l.dimensions || last.size() != l.dimensions)
    refuse("kasane: a patch of other dimensions");
  std::size_t part = 0, bytes = l.element_bytes, span = l.element_bytes;
  Sizes extents(l.dimensions);
  for (std::size_t d = 0; d < l.dimensions; ++d) {
    const std::size_t at = first[d] / l.tile[d];
    if (last[d] <= first[d] || at != (last[d] - 1) / l.tile[d]) return py::none();
    part = part * l.grid[d] + at % l.grid[d];
    extents[d] = last[d] - first[d];
    bytes *= extents[d];
    span += (extents[d] - 1) * l.stride[d];
  }
  const bool sparse =
      static_cast<kasane::view_access>(access) == kasane::view_access::read && 2 * bytes < span;
  if (part % kasane::ranks() != kasane::rank() || sparse) return py::none();
  array->expect(first, last, access);
  return py::cast(std::make_unique<Part>(array, first, std::move(extents), format, false));
}

/// c = alpha a b + beta c. done: None, or is called with the number of elements of c that have been computed.
void gemm(std::complex<double> alpha, const Array& a, const Array& b, std::complex<double> beta,
          const Array& c, char kind, const py::object& done) {
  check_process();
#ifdef KASANE_HAVE_BLAS
  const NoGil free;
  const auto multiply = [&](auto one, auto two) {
    kasane::detail::multiply_arrays(one, a.layout(), b.layout(), two, c.layout(),
                                    [told = !done.is_none(), &done](const kasane::box<2>& piece) {
                                      if (!told) return;
                                      const py::gil_scoped_acquire held;
                                      done(piece.size());
                                    });
  };
  switch (Kind{kind}) {
    case Kind::float32: return multiply(static_cast<float>(alpha.real()), static_cast<float>(beta.real()));
    case Kind::float64: return multiply(alpha.real(), beta.real());
    case Kind::complex64: return multiply(std::complex<float>(alpha), std::complex<float>(beta));
    case Kind::complex128: return multiply(alpha, beta);
    default: refuse("kasane.matmul: elements are float32, float64, complex64 or complex128");
  }
#else
  static_cast<void>(std::tie(alpha, a, b, beta, c, kind, done));
  throw kasane::error(
      EPERM,
      "kasane.matmul: this package was built without a BLAS; install libopenblas-dev and build "
      "it again");
#endif
}

// ---- the job ---------------------------------------------------------------------------------------------

void attach(const std::optional<std::string>& mpi, std::uintptr_t communicator) {
  check_process();
  const NoGil free;
  const kasane_attach_options_t options{mpi ? mpi->c_str() : nullptr,
                                        reinterpret_cast<const void*>(communicator)};
  kasane::detail::check(kasane_attach(&options));
}
void detach() {
  check_process();
  const NoGil free;
  kasane::detail::check(kasane_detach());
}
void barrier() {
  check_process();
  const NoGil free;
  kasane::detail::check(kasane_ranks_barrier());
}
/// The bytes that exchange(all) collects of every rank, `each` of them, without the GIL.
template <class F>
std::vector<py::bytes> of_all_ranks(std::size_t each, const F& exchange) {
  check_process();
  std::string all(each * kasane::ranks(), '\0');
  {
    const NoGil free;
    exchange(all.data());
  }
  std::vector<py::bytes> parts;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) parts.emplace_back(all.data() + r * each, each);
  return parts;
}
/// Every rank's bytes, of equal length.
std::vector<py::bytes> allgather(const std::string& mine) {
  return of_all_ranks(mine.size(), [&](char* all) {
    kasane::detail::check(kasane_ranks_allgather(mine.data(), all, mine.size()));
  });
}
/// The begin of an operation that the package does itself, by every rank; its end.
void meet(const std::string& call, const std::vector<std::shared_ptr<Array>>& arrays,
          const std::string& values) {
  check_process();
  const NoGil free;
  kasane::detail::Digest digest;
  for (const auto& a : arrays) {
    a->check(call.c_str());
    digest.add(a->layout());
  }
  kasane::detail::ranks_meet(call.c_str(), digest.bytes(values.data(), values.size()));
}
std::vector<py::bytes> end(const std::string& call, const std::optional<std::string>& failure,
                           const std::string& mine) {
  return of_all_ranks(mine.size(), [&](char* all) {
    const std::exception_ptr thrown =
        failure ? std::make_exception_ptr(kasane::error(EIO, failure->c_str())) : nullptr;
    kasane::detail::ranks_end(call.c_str(), thrown, mine.data(), all, mine.size());
  });
}

/// The file of libkasane.so.
std::string library_file() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(&kasane_attached), &info) != 0 ? info.dli_fname : "";
}

// ---- errors ----------------------------------------------------------------------------------------------

void set_value(const py::object& value) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
}
/// Sets Python's exception for an error of Kasane: classes of kasane/_errors.py, OSError for the system's.
void set_error(const kasane::error& e) {
  const py::object errors = py::module_::import("kasane._errors");
  const char* name = nullptr;
  switch (e.code()) {
    case EINVAL: name = "ArgumentError"; break;
    case EPERM:
    case EIO:
    case EAGAIN:
    case EBUSY:
    case ETIMEDOUT: name = "Error"; break;
    default: break;
  }
  const py::object os_error = py::reinterpret_borrow<py::object>(PyExc_OSError);
  set_value((name != nullptr ? py::object(errors.attr(name)) : os_error)(e.code(), e.what()));
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ part of kasane; use the package kasane.";
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const kasane::error& e) {
      set_error(e);
    } catch (const kasane::out_of_memory& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
  });
  m.def("attach", &attach, "mpi"_a, "communicator"_a);
  m.def("detach", &detach);
  m.def("attached", &kasane_attached);
  m.def("rank", &kasane_rank);
  m.def("ranks", &kasane_ranks);
  m.def("workers", &kasane_workers);
  m.def("barrier", &barrier);
  m.def("allgather", &allgather);
  m.def("meet", &meet);
  m.def("end", &end);
  ::pthread_atfork(nullptr, nullptr, [] { g_forked = g_forked || kasane_attached() != 0; });
  m.def("forked", [] { return g_forked.load(); });
  m.def("views", [] { return g_views.load(); });
  m.def("library_file", &library_file);
  m.def("version", &kasane_version);
  m.def("has_blas", [] { return kHasBlas; });
  m.def("gemm", &gemm);
  py::class_<Box>(m, "Box")
      .def(py::init(&box_of))
      .def_property_readonly("first", [](const Box& b) { return sizes_of(b, b.first); })
      .def_property_readonly("last", [](const Box& b) { return sizes_of(b, b.last); })
      .def_property_readonly("shape", &Box::shape);
  py::class_<Array, std::shared_ptr<Array>>(m, "Array")
      .def(py::init<const Sizes&, std::size_t, const std::optional<Sizes>&, const std::optional<Sizes>&,
                    const Sizes&, bool>())
      .def("box", &Array::box)
      .def("get", &Array::get)
      .def("put", &Array::put)
      .def("accumulate", &Array::accumulate)
      .def("gather", &Array::gather)
      .def("scatter", &Array::scatter)
      .def("fetch_add", &Array::fetch_add)
      .def("tiles", &Array::tiles)
      .def("expect", &Array::expect)
      .def("view", &view_of)
      .def("update_ghosts", &Array::update_ghosts)
      .def("distributed_as", &Array::distributed_as)
      .def_property_readonly("tile", [](const Array& a) { return sizes_of(a.layout(), a.layout().tile); })
      .def_property_readonly("ghosts", [](const Array& a) { return sizes_of(a.layout(), a.layout().ghost); });
  py::class_<Part>(m, "Part", py::buffer_protocol())
      .def(py::init<std::shared_ptr<Array>, const Sizes&, Sizes, std::string, bool>())
      .def_buffer(&Part::buffer);
}
