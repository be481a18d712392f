/* The two loops of the sum tree that limit a fleet. replay/sum_tree.py holds the same in NumPy,
   with the same order of additions, so that both give the same bits. */

#include "python_calls.h" /* includes Python.h, which comes first */

#define WIDTH 16
#define MAX_LEVELS 16 /* 16^16 leaves */

/* Nodes lie level after level, leaves first; a level is [runs, blocks, WIDTH]. */
typedef struct {
  int count;
  int64_t runs;
  int64_t blocks[MAX_LEVELS]; /* of a run */
  double *nodes[MAX_LEVELS];
} Tree;

/* Lays the levels over a buffer; returns 0, with an exception, if the sizes do not fit. */
static int lay_out(Tree *tree, const Py_buffer *nodes, Py_ssize_t runs, Py_ssize_t leaves) {
  int64_t size = leaves, used = 0, available = nodes->len / (Py_ssize_t)sizeof(double);
  tree->count = 0;
  tree->runs = runs;
  if (runs < 1 || leaves < 1) {
    PyErr_SetString(PyExc_ValueError, "a tree has at least one run and one leaf");
    return 0;
  }
  do {
    int64_t blocks = size / WIDTH + (size % WIDTH > 0);
    if (runs > available / WIDTH || blocks > (available - used) / (WIDTH * runs)) {
      PyErr_SetString(PyExc_ValueError, "the nodes of the tree do not fit into their buffer");
      return 0;
    }
    tree->blocks[tree->count] = blocks;
    tree->nodes[tree->count] = (double *)nodes->buf + used;
    used += runs * blocks * WIDTH;
    size = blocks;
    tree->count++;
  } while (size > 1);
  return 1;
}

/* As NumPy adds 16 contiguous numbers: eight partial sums, then pairs of them. */
static double block_sum(const double *x) {
  double r[8];
  for (int i = 0; i < 8; i++) r[i] = x[i] + x[i + 8];
  return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
}

static PyObject *update(PyObject *self, PyObject *args) {
  Py_buffer nodes, leaf;
  Py_ssize_t runs, leaves;
  Tree tree;
  PyObject *result = NULL;
  if (!PyArg_ParseTuple(args, "w*nny*", &nodes, &runs, &leaves, &leaf)) return NULL;
  if (lay_out(&tree, &nodes, runs, leaves)) {
    const int64_t *changed = leaf.buf;
    int64_t count = leaf.len / (Py_ssize_t)sizeof(int64_t), stride = tree.blocks[0] * WIDTH;
    for (int64_t i = 0; i < count; i++) {
      if (changed[i] < 0 || changed[i] >= runs * stride) {
        PyErr_SetString(PyExc_IndexError, "leaf out of range");
        goto done;
      }
    }
    for (int k = 0; k + 1 < tree.count; k++) {
      int64_t leaves_of_block = WIDTH;
      for (int below = 0; below < k; below++) leaves_of_block *= WIDTH;
      for (int64_t i = 0; i < count; i++) {
        int64_t run = changed[i] / stride, block = (changed[i] - run * stride) / leaves_of_block;
        const double *children = tree.nodes[k] + (run * tree.blocks[k] + block) * WIDTH;
        tree.nodes[k + 1][run * tree.blocks[k + 1] * WIDTH + block] = block_sum(children);
      }
    }
    Py_INCREF(Py_None);
    result = Py_None;
  }
done:
  PyBuffer_Release(&nodes);
  PyBuffer_Release(&leaf);
  return result;
}

/* One step down: the child in which the running sum passes `mass`, which becomes the rest; -1 if
   all children are zero. */
static int descend(const double *children, double *mass) {
  double running[WIDTH];
  int child = children[0] <= *mass;
  running[0] = children[0];
  for (int i = 1; i < WIDTH; i++) {
    running[i] = running[i - 1] + children[i];
    child += running[i] <= *mass;
  }
  if (child == WIDTH) { /* rounding: take the last positive child */
    for (child = WIDTH - 1; child >= 0 && !(children[child] > 0); child--) {
    }
    if (child < 0) return child;
  }
  double rest = *mass - (running[child] - children[child]);
  *mass = rest < 0.0 ? 0.0 : rest;
  return child;
}

static PyObject *find(PyObject *self, PyObject *args) {
  Py_buffer nodes, mass, found;
  Py_ssize_t runs, leaves;
  Tree tree;
  PyObject *result = NULL;
  if (!PyArg_ParseTuple(args, "w*nnw*w*", &nodes, &runs, &leaves, &mass, &found)) return NULL;
  if (lay_out(&tree, &nodes, runs, leaves)) {
    if (found.len != mass.len || mass.len % (runs * (Py_ssize_t)sizeof(double))) {
      PyErr_SetString(PyExc_ValueError, "mass and found must be [runs, N] of 8 bytes each");
      goto done;
    }
    int64_t size = mass.len / (Py_ssize_t)sizeof(double) / runs;
    for (int64_t run = 0; run < runs; run++) {
      double *rest = (double *)mass.buf + run * size;
      int64_t *node = (int64_t *)found.buf + run * size;
      for (int64_t i = 0; i < size; i++) node[i] = 0;
      /* All samples of a run, level by level: their loads from memory overlap. */
      for (int k = tree.count - 1; k >= 0; k--) {
        const double *level = tree.nodes[k] + run * tree.blocks[k] * WIDTH;
        for (int64_t i = 0; i < size; i++) {
          int child = node[i] < tree.blocks[k] ? descend(level + node[i] * WIDTH, rest + i) : -1;
          if (child < 0) {
            PyErr_SetString(PyExc_IndexError, "nothing to find in a tree of zeros");
            goto done;
          }
          node[i] = node[i] * WIDTH + child;
          if (k > 0 && node[i] < tree.blocks[k - 1]) {
            const double *next =
                tree.nodes[k - 1] + (run * tree.blocks[k - 1] + node[i]) * WIDTH;
            PREFETCH(next);
            PREFETCH(next + WIDTH / 2);
          }
        }
      }
    }
    Py_INCREF(Py_None);
    result = Py_None;
  }
done:
  PyBuffer_Release(&nodes);
  PyBuffer_Release(&mass);
  PyBuffer_Release(&found);
  return result;
}

static PyMethodDef methods[] = {
    {"update", update, METH_VARARGS,
     "update(nodes, runs, leaves, leaf): sums above the leaves [n] int64 that have changed."},
    {"find", find, METH_VARARGS,
     "find(nodes, runs, leaves, mass, found): see SumTree.find; overwrites both [runs, N]."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sum_tree", NULL, -1, methods};

PyMODINIT_FUNC PyInit_sum_tree(void) { return PyModule_Create(&definition); }
