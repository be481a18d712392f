// Sizes of the data-efficient encoder, and what its kernels read and write.

#pragma once

#include <cstdint>

#include "lines.h"

constexpr int64_t kOutputs = 9;               // of an image
constexpr int64_t kTaps = 25;                 // cells that an output reads
constexpr int64_t kCells = kOutputs * kTaps;  // of an image
constexpr int64_t kFirst = 32;                // channels of a cell
constexpr int64_t kSecond = 64;               // channels of an output
constexpr int64_t kRead = kTaps * kFirst;     // numbers that an output reads
constexpr int64_t kImages = 16;               // of a group

// Weights of one run. P is the number of pixels of a patch, `width`.
struct Weights {
  int64_t width;
  const float *first, *first_bias;    // [P, 32], [32]
  const float *second, *second_bias;  // [800, 64], [64]; the backward pass has no bias
  // What a set of instructions arranges of them.
  Lines arranged_first, arranged_second;
};

// Where a group's gradients by the weights lie. A set of instructions may have them transposed.
struct Sums {
  explicit Sums(int64_t row)
      : row(row),
        first_bias(kFirst * row),
        second(first_bias + kFirst),
        second_bias(second + kSecond * kRead),
        size(second_bias + kSecond) {}
  int64_t row;          // numbers of a row of the first kernel's gradient, `[32, P]`, if transposed
  int64_t first_bias;   // `[32]`; the first kernel's gradient begins at 0
  int64_t second;       // `[800, 64]`, transposed `[64, 800]`
  int64_t second_bias;  // `[64]`
  int64_t size;
};
