// What all parts of convolution.cc know: the shape of a convolution, and memory for its numbers.

#pragma once

#include <cstdint>
#include <vector>

struct Shape {
  int64_t images, height, width, channels;
  int64_t side, stride;  // of the kernel
  int64_t out_height, out_width, filters;

  int64_t image() const { return height * width * channels; }
  int64_t output() const { return out_height * out_width * filters; }
  int64_t row() const { return width * channels; }
  int64_t step() const { return stride * channels; }  // from window to window
  int64_t products() const { return side * side * channels; }  // a sum of an output
};

inline int64_t round_up(int64_t value, int64_t multiple) {
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
