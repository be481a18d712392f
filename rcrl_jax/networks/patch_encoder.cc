// The data-efficient encoder and its gradients on the CPU, as calls of XLA programs.
//
// Both convolutions are matrix products (see encoders.py). The first reads bytes, which bfloat16
// holds exactly, so the matrix unit of amx.h reads pixels as they are and their weights in two
// parts. XLA would write every pixel as a float first, which costs more than the products.
//
//     pixels [N, 225 cells, P]  ->  cells [N, 225, 32] = [N, 9 outputs, 25 taps, 32]
//                               ->  outputs [N, 9, 64]
//
// A group of images is the work of one thread. The backward pass computes the cells again, which
// takes less time than to write and read them. Every sum has one fixed order, whatever the number
// of threads or of runs.

#include "../xla_calls.h"  // includes Python.h, which comes first

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "amx.h"
#include "lines.h"

namespace {

constexpr int64_t kOutputs = 9;               // of an image
constexpr int64_t kTaps = 25;                 // cells that an output reads
constexpr int64_t kCells = kOutputs * kTaps;  // of an image
constexpr int64_t kFirst = 32;                // channels of a cell
constexpr int64_t kSecond = 64;               // channels of an output
constexpr int64_t kRead = kTaps * kFirst;     // numbers that an output reads
constexpr int64_t kImages = 16;               // of a group

#if defined(HAS_AMX)

using namespace amx;

static_assert(kFirst == kSide && kSecond % kSide == 0);
constexpr int64_t kPaddedRows = round_up(kImages * kOutputs, kSide);  // outputs of a group
constexpr int64_t kRowSteps = kPaddedRows / kSide;
constexpr int64_t kSecondSteps = kSecond / kSide;
constexpr int64_t kHalfStep = 2 * kTile;  // numbers in the columns of a step that have one part

int64_t steps_of(int64_t width) { return round_up(width, kSide) / kSide; }

// --- layouts of the weights ----------------------------------------------------------------------

// Weights of one run as columns of products.
struct Weights {
  Lines first;   // [steps of a patch, ...]
  Lines second;  // as the forward or the backward pass reads them
};

// Of the cells. first: [P, 32].
AMX_TARGET Lines first_columns(const float* first, int64_t width) {
  Lines columns(lines_of(steps_of(width) * kStep * sizeof(Bits)));
  for (int64_t row = 0; row < steps_of(width) * kSide; row += 2) {
    const auto at = [&](int64_t k) { return k < width ? first + k * kFirst : nullptr; };
    Bits* step = bits(columns) + row / kSide * kStep;
    store_pair(at(row), at(row + 1), step + row % kSide * 16);
  }
  return columns;
}

// Of the outputs: [blocks of channels, taps, ...]. second: [800, 64].
AMX_TARGET Lines second_columns(const float* second) {
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
AMX_TARGET Lines transposed_columns(const float* second) {
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
AMX_TARGET void encode_group(const uint8_t* pixels, int64_t count, int64_t width,
                             const Weights& weights, const float* first_bias,
                             const float* second_bias, float* outputs) {
  static thread_local Lines of_patches, of_cells;
  constexpr int64_t plane = kPaddedRows * kRead;
  const Patch patch(width);
  of_patches.resize(lines_of(kSide * steps_of(width) * kSide * sizeof(Bits)));
  of_cells.resize(lines_of(2 * plane * sizeof(Bits)));
  Bits *patches = bits(of_patches), *parts = bits(of_cells);
  alignas(64) float sums[kSide * kSide];
  const Tiles tiles;
  const int64_t all_cells = count * kCells, rows = count * kOutputs;
  for (int64_t cell = 0; cell < all_cells; cell += kSide) {
    encode_patches(pixels + cell * width, std::min(kSide, all_cells - cell), patch,
                   bits(weights.first), first_bias, patches, sums);
    for (int64_t k = 0; k < kSide * kSide; k += 16) {
      store_parts(_mm512_load_ps(sums + k), parts + cell * kFirst + k, plane);
    }
  }
  for (int64_t block = 0; block < kSecondSteps; ++block) {
    for (int64_t row = 0; row < rows; row += kSide) {
      load_sums(second_bias + block * kSide, 0);
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        add_products(parts + row * kRead + tap * kFirst, kRead, plane,
                     bits(weights.second) + (block * kTaps + tap) * kStep);
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

// Gradients of one group by the weights, transposed: numbers of a group's sums.
struct Sums {
  explicit Sums(int64_t width)
      : stride(steps_of(width) * kSide),
        first_bias(kFirst * stride),
        second(first_bias + kFirst),
        second_bias(second + kSecond * kRead),
        size(second_bias + kSecond) {}
  int64_t stride;       // of a row of `first`, `[32, P]`, which begins at 0
  int64_t first_bias;   // `[32]`
  int64_t second;       // `[64, 800]`
  int64_t second_bias;  // `[64]`
  int64_t size;
};

// gradients: `[count, 9, 64]`, by `outputs`.
AMX_TARGET void differentiate_group(const uint8_t* pixels, const float* outputs,
                                    const float* gradients, int64_t count, int64_t width,
                                    const Weights& weights, const float* first_bias,
                                    const Sums& at, float* sums) {
  static thread_local Lines of_patches, of_cells, of_pixels;
  const int64_t all_cells = count * kCells, rows = count * kOutputs;
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
  of_patches.resize(lines_of(kSide * at.stride * sizeof(Bits)));
  of_cells.resize(lines_of(kPaddedRows * kRead * sizeof(float)));
  float* cells = floats(of_cells);
  for (int64_t cell = 0; cell < all_cells; cell += kSide) {
    encode_patches(pixels + cell * width, std::min(kSide, all_cells - cell), patch,
                   bits(weights.first), first_bias, bits(of_patches), cells + cell * kFirst);
  }

  const int64_t row_steps = steps_of(rows), blocks = at.stride / kSide;
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
                     bits(weights.second) + (tap * kSecondSteps + k) * kStep);
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
        load_sums(own, at.stride * sizeof(float));
      }
      for (int64_t step = 0; step < row_steps; ++step) {
        add_products<2, 1>(cell_rows + step * kSide, kPaddedRows, kFirst * kPaddedRows,
                           pixel_columns + (block * kRowSteps + step) * kHalfStep);
      }
      store_sums(own, at.stride * sizeof(float));
    }
  }
  std::copy_n(bias, kFirst, sums + at.first_bias);
}

// --- all runs ------------------------------------------------------------------------------------

using Floats = ffi::Buffer<ffi::F32>;
using Pixels = ffi::Buffer<ffi::U8>;
using Result = ffi::Result<Floats>;

// Runs come first in every array, each with its own weights.
struct Shape {
  int64_t runs, images, width;  // width: pixels of a patch
  int64_t groups() const { return (images + kImages - 1) / kImages; }
};

// Whether the arrays have the numbers that `pixels`, `[..., N, 225, P]`, asks for.
ffi::Error read_shape(const Pixels& pixels, const Floats& first, const Floats& first_bias,
                      const Floats& second, const Floats& outputs, Shape& shape) {
  const auto in = pixels.dimensions();
  if (in.size() < 3 || in[in.size() - 2] != kCells || in[in.size() - 1] < 1) {
    return ffi::Error::InvalidArgument("pixels need the axes image, 225 cells, pixel");
  }
  shape.width = in[in.size() - 1];
  shape.images = in[in.size() - 3];
  shape.runs = 1;
  for (size_t axis = 0; axis + 3 < in.size(); ++axis) shape.runs *= in[axis];
  if (int64_t(first.element_count()) != shape.runs * shape.width * kFirst ||
      int64_t(first_bias.element_count()) != shape.runs * kFirst ||
      int64_t(second.element_count()) != shape.runs * kRead * kSecond ||
      int64_t(outputs.element_count()) != shape.runs * shape.images * kOutputs * kSecond) {
    return ffi::Error::InvalidArgument("the shapes are not those of the encoder");
  }
  return ffi::Error::Success();
}

std::vector<Weights> arrange_all(ffi::ThreadPool& pool, const Shape& shape, const Floats& first,
                                 const Floats& second, Lines (*arrange_second)(const float*)) {
  std::vector<Weights> weights(shape.runs);
  in_parallel(pool, shape.runs, [&](int64_t run) {
    weights[run] = {first_columns(first.typed_data() + run * shape.width * kFirst, shape.width),
                    arrange_second(second.typed_data() + run * kRead * kSecond)};
  });
  return weights;
}

// Calls work(run, group, first image of all, number of images).
template <typename Work>
void for_groups(ffi::ThreadPool& pool, const Shape& shape, const Work& work) {
  in_parallel(pool, shape.runs * shape.groups(), [&](int64_t i) {
    const int64_t run = i / shape.groups(), group = i % shape.groups();
    const int64_t begin = group * kImages, count = std::min(kImages, shape.images - begin);
    work(run, group, run * shape.images + begin, count);
  });
}

ffi::Error Encode(ffi::ThreadPool pool, Pixels pixels, Floats first, Floats first_bias,
                  Floats second, Floats second_bias, Result outputs) {
  Shape shape;
  auto error = read_shape(pixels, first, first_bias, second, *outputs, shape);
  if (error.failure()) return error;
  if (int64_t(second_bias.element_count()) != shape.runs * kSecond) {
    return ffi::Error::InvalidArgument("the second bias has another shape");
  }
  const std::vector<Weights> weights = arrange_all(pool, shape, first, second, second_columns);
  for_groups(pool, shape, [&](int64_t run, int64_t, int64_t image, int64_t count) {
    encode_group(pixels.typed_data() + image * kCells * shape.width, count, shape.width,
                 weights[run], first_bias.typed_data() + run * kFirst,
                 second_bias.typed_data() + run * kSecond,
                 outputs->typed_data() + image * kOutputs * kSecond);
  });
  return ffi::Error::Success();
}

// Gradients by the weights, those of the kernels transposed.
ffi::Error Differentiate(ffi::ThreadPool pool, Pixels pixels, Floats first, Floats first_bias,
                         Floats second, Floats outputs, Floats gradients, Result by_first,
                         Result by_first_bias, Result by_second, Result by_second_bias) {
  Shape shape;
  auto error = read_shape(pixels, first, first_bias, second, outputs, shape);
  if (error.failure()) return error;
  if (gradients.element_count() != outputs.element_count() ||
      by_first->element_count() != first.element_count() ||
      by_first_bias->element_count() != first_bias.element_count() ||
      by_second->element_count() != second.element_count() ||
      int64_t(by_second_bias->element_count()) != shape.runs * kSecond) {
    return ffi::Error::InvalidArgument("gradients have other shapes than weights or outputs");
  }
  const std::vector<Weights> weights =
      arrange_all(pool, shape, first, second, transposed_columns);
  const Sums at(shape.width);
  const int64_t groups = shape.groups();
  const std::unique_ptr<float[]> sums(new float[shape.runs * groups * at.size]);
  for_groups(pool, shape, [&](int64_t run, int64_t group, int64_t image, int64_t count) {
    const int64_t output = image * kOutputs * kSecond;
    differentiate_group(pixels.typed_data() + image * kCells * shape.width,
                        outputs.typed_data() + output, gradients.typed_data() + output, count,
                        shape.width, weights[run], first_bias.typed_data() + run * kFirst, at,
                        sums.get() + (run * groups + group) * at.size);
  });
  // Adds the groups up, in their order.
  const auto add_up = [&](int64_t run, int64_t from, int64_t count, float* to) {
    std::fill_n(to, count, 0.0f);
    for (int64_t group = 0; group < groups; ++group) {
      const float* own = sums.get() + (run * groups + group) * at.size + from;
      for (int64_t k = 0; k < count; ++k) to[k] += own[k];
    }
  };
  constexpr int64_t slices = 8, slice = kSecond * kRead / slices;
  in_parallel(pool, shape.runs * slices, [&](int64_t i) {
    const int64_t run = i / slices, k = i % slices;
    add_up(run, at.second + k * slice, slice,
           by_second->typed_data() + run * kSecond * kRead + k * slice);
    if (k > 0) return;
    for (int64_t row = 0; row < kFirst; ++row) {
      add_up(run, row * at.stride, shape.width,
             by_first->typed_data() + (run * kFirst + row) * shape.width);
    }
    add_up(run, at.first_bias, kFirst, by_first_bias->typed_data() + run * kFirst);
    add_up(run, at.second_bias, kSecond, by_second_bias->typed_data() + run * kSecond);
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(encode_handler, Encode,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<Pixels>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Ret<Floats>());

XLA_FFI_DEFINE_HANDLER(differentiate_handler, Differentiate,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<Pixels>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Ret<Floats>()
                           .Ret<Floats>()
                           .Ret<Floats>()
                           .Ret<Floats>());

#endif

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_patch_encoder", nullptr, -1, nullptr,
                          nullptr,               nullptr,          nullptr, nullptr};

}  // namespace

// Only where the processor has the unit does the module have the calls.
PyMODINIT_FUNC PyInit__patch_encoder(void) {
  PyObject* module = PyModule_Create(&definition);
#if defined(HAS_AMX)
  if (module != nullptr && amx::is_available() &&
      (add(module, "encode", encode_handler) != 0 ||
       add(module, "differentiate", differentiate_handler) != 0)) {
    Py_XDECREF(module);
    return nullptr;
  }
#endif
  return module;
}
