// The sets of instructions that a kernel is compiled for, and the choice among them.

#pragma once

#include "../xla_calls.h"  // includes Python.h, which comes first

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

// What the vectors of tiles.h need.
inline bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}
inline bool has_avx512() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

// Set: the functions of a kernel compiled for a set of instructions, and its `name`.
template <typename Set>
struct InstructionSets {
  explicit InstructionSets(std::vector<const Set*> available)
      : available(std::move(available)),
        chosen(this->available.empty() ? nullptr : this->available.back()) {}
  const std::vector<const Set*> available;  // on this processor; the fastest last
  std::atomic<const Set*> chosen;
};

// Of Python: instructions() -> the names of the sets that this processor has.
template <auto& sets>
PyObject* instructions(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const auto* set : sets.available) {
    PyObject* name = names == nullptr ? nullptr : PyUnicode_FromString(set->name);
    if (name == nullptr || PyList_Append(names, name) != 0) {
      Py_XDECREF(name);
      Py_XDECREF(names);
      return nullptr;
    }
    Py_DECREF(name);
  }
  return names;
}

// Of Python: use(name) computes with these instructions from now on; for tests.
template <auto& sets>
PyObject* use(PyObject*, PyObject* argument) {
  const char* name = PyUnicode_AsUTF8AndSize(argument, nullptr);
  if (name == nullptr) return nullptr;
  for (const auto* set : sets.available) {
    if (std::strcmp(set->name, name) == 0) {
      sets.chosen = set;
      Py_RETURN_NONE;
    }
  }
  return PyErr_Format(PyExc_ValueError, "this processor has no instructions %s", name);
}

// Of Python: the functions of a module that has a choice.
template <auto& sets>
PyMethodDef methods[] = {
    {"instructions", instructions<sets>, METH_NOARGS, nullptr},
    {"use", use<sets>, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
