// The data-efficient encoder and its gradients on the CPU, as calls of XLA programs.
//
// Both convolutions are matrix products (see encoders/data_efficient.py). The kernels read pixels as bytes; XLA
// would write every pixel as a float first, which can cost more than the products.
//
//     pixels [N, 225 cells, P]  ->  cells [N, 225, 32] = [N, 9 outputs, 25 taps, 32]
//                               ->  outputs [N, 9, 64]
//
// A group of images is the work of one thread. The backward pass computes the cells again, which
// takes about as long as to write and read them. Every sum has one fixed order, whatever the number
// of threads or of runs. The kernels need AVX-512: with vectors of AVX2, XLA is faster.

#include "xla_calls.h"  // includes Python.h, which comes first

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tiles.h"

namespace {

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
  Lines arranged_second;              // for the backward pass
};

// Where a group's gradients by the weights lie; that of the first kernel, `[P, 32]`, begins at 0.
struct Sums {
  explicit Sums(int64_t width)
      : first_bias(kFirst * width),
        second(first_bias + kFirst),
        second_bias(second + kSecond * kRead),
        size(second_bias + kSecond) {}
  int64_t first_bias;   // `[32]`
  int64_t second;       // `[800, 64]`
  int64_t second_bias;  // `[64]`
  int64_t size;
};

// --- a group of images, in vectors ---------------------------------------------------------------

#if defined(__x86_64__)

using Isa = Avx512;
#define TARGET __attribute__((target("avx512f,fma")))

// numbers[k] = bytes[k] for every k below `count`. GCC would convert half as many at once.
TARGET void to_floats(const uint8_t* bytes, int64_t count, float* numbers) {
  int64_t k = 0;
  for (; k + kLanes<Isa> <= count; k += kLanes<Isa>) {
    const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + k));
    _mm512_storeu_ps(numbers + k, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(own)));
  }
  for (; k < count; ++k) numbers[k] = bytes[k];
}

// outputs = relu(inputs @ kernel + bias), for the rows of a tile.
//
// inputs: `[ROWS, width]`. kernel: `[width, columns]`. bias: `[columns]`.
// outputs: `[ROWS, columns]`.
template <int ROWS>
INLINE void relu_layer(const float* inputs, int64_t width, const float* kernel, const float* bias,
                       int64_t columns, float* outputs) {
  for (int64_t first = 0; first < columns; first += kColumns<Isa>) {
    Isa::Vector sums[ROWS][2];
    load<Isa>(sums, bias + first, 0);
    multiply<Isa>(sums, inputs, width, kernel + first, width, columns);
    rectify<Isa>(sums);
    store<Isa>(sums, outputs + first, columns);
  }
}

// Cells of `count` patches: `[count, P] -> [count, 32]`.
TARGET INLINE void encode_patches(const uint8_t* pixels, int64_t count, const Weights& weights,
                                  float* cells) {
  static thread_local Lines scratch;
  const int64_t width = weights.width;
  scratch.resize(lines_of(Isa::MOST_ROWS * width * sizeof(float)));
  float* numbers = floats(scratch);
  in_tiles<Isa>(count, [&](auto rows, int64_t patch) FORCED {
    const uint8_t* bytes = pixels + patch * width;
    to_floats(bytes, rows * width, numbers);
    const uint8_t* next = bytes + rows * width;  // fetched while this tile is multiplied
    for (int64_t k = 0; k < rows * width; k += 64) __builtin_prefetch(next + k);
    relu_layer<rows>(numbers, width, weights.first, weights.first_bias, kFirst,
                     cells + patch * kFirst);
  });
}

// pixels: `[count, 225, P]`. outputs: `[count, 9, 64]`.
TARGET void encode_group(const uint8_t* pixels, int64_t count, const Weights& weights,
                         float* outputs) {
  alignas(64) float cells[kCells * kFirst];
  for (int64_t image = 0; image < count; ++image) {
    encode_patches(pixels + image * kCells * weights.width, kCells, weights, cells);
    in_tiles<Isa>(kOutputs, [&](auto rows, int64_t row) FORCED {
      relu_layer<rows>(cells + row * kRead, kRead, weights.second, weights.second_bias, kSecond,
                       outputs + (image * kOutputs + row) * kSecond);
    });
  }
}

// The second kernel as the gradients of cells read it: [taps, 64, 32].
void arrange_backward(Weights& weights) {
  weights.arranged_second.resize(lines_of(kRead * kSecond * sizeof(float)));
  float* arranged = floats(weights.arranged_second);
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    const float* own = weights.second + tap * kFirst * kSecond;
    for (int64_t c = 0; c < kSecond; ++c) {
      for (int64_t i = 0; i < kFirst; ++i) *arranged++ = own[i * kSecond + c];
    }
  }
}

// Adds the gradient by a layer's kernel: sums += inputs.T @ gradients.
//
// inputs: `[rows, width]`. gradients: `[rows, columns]`. sums: `[width, columns]`.
INLINE void add_by_kernel(const float* inputs, int64_t width, const float* gradients,
                          int64_t columns, int64_t rows, float* sums) {
  for (int64_t first = 0; first < columns; first += kColumns<Isa>) {
    in_tiles<Isa>(width, [&](auto own_rows, int64_t k) FORCED {
      float* own = sums + k * columns + first;
      Isa::Vector tile[own_rows][2];
      load<Isa>(tile, own, columns);
      for (int64_t row = 0; row < rows; ++row) {
        multiply<Isa>(tile, inputs + row * width + k, 1, gradients + row * columns + first, 1);
      }
      store<Isa>(tile, own, columns);
    });
  }
}

// Adds the gradient by a layer's bias: sums += the sum of `[rows, columns]` over the rows.
TARGET INLINE void add_by_bias(const float* gradients, int64_t columns, int64_t rows, float* sums) {
  using Vector = Isa::Vector;
  for (int64_t first = 0; first < columns; first += kLanes<Isa>) {
    Vector& own = *reinterpret_cast<Vector*>(sums + first);
    Vector total = own;
    for (int64_t row = 0; row < rows; ++row) {
      total += *reinterpret_cast<const Vector*>(gradients + row * columns + first);
    }
    own = total;
  }
}

// Images whose gradients by the second kernel are added at once: what they read stays in the cache.
constexpr int64_t kImagesAtOnce = 4;

// Adds the gradients by weights of up to kImagesAtOnce images.
//
// gradients: `[count, 9, 64]`, by `outputs`.
TARGET INLINE void differentiate_images(const uint8_t* pixels, const float* outputs,
                                        const float* gradients, int64_t count,
                                        const Weights& weights, float* sums) {
  using Vector = Isa::Vector;
  static thread_local Lines of_cells, of_pixels;
  const int64_t width = weights.width, rows = count * kOutputs;
  const Sums at(width);

  // Gradients before the second ReLU.
  alignas(64) float passed[kImagesAtOnce * kOutputs * kSecond];
  for (int64_t k = 0; k < rows * kSecond; ++k) {
    passed[k] = outputs[k] > 0 ? gradients[k] : 0.0f;
  }
  add_by_bias(passed, kSecond, rows, sums + at.second_bias);

  // The cells again, and the gradient by the second kernel.
  of_cells.resize(lines_of(kImagesAtOnce * kCells * kFirst * sizeof(float)));
  float* cells = floats(of_cells);
  encode_patches(pixels, count * kCells, weights, cells);
  add_by_kernel(cells, kRead, passed, kSecond, rows, sums + at.second);

  // The gradients of the cells before their ReLU, in place of the cells.
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    for (int64_t first = 0; first < kFirst; first += kColumns<Isa>) {
      const float* columns = floats(weights.arranged_second) + tap * kSecond * kFirst + first;
      in_tiles<Isa>(rows, [&](auto own_rows, int64_t row) FORCED {
        Vector tile[own_rows][2] = {};
        multiply<Isa>(tile, passed + row * kSecond, kSecond, columns, kSecond, kFirst);
        float* own = cells + row * kRead + tap * kFirst + first;
        Vector values[own_rows][2];
        load<Isa>(values, own, kRead);
        pass<Isa>(values, tile);
        store<Isa>(tile, own, kRead);
      });
    }
  }

  // The gradients by the first kernel and bias.
  constexpr int64_t at_once = 75;  // patches: a third of an image
  of_pixels.resize(lines_of(at_once * width * sizeof(float)));
  float* numbers = floats(of_pixels);
  for (int64_t patch = 0; patch < count * kCells; patch += at_once) {
    const uint8_t* bytes = pixels + patch * width;
    const float* by_cells = cells + patch * kFirst;
    to_floats(bytes, at_once * width, numbers);
    add_by_kernel(numbers, width, by_cells, kFirst, at_once, sums);
    add_by_bias(by_cells, kFirst, at_once, sums + at.first_bias);
  }
}

TARGET void differentiate_group(const uint8_t* pixels, const float* outputs,
                                const float* gradients, int64_t count, const Weights& weights,
                                float* sums) {
  std::fill_n(sums, Sums(weights.width).size, 0.0f);
  for (int64_t image = 0; image < count; image += kImagesAtOnce) {
    const int64_t output = image * kOutputs * kSecond;
    differentiate_images(pixels + image * kCells * weights.width, outputs + output,
                         gradients + output, std::min(kImagesAtOnce, count - image), weights, sums);
  }
}

#else

void arrange_backward(Weights&) {}
void encode_group(const uint8_t*, int64_t, const Weights&, float*) {}
void differentiate_group(const uint8_t*, const float*, const float*, int64_t, const Weights&,
                         float*) {}

#endif

// --- all runs ------------------------------------------------------------------------------------

using Floats = ffi::Buffer<ffi::F32>;
using Pixels = ffi::Buffer<ffi::U8>;
using Result = ffi::Result<Floats>;

// Runs come first in every array, each with its own weights.
struct Shape {
  int64_t runs, images, width;  // width: pixels of a patch
  int64_t groups() const { return (images + kImages - 1) / kImages; }
};

// Whether this processor has AVX-512, and the arrays have the numbers that `pixels`,
// `[..., N, 225, P]`, asks for.
ffi::Error read_shape(const Pixels& pixels, const Floats& first, const Floats& first_bias,
                      const Floats& second, const Floats& outputs, Shape& shape) {
  if (!has_avx512()) return ffi::Error::Internal("this processor has no AVX-512");
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

// The weights of all runs, arranged in the backward pass, where `second_bias` is null.
std::vector<Weights> weights_of(ffi::ThreadPool& pool, const Shape& shape, const Floats& first,
                                const Floats& first_bias, const Floats& second,
                                const float* second_bias) {
  std::vector<Weights> weights(shape.runs);
  in_parallel(pool, shape.runs, [&](int64_t run) {
    weights[run] = {shape.width,
                    first.typed_data() + run * shape.width * kFirst,
                    first_bias.typed_data() + run * kFirst,
                    second.typed_data() + run * kRead * kSecond,
                    second_bias == nullptr ? nullptr : second_bias + run * kSecond,
                    {}};
    if (second_bias == nullptr) arrange_backward(weights[run]);
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
  const std::vector<Weights> weights =
      weights_of(pool, shape, first, first_bias, second, second_bias.typed_data());
  for_groups(pool, shape, [&](int64_t run, int64_t, int64_t image, int64_t count) {
    encode_group(pixels.typed_data() + image * kCells * shape.width, count, weights[run],
                 outputs->typed_data() + image * kOutputs * kSecond);
  });
  return ffi::Error::Success();
}

// A sum over the groups of a run, in their order: to = the sum of from[group * stride].
void add_up(const float* from, int64_t groups, int64_t stride, int64_t count, float* to) {
  std::fill_n(to, count, 0.0f);
  for (int64_t group = 0; group < groups; ++group) {
    const float* own = from + group * stride;
    for (int64_t k = 0; k < count; ++k) to[k] += own[k];
  }
}

// Gradients by the weights.
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
      weights_of(pool, shape, first, first_bias, second, nullptr);
  const Sums at(shape.width);
  const int64_t groups = shape.groups();
  const std::unique_ptr<float[]> sums(new float[shape.runs * groups * at.size]);
  for_groups(pool, shape, [&](int64_t run, int64_t group, int64_t image, int64_t count) {
    const int64_t output = image * kOutputs * kSecond;
    differentiate_group(pixels.typed_data() + image * kCells * shape.width,
                        outputs.typed_data() + output, gradients.typed_data() + output, count,
                        weights[run], sums.get() + (run * groups + group) * at.size);
  });

  constexpr int64_t slices = 8, slice = kRead * kSecond / slices;
  in_parallel(pool, shape.runs * slices, [&](int64_t i) {
    const int64_t run = i / slices, k = i % slices;
    const float* own = sums.get() + run * groups * at.size;
    add_up(own + at.second + k * slice, groups, at.size, slice,
           by_second->typed_data() + run * kRead * kSecond + k * slice);
    if (k > 0) return;
    add_up(own, groups, at.size, shape.width * kFirst,
           by_first->typed_data() + run * shape.width * kFirst);
    add_up(own + at.first_bias, groups, at.size, kFirst,
           by_first_bias->typed_data() + run * kFirst);
    add_up(own + at.second_bias, groups, at.size, kSecond,
           by_second_bias->typed_data() + run * kSecond);
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

// --- the Python module ---------------------------------------------------------------------------

PyModuleDef definition = definition_of("_encoder", nullptr);

}  // namespace

PyMODINIT_FUNC PyInit__encoder(void) {
  return make_module(definition,
                     {{"encode", encode_handler}, {"differentiate", differentiate_handler}},
                     has_avx512() ? "Avx512" : "");
}
