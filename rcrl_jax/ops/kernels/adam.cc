// A step of Adam on the CPU, as a call of XLA programs.
//
// XLA writes the clipped gradient, both moments and the parameters of every leaf in operations of
// their own, some eighty for the leaves of a network. Here one pass over the gradients computes
// their norm and one over all arrays takes the step. The sums of squares are added in one fixed
// order and no product is fused with a sum, so results do not depend on the number of threads.

#include "xla_calls.h"  // includes Python.h, which comes first

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using Floats = ffi::Buffer<ffi::F32>;

// Compiled for three widths of vectors, where the compiler can.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_ALL_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_ALL_WIDTHS
#endif

constexpr int64_t kLanes = 16;    // sums of squares that are added side by side
constexpr int64_t kPiece = 8192;  // numbers of one task of a thread

// A piece of one leaf of one run.
struct Piece {
  int64_t run, leaf, begin, count;
};

struct Constants {
  float scale;          // of the gradient, which clips it
  float b1, b2;         // decay rates of the moments
  float by_b1, by_b2;   // 1 - b1, 1 - b2
  float learning_rate;  // with the correction of both moments' bias
  float eps;            // with that of the second
};

FOR_ALL_WIDTHS double sum_of_squares(const float* x, int64_t count) {
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[k + lane] * x[k + lane];
  }
  double sum = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  for (; k < count; ++k) sum += x[k] * x[k];
  return sum;
}

FOR_ALL_WIDTHS void step(const Constants& with, int64_t count, const float* __restrict gradient,
                         float* __restrict param, float* __restrict mu, float* __restrict nu) {
  const Constants c = with;
  for (int64_t k = 0; k < count; ++k) {
    const float g = gradient[k] * c.scale;
    const float m = c.by_b1 * g + c.b1 * mu[k];
    const float v = c.by_b2 * (g * g) + c.b2 * nu[k];
    mu[k] = m;
    nu[k] = v;
    param[k] -= c.learning_rate * m / (std::sqrt(v) + c.eps);
  }
}

// Arguments: the number of the step, 0 for none, then the leaves of gradients, parameters, first and
// second moments. Results: the norm of the gradient, then the leaves of parameters and moments,
// which XLA is told to lay where the arguments lie. Runs come first in every array. The gradient of
// a run is clipped to the norm `max_norm`.
ffi::Error Step(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                double learning_rate, double b1, double b2, double eps, double max_norm) {
  const int64_t leaves = (int64_t(arguments.size()) - 1) / 4;
  if (leaves < 1 || int64_t(arguments.size()) != 1 + 4 * leaves ||
      int64_t(results.size()) != 1 + 3 * leaves) {
    return ffi::Error::InvalidArgument("Adam needs a count and four arrays a leaf");
  }
  const auto counts = arguments.get<ffi::Buffer<ffi::S32>>(0);
  auto norms = results.get<Floats>(0);
  if (counts.has_error() || norms.has_error()) {
    return ffi::Error::InvalidArgument("the count must be int32 and the norm float32");
  }
  const int64_t runs = counts->element_count();
  if (runs < 1 || int64_t((*norms)->element_count()) != runs) {
    return ffi::Error::InvalidArgument("each run needs a norm");
  }

  std::vector<float*> all(4 * leaves);  // gradients, parameters, first and second moments
  std::vector<int64_t> sizes(leaves);   // numbers of a leaf of one run
  for (int64_t k = 0; k < 4 * leaves; ++k) {
    const auto array = arguments.get<Floats>(1 + k);
    if (array.has_error()) return ffi::Error::InvalidArgument("leaves must be float32");
    if (k < leaves) sizes[k] = int64_t(array->element_count()) / runs;
    if (int64_t(array->element_count()) != runs * sizes[k % leaves]) {
      return ffi::Error::InvalidArgument("the four arrays of a leaf need the same shape");
    }
    all[k] = array->typed_data();
    if (k < leaves) continue;
    auto result = results.get<Floats>(1 + k - leaves);
    if (result.has_error() || (*result)->typed_data() != all[k]) {
      return ffi::Error::InvalidArgument("parameters and moments must be replaced in place");
    }
  }

  std::vector<Piece> pieces;
  for (int64_t run = 0; run < runs; ++run) {
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      for (int64_t begin = 0; begin < sizes[leaf]; begin += kPiece) {
        pieces.push_back({run, leaf, begin, std::min(kPiece, sizes[leaf] - begin)});
      }
    }
  }
  const auto offset = [&](const Piece& piece) {
    return piece.run * sizes[piece.leaf] + piece.begin;
  };

  std::vector<double> squares(pieces.size());
  in_parallel(pool, pieces.size(), [&](int64_t k) {
    squares[k] = sum_of_squares(all[pieces[k].leaf] + offset(pieces[k]), pieces[k].count);
  });
  std::vector<double> sums(runs);
  for (size_t k = 0; k < pieces.size(); ++k) sums[pieces[k].run] += squares[k];
  std::vector<Constants> constants(runs);
  for (int64_t run = 0; run < runs; ++run) {
    const double norm = std::sqrt(sums[run]);
    (*norms)->typed_data()[run] = norm;
    const double count = counts->typed_data()[run];
    const double mu_bias = 1 - std::pow(b1, count), nu_bias = std::sqrt(1 - std::pow(b2, count));
    constants[run].scale = std::isinf(max_norm) || norm < max_norm ? 1 : max_norm / norm;
    constants[run].b1 = b1;
    constants[run].b2 = b2;
    constants[run].by_b1 = 1 - b1;
    constants[run].by_b2 = 1 - b2;
    constants[run].learning_rate = learning_rate * nu_bias / mu_bias;
    constants[run].eps = eps * nu_bias;
  }
  in_parallel(pool, pieces.size(), [&](int64_t k) {
    const Piece& piece = pieces[k];
    if (counts->typed_data()[piece.run] == 0) return;
    const auto at = [&](int64_t tree) { return all[tree * leaves + piece.leaf] + offset(piece); };
    step(constants[piece.run], piece.count, at(0), at(1), at(2), at(3));
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(step_handler, Step,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<double>("learning_rate")
                           .Attr<double>("b1")
                           .Attr<double>("b2")
                           .Attr<double>("eps")
                           .Attr<double>("max_norm"));

PyModuleDef definition = definition_of("_adam", nullptr);

}  // namespace

PyMODINIT_FUNC PyInit__adam(void) {
  return make_module(definition, {{"step", step_handler}}, "compiled");
}
