// The shape of a convolution, which all parts of convolution.cc know.

#pragma once

#include <cstdint>

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
