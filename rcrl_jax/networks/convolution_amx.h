// The convolution on the matrix unit of Intel processors (AMX).
//
// The unit multiplies matrices of bfloat16, which has 8 significant bits, and adds the products in
// float32. For TF32, whose inputs have 11 bits, a number is split into two bfloat16, together 17
// bits. Of the four products of the parts of two numbers the smallest is left out: it is below
// 2^-17 of the whole. Other than in float32, an infinity becomes NaN.
//
// A tile is a register of 16 rows of 64 bytes. Tiles 0 to 3 hold sums, 32 rows by 32 columns.

#pragma once

#include "convolution_shape.h"

#if defined(__x86_64__) && defined(__linux__) && \
    (__has_include(<amxtileintrin.h>) || __has_include(<amxintrin.h>))
#define HAS_AMX 1

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace amx {

#define AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512vl")))
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

// What the unit can convolve: its steps are 32 channels long.
inline bool fits(const Shape& shape) { return shape.stride == 1 && shape.channels % kSide == 0; }

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
// columns: [2 halves, 2 parts, 16 pairs of products, 16 columns, 2].
AMX_INLINE void add_products(const Bits* rows, int64_t stride, int64_t plane,
                             const Bits* columns) {
  const int64_t bytes = stride * sizeof(Bits);
#define ROWS(PART)                                                   \
  _tile_loadd(4, rows + (PART) * plane, bytes);                      \
  _tile_loadd(5, rows + (PART) * plane + 16 * stride, bytes)
#define COLUMNS(PART)                                                \
  _tile_loadd(6, columns + (PART) * kTile, Line::bytes);             \
  _tile_loadd(7, columns + (2 + (PART)) * kTile, Line::bytes)
#define MULTIPLY                                                     \
  _tile_dpbf16ps(0, 4, 6);                                           \
  _tile_dpbf16ps(1, 4, 7);                                           \
  _tile_dpbf16ps(2, 5, 6);                                           \
  _tile_dpbf16ps(3, 5, 7)
  ROWS(0);
  COLUMNS(1);
  MULTIPLY;
  COLUMNS(0);
  MULTIPLY;
  ROWS(1);
  MULTIPLY;
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

inline Bits* bits(Lines& lines) { return reinterpret_cast<Bits*>(lines.data()); }

// Lays out the kernel as the columns of `add_products`: [blocks of filters, steps, ...].
//
// blocks: [blocks of 32 filters, products, 32].
AMX_TARGET inline Lines arrange(const Shape& shape, const float* blocks) {
  const int64_t rows = round_up(shape.filters, kSide) / kSide * shape.products();
  Lines lines(lines_of(rows / kSide * kStep * sizeof(Bits)));
  for (int64_t row = 0; row < rows; row += 2) {
    const float* even = blocks + row * kSide;
    Bits* step = bits(lines) + row / kSide * kStep;
    store_pair(even, even + kSide, step + row % kSide * 16);
  }
  return lines;
}

// As `convolve_image`, with the kernel as `arrange` returns it. Windows follow one another through
// all rows of the image; those that reach into the next row are computed and left out.
AMX_TARGET inline void convolve(const Shape& shape, const float* image, const float* kernel,
                                const float* bias, bool relu, float* output) {
  static thread_local Lines scratch;
  const int64_t steps = shape.products() / kSide, steps_of_a_row = steps / shape.side;
  const int64_t windows = shape.out_height * shape.width;
  const int64_t plane = round_up(shape.image() + (kSide + shape.side) * shape.channels, kSide);
  scratch.resize(lines_of(2 * plane * sizeof(Bits)));
  for (int64_t k = 0; k < shape.image(); k += 16) {
    store_parts(_mm512_loadu_ps(image + k), bits(scratch) + k, plane);
  }
  const Tiles tiles;
  for (int64_t first = 0; first < shape.filters; first += kSide) {
    const Bits* block =
        reinterpret_cast<const Bits*>(kernel) + first / kSide * steps * kStep;
    const int64_t width = std::min(kSide, shape.filters - first);
    int64_t h = 0, w = 0;  // of the next window
    for (int64_t window = 0; window < windows; window += kSide) {
      load_sums(bias + first, 0);
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t a = step / steps_of_a_row, k = step % steps_of_a_row * kSide;
        add_products(bits(scratch) + (window + a * shape.width) * shape.channels + k,
                     shape.channels, plane, block + step * kStep);
      }
      alignas(64) float sums[kSide * kSide];
      store_sums(sums, kSide * sizeof(float));
      const int64_t count = std::min(kSide, windows - window);
      for (int64_t row = 0; row < count; ++row) {
        if (w < shape.out_width) {
          float* own = sums + row * kSide;
          if (relu) {
            for (int64_t k = 0; k < kSide; ++k) own[k] = own[k] < 0 ? 0 : own[k];
          }
          float* to = output + (h * shape.out_width + w) * shape.filters + first;
          std::memcpy(to, own, width * sizeof(float));
        }
        if (++w == shape.width) w = 0, ++h;
      }
    }
  }
}

// As `correlate_image`, with the windows of `convolve`: the gradients of those left out are zero.
AMX_TARGET inline void correlate(const Shape& shape, const float* image, const float* gradients,
                                 float* sums) {
  static thread_local Lines of_images, of_gradients;
  const int64_t channels = shape.channels, pixels = shape.height * shape.width;
  const int64_t windows = round_up(shape.out_height * shape.width, kSide);

  // Parts of the image, [parts, channels, pixels]; zeros behind the last pixel.
  const int64_t line = round_up(pixels + kSide + shape.side, kSide), plane = channels * line;
  of_images.resize(lines_of(2 * plane * sizeof(Bits)));
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i offsets = _mm512_mullo_epi32(lane, _mm512_set1_epi32(int(channels)));
  for (int64_t pixel = 0; pixel < line; pixel += 16) {
    const int64_t count = std::clamp<int64_t>(pixels - pixel, 0, 16);
    const __mmask16 exist = (1u << count) - 1;
    for (int64_t c = 0; c < channels; ++c) {
      const __m512 numbers = _mm512_mask_i32gather_ps(
          _mm512_setzero_ps(), exist, offsets, image + pixel * channels + c, sizeof(float));
      store_parts(numbers, bits(of_images) + c * line + pixel, plane);
    }
  }

  of_gradients.resize(lines_of(windows / kSide * kStep * sizeof(Bits)));
  const Tiles tiles;
  for (int64_t first = 0; first < shape.filters; first += kSide) {
    const float* block = gradients + first * shape.out_height * shape.out_width;
    const auto at = [&](int64_t window) -> const float* {
      const int64_t h = window / shape.width, w = window % shape.width;
      const bool is_left_out = h >= shape.out_height || w >= shape.out_width;
      return is_left_out ? nullptr : block + (h * shape.out_width + w) * kSide;
    };
    for (int64_t window = 0; window < windows; window += 2) {
      Bits* step = bits(of_gradients) + window / kSide * kStep;
      store_pair(at(window), at(window + 1), step + window % kSide * 16);
    }
    for (int64_t row = 0; row < shape.products(); row += kSide) {
      const int64_t tap = row / channels, a = tap / shape.side, b = tap % shape.side;
      const Bits* rows = bits(of_images) + row % channels * line + a * shape.width + b;
      float* own = sums + first * shape.products() + row * kSide;
      load_sums(own, kSide * sizeof(float));
      for (int64_t window = 0; window < windows; window += kSide) {
        add_products(rows + window, line, plane,
                     bits(of_gradients) + window / kSide * kStep);
      }
      store_sums(own, kSide * sizeof(float));
    }
  }
}

#undef AMX_TARGET
#undef AMX_INLINE

}  // namespace amx

#endif
