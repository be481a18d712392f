// A convolution without padding and its gradients on the CPU, as calls of XLA programs.
//
// Layouts are those of convolution.py: images [N, H, W, C], kernels [K, K, C, F], row after row.
// Every number is the sum of its products in one fixed order, so results depend neither on the
// number of threads nor on the width of vectors.

#include "xla_calls.h"  // includes Python.h, which comes first

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tiles.h"

namespace {

using Floats = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Floats>;

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

// --- one image -----------------------------------------------------------------------------------

// Outputs of one image.
//
// kernel: [blocks of columns, products, columns], as `in_blocks` lays it out.
// bias: [blocks of columns, columns].
template <typename Isa>
INLINE void convolve_image(const Shape& shape, const float* image, const float* kernel,
                           const float* bias, bool relu, float* output) {
  using Vector = typename Isa::Vector;
  constexpr int64_t columns = kColumns<Isa>;
  for (int64_t first = 0; first < shape.filters; first += columns) {
    const float* block = kernel + first * shape.products();
    const int64_t width = std::min(columns, shape.filters - first);
    for (int64_t h = 0; h < shape.out_height; ++h) {
      const float* lines = image + h * shape.stride * shape.row();
      float* out = output + h * shape.out_width * shape.filters + first;
      in_tiles<Isa>(shape.out_width, [&](auto rows, int64_t w) FORCED {
        Vector sums[rows][2];
        load<Isa>(sums, bias + first, 0);
        for (int64_t a = 0; a < shape.side; ++a) {
          const int64_t count = shape.side * shape.channels;
          multiply<Isa>(sums, lines + a * shape.row() + w * shape.step(), shape.step(),
                        block + a * count * columns, count);
        }
        if (relu) rectify<Isa>(sums);
        float* to = out + w * shape.filters;
        if (width == columns) {
          store<Isa>(sums, to, shape.filters);
        } else {
          float whole[rows * columns];
          store<Isa>(sums, whole, columns);
          for (int row = 0; row < rows; ++row) {
            std::memcpy(to + row * shape.filters, whole + row * columns, width * sizeof(float));
          }
        }
      });
    }
  }
}

// Adds the kernel's gradient of one image to `sums`, laid out as `kernel` in `convolve_image`.
//
// gradients: [blocks of columns, out_height * out_width, columns].
template <typename Isa>
INLINE void correlate_image(const Shape& shape, const float* image, const float* gradients,
                            float* sums) {
  constexpr int64_t columns = kColumns<Isa>;
  constexpr int64_t rows_at_once = 4;  // so that what they read stays in the nearest cache
  const int64_t pixels = shape.out_height * shape.out_width, line = shape.side * shape.channels;
  for (int64_t top = 0; top < shape.out_height; top += rows_at_once) {
    const int64_t bottom = std::min(top + rows_at_once, shape.out_height);
    for (int64_t first = 0; first < shape.filters; first += columns) {
      const float* block = gradients + first * pixels;
      for (int64_t a = 0; a < shape.side; ++a) {
        in_tiles<Isa>(line, [&](auto rows, int64_t k) FORCED {
          using Vector = typename Isa::Vector;
          float* own = sums + first * shape.products() + (a * line + k) * columns;
          Vector tile[rows][2];
          load<Isa>(tile, own, columns);
          for (int64_t h = top; h < bottom; ++h) {
            const float* inputs = image + (h * shape.stride + a) * shape.row() + k;
            const float* vectors = block + h * shape.out_width * columns;
            for (int64_t w = 0; w < shape.out_width; ++w) {
              multiply<Isa>(tile, inputs, 1, vectors, 1);
              inputs += shape.step();
              vectors += columns;
            }
          }
          store<Isa>(tile, own, columns);
        });
      }
    }
  }
}

// The gradients of a row of outputs before the ReLU: those that it let pass.
template <typename Isa>
INLINE void pass_row(const float* gradients, const float* outputs, int64_t count, bool relu,
                     float* passed) {
  if (!relu) {
    std::memcpy(passed, gradients, count * sizeof(float));
    return;
  }
  using Vector = typename Isa::Vector;
  constexpr int64_t lanes = kLanes<Isa>;
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    const Vector output = *reinterpret_cast<const Vector*>(outputs + k);
    const Vector gradient = *reinterpret_cast<const Vector*>(gradients + k);
    *reinterpret_cast<Vector*>(passed + k) = output > Vector{} ? gradient : Vector{};
  }
  for (; k < count; ++k) passed[k] = outputs[k] > 0 ? gradients[k] : 0;
}

// The same for one image, laid out as `correlate_image` reads it; adds them to those of the bias.
//
// passed: as `gradients` in `correlate_image`; columns beyond the last filter are not written.
// bias: [blocks of columns, columns].
template <typename Isa>
INLINE void pass_image(const Shape& shape, const float* gradients, const float* outputs, bool relu,
                       float* passed, float* bias) {
  using Vector = typename Isa::Vector;
  constexpr int64_t columns = kColumns<Isa>;
  const int64_t pixels = shape.out_height * shape.out_width;
  for (int64_t first = 0; first < shape.filters; first += columns) {
    const int64_t width = std::min(columns, shape.filters - first);
    Vector sums[1][2];
    load<Isa>(sums, bias + first, 0);
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      float* to = passed + first * pixels + pixel * columns;
      const int64_t at = pixel * shape.filters + first;
      // A length that the compiler knows makes the usual case two operations without a loop.
      pass_row<Isa>(gradients + at, outputs + at, width == columns ? columns : width, relu, to);
      Vector own[1][2];
      load<Isa>(own, to, 0);
      sums[0][0] += own[0][0];
      sums[0][1] += own[0][1];
    }
    store<Isa>(sums, bias + first, 0);
  }
}

// Lays out `count` rows of `width` numbers in blocks of columns, filled up with zeros.
Lines in_blocks(const float* rows, int64_t count, int64_t width, int64_t columns) {
  Lines blocks(lines_of(round_up(width, columns) * count * sizeof(float)));
  for (int64_t first = 0; first < width; first += columns) {
    const int64_t own = std::min(columns, width - first);
    float* block = floats(blocks) + first * count;
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(block + row * columns, rows + row * width + first, own * sizeof(float));
    }
  }
  return blocks;
}

// The functions above, compiled for a set of instructions.
struct Instructions {
  const char* name;
  int64_t columns;
  void (*convolve)(const Shape&, const float*, const float*, const float*, bool, float*);
  void (*correlate)(const Shape&, const float*, const float*, float*);
  void (*pass_row)(const float*, const float*, int64_t, bool, float*);
  void (*pass_image)(const Shape&, const float*, const float*, bool, float*, float*);
};

#define COMPILE_FOR(ISA, TARGET)                                                              \
  TARGET void convolve_##ISA(const Shape& shape, const float* image, const float* kernel,     \
                             const float* bias, bool relu, float* output) {                   \
    convolve_image<ISA>(shape, image, kernel, bias, relu, output);                            \
  }                                                                                           \
  TARGET void correlate_##ISA(const Shape& shape, const float* image, const float* gradients, \
                              float* sums) {                                                  \
    correlate_image<ISA>(shape, image, gradients, sums);                                      \
  }                                                                                           \
  TARGET void pass_row_##ISA(const float* gradients, const float* outputs, int64_t count,     \
                             bool relu, float* passed) {                                      \
    pass_row<ISA>(gradients, outputs, count, relu, passed);                                   \
  }                                                                                           \
  TARGET void pass_image_##ISA(const Shape& shape, const float* gradients,                    \
                               const float* outputs, bool relu, float* passed, float* bias) { \
    pass_image<ISA>(shape, gradients, outputs, relu, passed, bias);                           \
  }                                                                                           \
  const Instructions instructions_##ISA = {#ISA,           kColumns<ISA>,  convolve_##ISA,    \
                                           correlate_##ISA, pass_row_##ISA, pass_image_##ISA};

// This processor's sets, the fastest last.
#if defined(__x86_64__)
COMPILE_FOR(Avx2, __attribute__((target("avx2,fma"))))
COMPILE_FOR(Avx512, __attribute__((target("avx512f,fma"))))

std::vector<const Instructions*> available() {
  if (has_avx512()) return {&instructions_Avx2, &instructions_Avx512};
  if (has_avx2()) return {&instructions_Avx2};
  return {};
}
#else
std::vector<const Instructions*> available() { return {}; }
#endif

const std::vector<const Instructions*> sets = available();
std::atomic<const Instructions*> chosen(sets.empty() ? nullptr : sets.back());

// --- all images ----------------------------------------------------------------------------------

bool differ(const Floats& a, const Floats& b) {
  const auto own = a.dimensions(), other = b.dimensions();
  return !std::equal(own.begin(), own.end(), other.begin(), other.end());
}

// The shape of a convolution of `images` that gives `outputs`.
ffi::Error read_shape(const Floats& images, const Floats& kernel, const Floats& outputs,
                      int64_t stride, Shape& shape) {
  if (chosen == nullptr) return ffi::Error::Internal("this processor has no AVX2");
  const auto in = images.dimensions(), k = kernel.dimensions(), out = outputs.dimensions();
  if (in.size() != 4 || k.size() != 4 || out.size() != 4 || stride < 1) {
    return ffi::Error::InvalidArgument("images, kernel and outputs need four axes");
  }
  shape = {in[0], in[1], in[2], in[3], k[0], stride, out[1], out[2], out[3]};
  if (k[0] < 1 || k[0] != k[1] || k[2] != in[3] || k[3] != out[3] || out[0] != in[0] ||
      in[1] < k[0] || in[2] < k[0] || out[1] != (in[1] - k[0]) / stride + 1 ||
      out[2] != (in[2] - k[0]) / stride + 1) {
    return ffi::Error::InvalidArgument("the shapes are not those of a convolution");
  }
  return ffi::Error::Success();
}

ffi::Error Convolve(ffi::ThreadPool pool, Floats images, Floats kernel, Floats bias,
                    Result outputs, int64_t stride, bool relu) {
  Shape shape;
  if (auto error = read_shape(images, kernel, *outputs, stride, shape); error.failure()) {
    return error;
  }
  if (int64_t(bias.element_count()) != shape.filters) {
    return ffi::Error::InvalidArgument("a bias for each filter is needed");
  }
  const Instructions& set = *chosen;
  const Lines arranged =
      in_blocks(kernel.typed_data(), shape.products(), shape.filters, set.columns);
  const Lines biases = in_blocks(bias.typed_data(), 1, shape.filters, set.columns);
  in_parallel(pool, shape.images, [&](int64_t n) {
    set.convolve(shape, images.typed_data() + n * shape.image(), floats(arranged), floats(biases),
                 relu, outputs->typed_data() + n * shape.output());
  });
  return ffi::Error::Success();
}

// The gradient by the images, for a stride of 1: a convolution of the padded gradients.
ffi::Error ImageGradient(ffi::ThreadPool pool, Floats gradients, Floats outputs, Floats kernel,
                         Result images, bool relu) {
  Shape shape;
  if (auto error = read_shape(*images, kernel, gradients, 1, shape); error.failure()) return error;
  if (differ(gradients, outputs)) {
    return ffi::Error::InvalidArgument("gradients and outputs differ in shape");
  }
  const int64_t border = shape.side - 1, taps = shape.side * shape.side;
  const int64_t filters = shape.filters, channels = shape.channels;
  const Shape padded = {shape.images, shape.out_height + 2 * border, shape.out_width + 2 * border,
                        filters, shape.side, 1, shape.height, shape.width, channels};
  const Instructions& set = *chosen;
  std::vector<float> mirrored(kernel.element_count());
  for (int64_t tap = 0; tap < taps; ++tap) {
    const float* from = kernel.typed_data() + tap * channels * filters;
    float* to = mirrored.data() + (taps - 1 - tap) * channels * filters;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t f = 0; f < filters; ++f) to[f * channels + c] = from[c * filters + f];
    }
  }
  const Lines arranged = in_blocks(mirrored.data(), padded.products(), channels, set.columns);
  const Lines no_bias(lines_of(round_up(channels, set.columns) * sizeof(float)));
  in_parallel(pool, shape.images, [&](int64_t n) {
    static thread_local std::vector<float> scratch;
    scratch.resize(padded.image());
    const int64_t line = shape.out_width * filters, margin = border * filters;
    for (int64_t h = 0; h < padded.height; ++h) {
      float* to = scratch.data() + h * padded.row();
      const int64_t own = h - border;
      if (own < 0 || own >= shape.out_height) {
        std::fill_n(to, padded.row(), 0.0f);
        continue;
      }
      const int64_t at = n * shape.output() + own * line;
      std::fill_n(to, margin, 0.0f);
      set.pass_row(gradients.typed_data() + at, outputs.typed_data() + at, line, relu, to + margin);
      std::fill_n(to + margin + line, margin, 0.0f);
    }
    set.convolve(padded, scratch.data(), floats(arranged), floats(no_bias), false,
                 images->typed_data() + n * shape.image());
  });
  return ffi::Error::Success();
}

// The gradients by kernel and bias. A group of images is summed by one thread, and then the groups.
ffi::Error KernelGradient(ffi::ThreadPool pool, Floats images, Floats gradients, Floats outputs,
                          Result kernel, Result bias, int64_t stride, bool relu) {
  constexpr int64_t group_size = 8;
  Shape shape;
  if (auto error = read_shape(images, *kernel, gradients, stride, shape); error.failure()) {
    return error;
  }
  if (differ(gradients, outputs) ||
      int64_t(bias->element_count()) != shape.filters) {
    return ffi::Error::InvalidArgument("gradients, outputs and bias differ in shape");
  }
  const Instructions& set = *chosen;
  const int64_t filters = shape.filters, pixels = shape.out_height * shape.out_width;
  const int64_t columns = set.columns, padded = round_up(filters, columns);
  const int64_t size = padded * (shape.products() + 1);  // of the kernel's sums and the bias's
  const int64_t groups = std::max<int64_t>((shape.images + group_size - 1) / group_size, 1);
  std::vector<float> sums(groups * size);
  in_parallel(pool, groups, [&](int64_t group) {
    static thread_local std::vector<float> scratch;
    scratch.assign(padded * pixels, 0.0f);
    float* own = sums.data() + group * size;
    const int64_t end = std::min((group + 1) * group_size, shape.images);
    for (int64_t n = group * group_size; n < end; ++n) {
      const int64_t at = n * shape.output();
      set.pass_image(shape, gradients.typed_data() + at, outputs.typed_data() + at, relu,
                     scratch.data(), own + padded * shape.products());
      set.correlate(shape, images.typed_data() + n * shape.image(), scratch.data(), own);
    }
  });
  for (int64_t group = 1; group < groups; ++group) {
    for (int64_t k = 0; k < size; ++k) sums[k] += sums[group * size + k];
  }
  for (int64_t first = 0; first < filters; first += columns) {
    const int64_t width = std::min(columns, filters - first);
    const float* block = sums.data() + first * shape.products();
    for (int64_t row = 0; row < shape.products(); ++row) {
      std::memcpy(kernel->typed_data() + row * filters + first, block + row * columns,
                  width * sizeof(float));
    }
  }
  std::memcpy(bias->typed_data(), sums.data() + padded * shape.products(),
              filters * sizeof(float));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(convolve_handler, Convolve,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Ret<Floats>()
                           .Attr<int64_t>("stride")
                           .Attr<bool>("relu"));

XLA_FFI_DEFINE_HANDLER(image_gradient_handler, ImageGradient,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Ret<Floats>()
                           .Attr<bool>("relu"));

XLA_FFI_DEFINE_HANDLER(kernel_gradient_handler, KernelGradient,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Arg<Floats>()
                           .Ret<Floats>()
                           .Ret<Floats>()
                           .Attr<int64_t>("stride")
                           .Attr<bool>("relu"));

// --- the Python module ---------------------------------------------------------------------------

// use(name) computes with these instructions from now on; for tests.
PyObject* use(PyObject*, PyObject* argument) {
  const char* name = PyUnicode_AsUTF8AndSize(argument, nullptr);
  if (name == nullptr) return nullptr;
  for (const Instructions* set : sets) {
    if (std::strcmp(set->name, name) == 0) {
      chosen = set;
      Py_RETURN_NONE;
    }
  }
  return PyErr_Format(PyExc_ValueError, "this processor has no instructions %s", name);
}

PyMethodDef methods[] = {{"use", use, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = definition_of("_convolution", methods);

}  // namespace

PyMODINIT_FUNC PyInit__convolution(void) {
  return make_module(definition,
                     {{"convolve", convolve_handler},
                      {"image_gradient", image_gradient_handler},
                      {"kernel_gradient", kernel_gradient_handler}},
                     sets.empty() ? "" : sets.back()->name);
}
