// The convolution on the matrix unit of Intel processors (AMX), in TF32.

#pragma once

#include "amx.h"
#include "convolution_shape.h"
#include "lines.h"

#if defined(HAS_AMX)

#include <algorithm>
#include <cstring>

namespace amx {

// What the unit can convolve: its steps are 32 channels long.
inline bool fits(const Shape& shape) { return shape.stride == 1 && shape.channels % kSide == 0; }

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

}  // namespace amx

#endif
