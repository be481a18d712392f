// The data-efficient encoder on the matrix unit of Intel processors (AMX), in TF32.
//
// Pixels are bytes, which bfloat16 holds exactly, so the unit reads them in one part and their
// weights in two.

#pragma once

#include "amx.h"
#include "lines.h"
#include "patch_encoder_shape.h"

#if defined(HAS_AMX)

#include <algorithm>

namespace amx {

static_assert(kFirst == kSide && kSecond % kSide == 0);
constexpr int64_t kPaddedRows = round_up(kImages * kOutputs, kSide);  // outputs of a group
constexpr int64_t kRowSteps = kPaddedRows / kSide;
constexpr int64_t kSecondSteps = kSecond / kSide;
constexpr int64_t kHalfStep = 2 * kTile;  // numbers in the columns of a step that have one part

inline int64_t steps_of(int64_t width) { return round_up(width, kSide) / kSide; }
inline int64_t padded(int64_t width) { return round_up(width, kSide); }

// --- layouts of the weights ----------------------------------------------------------------------

// Of the cells. first: [P, 32].
AMX_TARGET inline Lines first_columns(const float* first, int64_t width) {
  Lines columns(lines_of(steps_of(width) * kStep * sizeof(Bits)));
  for (int64_t row = 0; row < padded(width); row += 2) {
    const auto at = [&](int64_t k) { return k < width ? first + k * kFirst : nullptr; };
    Bits* step = bits(columns) + row / kSide * kStep;
    store_pair(at(row), at(row + 1), step + row % kSide * 16);
  }
  return columns;
}

// Of the outputs: [blocks of channels, taps, ...]. second: [800, 64].
AMX_TARGET inline Lines second_columns(const float* second) {
  Lines columns(lines_of(kSecondSteps * kTaps * kStep * sizeof(Bits)));
  for (int64_t block = 0; block < kSecondSteps; ++block) {
    for (int64_t row = 0; row < kRead; row += 2) {
      const float* even = second + row * kSecond + block * kSide;
      Bits* step = bits(columns) + (block * kTaps + row / kSide) * kStep;
      store_pair(even, even + kSecond, step + row % kSide * 16);
    }
  }
  return columns;
}

// Of the gradients of cells: [taps, steps of channels, ...]. second: [800, 64].
AMX_TARGET inline Lines transposed_columns(const float* second) {
  Lines columns(lines_of(kSecondSteps * kTaps * kStep * sizeof(Bits)));
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    for (int64_t block = 0; block < kSecondSteps; ++block) {
      alignas(64) Bits parts[2 * kSide * kSide];  // [parts, 32 channels of a cell, 32 of an output]
      for (int64_t row = 0; row < kSide; ++row) {
        const float* from = second + (tap * kSide + row) * kSecond + block * kSide;
        store_parts(_mm512_loadu_ps(from), parts + row * kSide, kSide * kSide);
        store_parts(_mm512_loadu_ps(from + 16), parts + row * kSide + 16, kSide * kSide);
      }
      Bits* step = bits(columns) + (tap * kSecondSteps + block) * kStep;
      for (int64_t tile = 0; tile < 4; ++tile) {  // [2 halves of the channels, parts]
        const Bits* from = parts + tile % 2 * kSide * kSide + tile / 2 * kTile;
        transpose_pairs(from, kSide, step + tile * kTile, kSide);
      }
    }
  }
  return columns;
}

AMX_TARGET inline void arrange_forward(Weights& weights) {
  weights.arranged_first = first_columns(weights.first, weights.width);
  weights.arranged_second = second_columns(weights.second);
}
AMX_TARGET inline void arrange_backward(Weights& weights) {
  weights.arranged_first = first_columns(weights.first, weights.width);
  weights.arranged_second = transposed_columns(weights.second);
}

// Writes the parts of 32 rows of 32 numbers, `from_stride` apart, as columns; the second parts
// `plane` behind the first.
AMX_INLINE void store_transposed(const float* from, int64_t from_stride, Bits* to,
                                 int64_t to_stride, int64_t plane) {
  alignas(64) Bits step[kStep];
  for (int64_t row = 0; row < kSide; row += 2) {
    const float* even = from + row * from_stride;
    store_pair(even, even + from_stride, step + row * 16);
  }
  for (int64_t tile = 0; tile < 4; ++tile) {  // [2 halves of the columns, parts]
    Bits* own = to + tile % 2 * plane + tile / 2 * 16 * to_stride;
    transpose_pairs(step + tile * kTile, kSide, own, to_stride);
  }
}

// --- the first product ---------------------------------------------------------------------------

// Reads of the pixels of a patch, 16 at a time. Those of the last one that are not asked for are 0.
struct Patch {
  explicit Patch(int64_t width) : width(width), whole(width / 16 * 16) {}
  AMX_TARGET __attribute__((always_inline)) __m512 read(const uint8_t* patch, int64_t k) const {
    const __mmask16 exist = k < whole ? 0xffff : k < width ? (1u << (width - whole)) - 1 : 0;
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(exist, patch + k)));
  }
  int64_t width, whole;
};

// Writes the cells of up to 32 patches, `[count, P] -> [32, 32]`; what is not asked for is noise.
//
// rows: for [32, P padded to whole steps], finite numbers.
AMX_INLINE void encode_patches(const uint8_t* pixels, int64_t count, const Patch& patch,
                               const Bits* columns, const float* bias, Bits* rows, float* cells) {
  const int64_t steps = steps_of(patch.width), stride = steps * kSide;
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* own = pixels + row * patch.width;
    for (int64_t k = 0; k < stride; k += kSide) {
      const __m512 lower = patch.read(own, k), upper = patch.read(own, k + 16);
      _mm512_store_si512(rows + row * stride + k, (__m512i)_mm512_cvtne2ps_pbh(upper, lower));
    }
  }
  load_sums(bias, 0);
  for (int64_t step = 0; step < steps; ++step) {
    add_products<1, 2>(rows + step * kSide, stride, 0, columns + step * kStep);
  }
  store_sums(cells, kSide * sizeof(float));
  // The ReLU. Like that of JAX it keeps NaN, by which a run notices that it diverges.
  for (int64_t k = 0; k < kSide * kSide; ++k) cells[k] = cells[k] < 0 ? 0 : cells[k];
}

// --- a group of images ---------------------------------------------------------------------------

// pixels: `[count, 225, P]`. outputs: `[count, 9, 64]`.
AMX_TARGET inline void encode_group(const uint8_t* pixels, int64_t count, const Weights& weights,
                                    float* outputs) {
  static thread_local Lines of_patches, of_cells;
  constexpr int64_t plane = kPaddedRows * kRead;
  const int64_t width = weights.width;
  const Patch patch(width);
  of_patches.resize(lines_of(kSide * padded(width) * sizeof(Bits)));
  of_cells.resize(lines_of(2 * plane * sizeof(Bits)));
  Bits *patches = bits(of_patches), *parts = bits(of_cells);
  alignas(64) float sums[kSide * kSide];
  const Tiles tiles;
  const int64_t all_cells = count * kCells, rows = count * kOutputs;
  for (int64_t cell = 0; cell < all_cells; cell += kSide) {
    encode_patches(pixels + cell * width, std::min(kSide, all_cells - cell), patch,
                   bits(weights.arranged_first), weights.first_bias, patches, sums);
    for (int64_t k = 0; k < kSide * kSide; k += 16) {
      store_parts(_mm512_load_ps(sums + k), parts + cell * kFirst + k, plane);
    }
  }
  for (int64_t block = 0; block < kSecondSteps; ++block) {
    for (int64_t row = 0; row < rows; row += kSide) {
      load_sums(weights.second_bias + block * kSide, 0);
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        add_products(parts + row * kRead + tap * kFirst, kRead, plane,
                     bits(weights.arranged_second) + (block * kTaps + tap) * kStep);
      }
      store_sums(sums, kSide * sizeof(float));
      for (int64_t k = row; k < std::min(row + kSide, rows); ++k) {
        const float* own = sums + (k - row) * kSide;
        float* to = outputs + k * kSecond + block * kSide;
        for (int64_t c = 0; c < kSide; ++c) to[c] = own[c] < 0 ? 0 : own[c];
      }
    }
  }
}

// gradients: `[count, 9, 64]`, by `outputs`. sums: those of the group, transposed.
AMX_TARGET inline void differentiate_group(const uint8_t* pixels, const float* outputs,
                                           const float* gradients, int64_t count,
                                           const Weights& weights, float* sums) {
  static thread_local Lines of_patches, of_cells, of_pixels;
  const int64_t width = weights.width, all_cells = count * kCells, rows = count * kOutputs;
  const Sums at(padded(width));
  const Patch patch(width);
  const Tiles tiles;

  // Gradients before the second ReLU, as rows of products and transposed.
  constexpr int64_t plane = kPaddedRows * kSecond;
  alignas(64) float passed[plane];
  alignas(64) Bits passed_rows[2 * plane];     // [parts, rows, 64]
  alignas(64) Bits passed_columns[2 * plane];  // [parts, 64, rows]
  float* second_bias = sums + at.second_bias;
  std::fill_n(second_bias, kSecond, 0.0f);
  std::fill_n(passed, plane, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < kSecond; ++c) {
      const float own = outputs[row * kSecond + c] > 0 ? gradients[row * kSecond + c] : 0.0f;
      passed[row * kSecond + c] = own;
      second_bias[c] += own;
    }
  }
  for (int64_t k = 0; k < plane; k += 16) {
    store_parts(_mm512_load_ps(passed + k), passed_rows + k, plane);
  }
  for (int64_t block = 0; block < kSecondSteps; ++block) {
    for (int64_t top = 0; top < kPaddedRows; top += kSide) {
      store_transposed(passed + top * kSecond + block * kSide, kSecond,
                       passed_columns + block * kSide * kPaddedRows + top, kPaddedRows, plane);
    }
  }

  // The cells again.
  of_patches.resize(lines_of(kSide * at.row * sizeof(Bits)));
  of_cells.resize(lines_of(kPaddedRows * kRead * sizeof(float)));
  float* cells = floats(of_cells);
  for (int64_t cell = 0; cell < all_cells; cell += kSide) {
    encode_patches(pixels + cell * width, std::min(kSide, all_cells - cell), patch,
                   bits(weights.arranged_first), weights.first_bias, bits(of_patches),
                   cells + cell * kFirst);
  }

  const int64_t row_steps = steps_of(rows), blocks = at.row / kSide;
  of_pixels.resize(lines_of(blocks * kRowSteps * kHalfStep * sizeof(Bits)));
  Bits* pixel_columns = bits(of_pixels);  // [blocks of pixels, steps, ...]
  alignas(64) float bias[kFirst] = {};
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    const float* own_cells = cells + tap * kFirst;  // [rows, 32], each kRead behind the last

    // The gradient by the second kernel.
    alignas(64) Bits cell_columns[kRowSteps * kStep];
    for (int64_t row = 0; row < row_steps * kSide; row += 2) {
      const auto at_row = [&](int64_t k) { return k < rows ? own_cells + k * kRead : nullptr; };
      store_pair(at_row(row), at_row(row + 1),
                 cell_columns + row / kSide * kStep + row % kSide * 16);
    }
    for (int64_t block = 0; block < kSecondSteps; ++block) {
      clear_sums();
      for (int64_t step = 0; step < row_steps; ++step) {
        add_products(passed_columns + block * kSide * kPaddedRows + step * kSide, kPaddedRows,
                     plane, cell_columns + step * kStep);
      }
      store_sums(sums + at.second + block * kSide * kRead + tap * kFirst, kRead * sizeof(float));
    }

    // Gradients of the cells.
    alignas(64) Bits cell_rows[2 * kFirst * kPaddedRows];  // [parts, 32, rows]
    for (int64_t top = 0; top < row_steps * kSide; top += kSide) {
      alignas(64) float tile[kSide * kSide];
      clear_sums();
      for (int64_t k = 0; k < kSecondSteps; ++k) {
        add_products(passed_rows + top * kSecond + k * kSide, kSecond, plane,
                     bits(weights.arranged_second) + (tap * kSecondSteps + k) * kStep);
      }
      store_sums(tile, kSide * sizeof(float));
      for (int64_t row = 0; row < kSide; ++row) {
        const float* own = own_cells + (top + row) * kRead;
        float* gradient = tile + row * kSide;
        const bool exists = top + row < rows;
        for (int64_t c = 0; c < kFirst; ++c) {
          gradient[c] = exists && own[c] > 0 ? gradient[c] : 0.0f;
          bias[c] += gradient[c];
        }
      }
      store_transposed(tile, kSide, cell_rows + top, kPaddedRows, kFirst * kPaddedRows);
    }

    // The gradient by the first kernel. Rows that do not exist have the gradient 0.
    for (int64_t row = 0; row < row_steps * kSide; row += 2) {
      const uint8_t* even = pixels + (std::min(row, rows - 1) * kTaps + tap) * width;
      const uint8_t* odd = pixels + (std::min(row + 1, rows - 1) * kTaps + tap) * width;
      for (int64_t k = 0; k < width; k += 16) {
        const __m512i lower = _mm512_castps_si512(patch.read(even, k));
        const __m512i upper = _mm512_castps_si512(patch.read(odd, k));
        Bits* to = pixel_columns + (k / kSide * kRowSteps + row / kSide) * kHalfStep +
                   k / 16 % 2 * kTile + row % kSide * 16;
        _mm512_store_si512(to, _mm512_or_si512(_mm512_srli_epi32(lower, 16), upper));
      }
    }
    for (int64_t block = 0; block < blocks; ++block) {
      float* own = sums + block * kSide;
      if (tap == 0) {
        clear_sums();
      } else {
        load_sums(own, at.row * sizeof(float));
      }
      for (int64_t step = 0; step < row_steps; ++step) {
        add_products<2, 1>(cell_rows + step * kSide, kPaddedRows, kFirst * kPaddedRows,
                           pixel_columns + (block * kRowSteps + step) * kHalfStep);
      }
      store_sums(own, at.row * sizeof(float));
    }
  }
  std::copy_n(bias, kFirst, sums + at.first_bias);
}

}  // namespace amx

#endif
