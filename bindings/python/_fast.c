/*
 * _fast.c - one search of an Index, for _search.py, where a compiler was at hand when the package was built.
 *
 * It does what the ctypes in _search.py do with a tenth of the instructions and objects. That is what counts: between
 * two searches the interpreter's have left the processor's caches (docs/python.md, "Speed").
 *
 * Stable ABI of CPython 3.11, which is the first to have buffers in it: one build serves all later versions. It knows
 * neither libquire nor its header; bind() is told where quire_search is and how large what it writes is.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define STACK_BYTES 4096

typedef int (*search_call)(void *index, const void *query, const void *options, void *hits, uint32_t *n_hits,
                           void *stats, void *err);

static search_call call;
static size_t hit_bytes, error_bytes;

/* bind(address of quire_search, bytes of struct quire_hit, bytes of struct quire_error) */
static PyObject *bind(PyObject *module, PyObject *args)
{
    PyObject *address;
    Py_ssize_t hit, error;
    (void)module;
    if (!PyArg_ParseTuple(args, "Onn", &address, &hit, &error))
        return NULL;
    void *function = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    if (hit < 1 || error < 1 || error > STACK_BYTES) {
        PyErr_Format(PyExc_ValueError, "hits of %zd and errors of %zd bytes: not what this was built for", hit, error);
        return NULL;
    }
    memcpy(&call, &function, sizeof call);
    hit_bytes = (size_t)hit;
    error_bytes = (size_t)error;
    Py_RETURN_NONE;
}

/* dim float32, aligned: readable where it stands. */
static bool is_plain(const Py_buffer *query, unsigned long dim)
{
    return query->ndim == 1 && query->itemsize == 4 && query->format && strcmp(query->format, "f") == 0 &&
           (unsigned long)query->shape[0] == dim && (uintptr_t)query->buf % 4 == 0;
}

/*
 * search(index, query, options, k, dim, stats) -> bytearray of the hits; (code, bytes of the error) where the library
 * refuses; None where the query is not plain, and nothing was done. index, options and stats are addresses of what the
 * caller keeps; stats may be 0. Python's lock is released meanwhile.
 */
static PyObject *search(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    char error[STACK_BYTES], few[STACK_BYTES], *hits = few;
    uint32_t n_hits = 0;
    Py_buffer query;
    (void)module;
    if (n != 6 || !call) {
        PyErr_SetString(PyExc_TypeError, "search takes 6 arguments, after bind()");
        return NULL;
    }
    void *index = PyLong_AsVoidPtr(args[0]), *options = PyLong_AsVoidPtr(args[2]), *stats = PyLong_AsVoidPtr(args[5]);
    unsigned long k = PyLong_AsUnsignedLong(args[3]), dim = PyLong_AsUnsignedLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(args[1], &query, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (!is_plain(&query, dim)) {
        PyBuffer_Release(&query);
        Py_RETURN_NONE;
    }
    if (k > sizeof few / hit_bytes && !(hits = PyMem_Malloc(k * hit_bytes))) {
        PyBuffer_Release(&query);
        return PyErr_NoMemory();
    }
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = call(index, query.buf, options, hits, &n_hits, stats, error);
    Py_END_ALLOW_THREADS PyBuffer_Release(&query);
    PyObject *found = rc < 0 ? Py_BuildValue("iy#", rc, error, (Py_ssize_t)error_bytes)
                             : PyByteArray_FromStringAndSize(hits, (Py_ssize_t)(n_hits * hit_bytes));
    if (hits != few)
        PyMem_Free(hits);
    return found;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, "bind(quire_search, bytes of a hit, bytes of an error)"},
    {"search", (PyCFunction)(void (*)(void))search, METH_FASTCALL, "search(index, query, options, k, dim, stats)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "quire._fast", "One search of an Index.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    return PyModule_Create(&definition);
}
