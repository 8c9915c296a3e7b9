// SPDX-License-Identifier: Apache-2.0
// Arrays of each type and of several shapes in FOLDER, for numpy.py: `npy save FOLDER` writes
// TYPE_DIMENSIONS.npy, `npy load FOLDER` checks those that NumPy wrote. Element k in C's order is k % 100;
// of complex numbers the imaginary part is -k % 7.
#include <algorithm>
#include <complex>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <kasane/array.hpp>
#include <memory>
#include <string>
#include <type_traits>

namespace {

template <class T>
T element(std::size_t k) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(k % 100);
  else
    return T(static_cast<typename T::value_type>(k % 100), -static_cast<typename T::value_type>(k % 7));
}

template <class T, std::size_t N>
bool one(bool saves, const std::string& folder, const std::array<std::size_t, N>& extents) {
  std::string path = folder + "/";
  path += kasane::detail::npy_type<T>() + 1;
  path += "_" + std::to_string(N) + ".npy";
  kasane::distribution how = kasane::blocks();
  how.in_tiles = true;
  how.dimensions = N;
  for (std::size_t d = 0; d < N; ++d) how.values[d] = extents[d] / 3 + 1;
  const std::size_t n = kasane::box<N>{{}, extents}.size();
  const auto right = std::make_unique<T[]>(n), is = std::make_unique<T[]>(n);
  for (std::size_t k = 0; k < n; ++k) right[k] = element<T>(k);
  if (saves) {
    kasane::array<T, N> a(extents, how);
    a.put(a.all(), right.get());
    a.save(path);
    return true;
  }
  const auto a = kasane::array<T, N>::load(path, how);
  a.get(a.all(), is.get());
  if (std::equal(is.get(), is.get() + n, right.get())) return true;
  std::printf("wrong: %s\n", path.c_str());
  return false;
}

template <class T>
bool shapes(bool saves, const std::string& folder) {
  return one<T, 1>(saves, folder, {1000}) && one<T, 2>(saves, folder, {37, 53}) &&
         one<T, 3>(saves, folder, {7, 11, 13}) && one<T, 4>(saves, folder, {3, 1, 5, 8});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool saves = std::string(argv[1]) == "save";
  const std::string folder = argv[2];
  return kasane::run([&] {
    return shapes<bool>(saves, folder) && shapes<std::int8_t>(saves, folder) &&
           shapes<std::uint8_t>(saves, folder) && shapes<std::int16_t>(saves, folder) &&
           shapes<std::uint32_t>(saves, folder) && shapes<std::int64_t>(saves, folder) &&
           shapes<float>(saves, folder) && shapes<double>(saves, folder) &&
           shapes<std::complex<float>>(saves, folder) && shapes<std::complex<double>>(saves, folder);
  })
             ? 0
             : 1;
}
