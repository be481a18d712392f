// Matrix products on the matrix unit of Intel processors (AMX).
//
// The unit multiplies matrices of bfloat16, which has 8 significant bits, and adds the products in
// float32. For TF32, whose inputs have 11 bits, a number is split into two bfloat16, together 17
// bits. Of the four products of the parts of two numbers the smallest is left out: it is below
// 2^-16 of the whole. Other than in float32, an infinity becomes NaN.
//
// A tile is a register of 16 rows of 64 bytes. Tiles 0 to 3 hold sums, 32 rows by 32 columns.

#pragma once

#include <cstdint>

#include "lines.h"

#if defined(__x86_64__) && defined(__linux__) && \
    (__has_include(<amxtileintrin.h>) || __has_include(<amxintrin.h>))
#define HAS_AMX 1

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace amx {

#define AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512bw,avx512vl")))
#define AMX_INLINE inline __attribute__((always_inline)) AMX_TARGET

using Bits = uint16_t;                 // of a bfloat16
constexpr int64_t kSide = 32;          // rows and columns of the sums, and products of a step
constexpr int64_t kTile = 16 * kSide;  // numbers in a tile
constexpr int64_t kStep = 4 * kTile;   // numbers in the columns that a step reads

// Whether this processor has the unit and the system lets this program use it.
inline bool is_available() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool has_products = d >> 22 & 1, has_tiles = d >> 24 & 1;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
  const bool has_rounding = a >> 5 & 1;
  constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has_products && has_tiles && has_rounding &&
         syscall(SYS_arch_prctl, request, tile_data) == 0;
}

// Configures the tiles of this thread for as long as it exists.
class Tiles {
 public:
  AMX_TARGET Tiles() {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes_of_a_row[16] = {};
      uint8_t rows[16] = {};
    } configuration;
    std::fill_n(configuration.bytes_of_a_row, 8, 64);
    std::fill_n(configuration.rows, 8, 16);
    _tile_loadconfig(&configuration);
  }
  AMX_TARGET ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
};

// sums += rows * columns, over the 32 products of a step.
//
// rows: the first parts of 32 rows, `stride` apart; the second parts lie `plane` behind them.
// columns: [2 halves, parts, 16 pairs of products, 16 columns, 2].
template <int ROW_PARTS = 2, int COLUMN_PARTS = 2>
AMX_INLINE void add_products(const Bits* rows, int64_t stride, int64_t plane,
                             const Bits* columns) {
  const int64_t bytes = stride * sizeof(Bits);
#define ROWS(PART)                                                   \
  _tile_loadd(4, rows + (PART) * plane, bytes);                      \
  _tile_loadd(5, rows + (PART) * plane + 16 * stride, bytes)
#define COLUMNS(PART)                                                \
  _tile_loadd(6, columns + (PART) * kTile, Line::bytes);             \
  _tile_loadd(7, columns + (COLUMN_PARTS + (PART)) * kTile, Line::bytes)
#define MULTIPLY                                                     \
  _tile_dpbf16ps(0, 4, 6);                                           \
  _tile_dpbf16ps(1, 4, 7);                                           \
  _tile_dpbf16ps(2, 5, 6);                                           \
  _tile_dpbf16ps(3, 5, 7)
  ROWS(0);
  if constexpr (COLUMN_PARTS == 2) {
    COLUMNS(1);
    MULTIPLY;
  }
  COLUMNS(0);
  MULTIPLY;
  if constexpr (ROW_PARTS == 2) {
    ROWS(1);
    MULTIPLY;
  }
#undef ROWS
#undef COLUMNS
#undef MULTIPLY
}

// Loads or stores the sums, as 32 rows of floats `bytes` apart.
AMX_INLINE void load_sums(const float* from, int64_t bytes) {
  const float* lower = from + 16 * bytes / int64_t(sizeof(float));
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + 16, bytes);
  _tile_loadd(2, lower, bytes);
  _tile_loadd(3, lower + 16, bytes);
}
AMX_INLINE void store_sums(float* to, int64_t bytes) {
  float* lower = to + 16 * bytes / int64_t(sizeof(float));
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + 16, bytes);
  _tile_stored(2, lower, bytes);
  _tile_stored(3, lower + 16, bytes);
}

AMX_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// The next part of 16 numbers; leaves what is missing to the numbers.
AMX_INLINE __m256i take_part(__m512& numbers) {
  const __m256i part = (__m256i)_mm512_cvtneps_pbh(numbers);
  const __m512i as_floats = _mm512_slli_epi32(_mm512_cvtepu16_epi32(part), 16);
  numbers = _mm512_sub_ps(numbers, _mm512_castsi512_ps(as_floats));
  return part;
}

// Writes the parts of 16 numbers, the second `plane` behind the first.
AMX_INLINE void store_parts(__m512 numbers, Bits* to, int64_t plane) {
  for (int part = 0; part < 2; ++part) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + part * plane), take_part(numbers));
  }
}

// Writes the parts of two rows of 32 numbers as a pair of products of a step's columns; a row that
// does not exist is zero.
AMX_INLINE void store_pair(const float* even, const float* odd, Bits* to) {
  for (int half = 0; half < 2; ++half) {
    __m512 first = even ? _mm512_loadu_ps(even + half * 16) : _mm512_setzero_ps();
    __m512 second = odd ? _mm512_loadu_ps(odd + half * 16) : _mm512_setzero_ps();
    for (int part = 0; part < 2; ++part) {
      const __m512i lower = _mm512_cvtepu16_epi32(take_part(first));
      const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(take_part(second)), 16);
      _mm512_store_si512(to + (half * 2 + part) * kTile, _mm512_or_si512(lower, upper));
    }
  }
}

// Transposes 16 rows of 16 pairs; the rows are `stride` numbers apart.
AMX_INLINE void transpose_pairs(const Bits* from, int64_t from_stride, Bits* to,
                                int64_t to_stride) {
  __m512i rows[16], mixed[16];
  for (int row = 0; row < 16; ++row) rows[row] = _mm512_loadu_si512(from + row * from_stride);
  for (int row = 0; row < 16; row += 2) {
    mixed[row] = _mm512_unpacklo_epi32(rows[row], rows[row + 1]);
    mixed[row + 1] = _mm512_unpackhi_epi32(rows[row], rows[row + 1]);
  }
  for (int row = 0; row < 16; row += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m512i lower = mixed[row + half], upper = mixed[row + 2 + half];
      rows[row + 2 * half] = _mm512_unpacklo_epi64(lower, upper);
      rows[row + 2 * half + 1] = _mm512_unpackhi_epi64(lower, upper);
    }
  }
  // Quarter q of rows[4 * k + column] holds rows 4 * k to 4 * k + 3 of column 4 * q + column.
  for (int column = 0; column < 4; ++column) {
    const __m512i *first = rows + column, *last = first + 8;
    const __m512i even_first = _mm512_shuffle_i32x4(first[0], first[4], 0x88);
    const __m512i even_last = _mm512_shuffle_i32x4(last[0], last[4], 0x88);
    const __m512i odd_first = _mm512_shuffle_i32x4(first[0], first[4], 0xdd);
    const __m512i odd_last = _mm512_shuffle_i32x4(last[0], last[4], 0xdd);
    Bits* own = to + column * to_stride;
    _mm512_storeu_si512(own, _mm512_shuffle_i32x4(even_first, even_last, 0x88));
    _mm512_storeu_si512(own + 4 * to_stride, _mm512_shuffle_i32x4(odd_first, odd_last, 0x88));
    _mm512_storeu_si512(own + 8 * to_stride, _mm512_shuffle_i32x4(even_first, even_last, 0xdd));
    _mm512_storeu_si512(own + 12 * to_stride, _mm512_shuffle_i32x4(odd_first, odd_last, 0xdd));
  }
}

inline Bits* bits(Lines& lines) { return reinterpret_cast<Bits*>(lines.data()); }
inline const Bits* bits(const Lines& lines) {
  return reinterpret_cast<const Bits*>(lines.data());
}

}  // namespace amx

#endif
