/* Copies stacks of frames out of a ring, see replay/stacks.py. NumPy copies every frame twice and every
   piece by a call; here a piece of 17 to 32 bytes is one copy of 32 bytes. */

#include "python_calls.h" /* includes Python.h, which comes first */

#include <string.h>

#define MOST_FRAMES 100 /* of a stack, as the configuration allows */
#define BLOCK 32        /* bytes that are copied at once */

/* Writes piece 0 of all frames, then piece 1, and so on. Meanwhile the frames of the next stack
   are fetched, if pieces are copied in blocks. */
static void copy_stack(char *to, const char *const *frame, const char *const *next,
                       Py_ssize_t frames, Py_ssize_t pieces, Py_ssize_t piece) {
  Py_ssize_t blocks = 0;
  if (piece > BLOCK / 2 && piece <= BLOCK) {
    /* A block copies bytes after its piece, too; the next copy overwrites them. The last pieces
       are copied exactly, so nothing outside a frame or its stack is touched. */
    blocks = pieces - 1;
    for (Py_ssize_t i = 0; i < blocks; i++) {
      for (Py_ssize_t k = 0; k < frames; k++, to += piece) {
        PREFETCH(next[k] + i * piece);
        memcpy(to, frame[k] + i * piece, BLOCK);
      }
    }
  }
  for (Py_ssize_t i = blocks; i < pieces; i++) {
    for (Py_ssize_t k = 0; k < frames; k++, to += piece) memcpy(to, frame[k] + i * piece, piece);
  }
}

static PyObject *gather(PyObject *self, PyObject *args) {
  Py_buffer stored, slots, out;
  Py_ssize_t stride, frames, pieces, piece;
  PyObject *result = NULL;
  if (!PyArg_ParseTuple(args, "y*ny*nnnw*", &stored, &stride, &slots, &frames, &pieces, &piece,
                        &out)) {
    return NULL;
  }
  const int64_t *slot = slots.buf;
  Py_ssize_t count = slots.len / (Py_ssize_t)sizeof(int64_t);
  if (frames < 1 || frames > MOST_FRAMES || pieces < 1 || piece < 1 || count % frames ||
      stride < 1 || piece > stride / pieces || stored.len % stride ||
      out.len / piece / pieces != count || out.len % (piece * pieces)) {
    PyErr_SetString(PyExc_ValueError, "the sizes of frames, slots and stacks do not fit together");
    goto done;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    if (slot[i] < 0 || slot[i] >= stored.len / stride) {
      PyErr_SetString(PyExc_IndexError, "slot out of range");
      goto done;
    }
  }
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; i < count; i += frames) {
    const char *frame[MOST_FRAMES], *next[MOST_FRAMES];
    Py_ssize_t ahead = i + frames < count ? frames : 0;
    for (Py_ssize_t k = 0; k < frames; k++) {
      frame[k] = (const char *)stored.buf + slot[i + k] * stride;
      next[k] = (const char *)stored.buf + slot[i + k + ahead] * stride;
    }
    copy_stack((char *)out.buf + i * pieces * piece, frame, next, frames, pieces, piece);
  }
  Py_END_ALLOW_THREADS;
  Py_INCREF(Py_None);
  result = Py_None;
done:
  PyBuffer_Release(&stored);
  PyBuffer_Release(&slots);
  PyBuffer_Release(&out);
  return result;
}

static PyMethodDef methods[] = {
    {"gather", gather, METH_VARARGS,
     "gather(stored, stride, slots, frames, pieces, piece, out): see stacks.gather; sizes in "
     "bytes, slots int64."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "stacks", NULL, -1, methods};

PyMODINIT_FUNC PyInit_stacks(void) { return PyModule_Create(&definition); }
