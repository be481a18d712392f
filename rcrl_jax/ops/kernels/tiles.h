// Matrix products in vectors, for AVX2 and AVX-512.
//
// A tile is what the registers hold at a time: up to MOST_ROWS x 2 vectors of sums. A product of a
// tile reads one number for each row and two vectors, so it needs fewer loads than multiplications.
// Every number is the sum of its products in one fixed order.

#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

// Inlined into functions that are compiled for more instructions than the rest.
#define FORCED __attribute__((always_inline))
#define INLINE inline FORCED
#define UNROLL _Pragma("GCC unroll 16")

// Vectors may lie anywhere in memory.
struct Avx2 {
  typedef float Vector __attribute__((vector_size(32), aligned(4)));
  static constexpr int MOST_ROWS = 6;
};
struct Avx512 {
  typedef float Vector __attribute__((vector_size(64), aligned(4)));
  static constexpr int MOST_ROWS = 14;
};

// Whether this processor has them.
inline bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}
inline bool has_avx512() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

template <typename Isa>
constexpr int kLanes = sizeof(typename Isa::Vector) / sizeof(float);
template <typename Isa>
constexpr int kColumns = 2 * kLanes<Isa>;  // of a tile

// sums[row] += inputs[row * step + k] * vectors[k] for every k below `count`; the vectors are
// `stride` numbers apart.
template <typename Isa, int ROWS>
INLINE void multiply(typename Isa::Vector (&sums)[ROWS][2], const float* inputs, int64_t step,
                     const float* vectors, int64_t count, int64_t stride = kColumns<Isa>) {
  using Vector = typename Isa::Vector;
  for (int64_t k = 0; k < count; ++k) {
    const Vector low = *reinterpret_cast<const Vector*>(vectors);
    const Vector high = *reinterpret_cast<const Vector*>(vectors + kLanes<Isa>);
    vectors += stride;
    UNROLL for (int row = 0; row < ROWS; ++row) {
      const Vector input = inputs[row * step + k] - Vector{};
      sums[row][0] += input * low;
      sums[row][1] += input * high;
    }
  }
}

template <typename Isa, int ROWS>
INLINE void load(typename Isa::Vector (&sums)[ROWS][2], const float* from, int64_t stride) {
  using Vector = typename Isa::Vector;
  UNROLL for (int row = 0; row < ROWS; ++row) {
    sums[row][0] = *reinterpret_cast<const Vector*>(from + row * stride);
    sums[row][1] = *reinterpret_cast<const Vector*>(from + row * stride + kLanes<Isa>);
  }
}

template <typename Isa, int ROWS>
INLINE void store(const typename Isa::Vector (&sums)[ROWS][2], float* to, int64_t stride) {
  using Vector = typename Isa::Vector;
  UNROLL for (int row = 0; row < ROWS; ++row) {
    *reinterpret_cast<Vector*>(to + row * stride) = sums[row][0];
    *reinterpret_cast<Vector*>(to + row * stride + kLanes<Isa>) = sums[row][1];
  }
}

// The ReLU. Like that of JAX it keeps NaN, by which a run notices that it diverges.
template <typename Isa, int ROWS>
INLINE void rectify(typename Isa::Vector (&sums)[ROWS][2]) {
  using Vector = typename Isa::Vector;
  UNROLL for (int row = 0; row < ROWS; ++row) {
    for (Vector& sum : sums[row]) sum = sum < Vector{} ? Vector{} : sum;
  }
}

// The gradients that a ReLU lets pass, which gave `values`.
template <typename Isa, int ROWS>
INLINE void pass(const typename Isa::Vector (&values)[ROWS][2],
                 typename Isa::Vector (&gradients)[ROWS][2]) {
  using Vector = typename Isa::Vector;
  UNROLL for (int row = 0; row < ROWS; ++row) {
    for (int half = 0; half < 2; ++half) {
      Vector& gradient = gradients[row][half];
      gradient = values[row][half] > Vector{} ? gradient : Vector{};
    }
  }
}

// Calls `tile` with the number of rows as a compile-time constant.
template <typename Isa, int ROWS, typename Tile>
INLINE void with_rows(int64_t rows, const Tile& tile) {
  if (rows == ROWS) {
    tile(std::integral_constant<int, ROWS>());
  } else if constexpr (ROWS > 1) {
    with_rows<Isa, ROWS - 1>(rows, tile);
  }
}

// Splits `total` rows into as few tiles as possible, of nearly equal size.
template <typename Isa, typename Tile>
INLINE void in_tiles(int64_t total, const Tile& tile) {
  int64_t done = 0;
  for (int64_t left = (total + Isa::MOST_ROWS - 1) / Isa::MOST_ROWS; left > 0; --left) {
    const int64_t rows = (total - done) / left;
    with_rows<Isa, Isa::MOST_ROWS>(rows, [&](auto constant) FORCED { tile(constant, done); });
    done += rows;
  }
}

// --- memory in lines of the cache ----------------------------------------------------------------

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A line of the cache. A vector of lines starts at the start of one.
struct alignas(64) Line {
  static constexpr int64_t bytes = 64;
  float numbers[16];
};
using Lines = std::vector<Line>;

inline int64_t lines_of(int64_t bytes) { return round_up(bytes, Line::bytes) / Line::bytes; }

inline float* floats(Lines& lines) { return reinterpret_cast<float*>(lines.data()); }
inline const float* floats(const Lines& lines) {
  return reinterpret_cast<const float*>(lines.data());
}
