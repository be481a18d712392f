// Memory in lines of the cache.

#pragma once

#include <cstdint>
#include <vector>

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
