// What the calls of XLA programs share: threads, and how Python gets to know a call.

#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000  // one binary for Python 3.11 and later
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Calls work(i) for every i below `count`, on the threads that are free and on this one. Throws the
// first exception of them when all have ended; XLA makes an error of it.
template <typename Work>
void in_parallel(ffi::ThreadPool& pool, int64_t count, const Work& work) {
  struct Job {
    std::atomic<int64_t> next{0};
    int64_t done = 0;
    std::mutex mutex;
    std::condition_variable all_done;
    std::exception_ptr error;
  };
  auto job = std::make_shared<Job>();
  // A thread that starts late finds nothing left to do, and must not touch `work`.
  auto take_part = [job, count, &work]() noexcept {
    for (int64_t i; (i = job->next++) < count;) {
      std::exception_ptr error;
      try {
        work(i);
      } catch (...) {
        error = std::current_exception();
      }
      std::lock_guard<std::mutex> lock(job->mutex);
      if (error && !job->error) job->error = error;
      if (++job->done == count) job->all_done.notify_one();
    }
  };
  for (int64_t helpers = std::min(pool.num_threads(), count) - 1; helpers > 0; --helpers) {
    pool.Schedule(std::function<void()>(take_part));
  }
  take_part();
  std::unique_lock<std::mutex> lock(job->mutex);
  job->all_done.wait(lock, [&] { return job->done == count; });
  if (job->error) std::rethrow_exception(job->error);
}

// methods: ends with an empty one; null where there are none.
inline PyModuleDef definition_of(const char* name, PyMethodDef* methods) {
  return {PyModuleDef_HEAD_INIT, name, nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
}

// A call of XLA programs, and its name in Python.
struct Call {
  const char* name;
  XLA_FFI_Handler* handler;
};

// A module of calls, as JAX registers them; null with Python's error set.
//
// instructions: what the calls are compiled for, the constant INSTRUCTIONS in Python; empty if this
// processor can run none of it.
inline PyObject* make_module(PyModuleDef& definition, std::initializer_list<Call> calls,
                             const char* instructions) {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  if (PyModule_AddStringConstant(module, "INSTRUCTIONS", instructions) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  for (const Call& call : calls) {
    PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(call.handler),
                                      "xla._CUSTOM_CALL_TARGET", nullptr);
    const bool failed =
        capsule == nullptr || PyModule_AddObjectRef(module, call.name, capsule) != 0;
    Py_XDECREF(capsule);
    if (failed) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
